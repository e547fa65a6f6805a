package fallback

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// ErrNoNamespace: no process has used a namespace of that name here.
var ErrNoNamespace = errors.New("fallback: there is no such namespace")

// A Describer is an [Arbiter] that tells the settings of a namespace, and changes nothing. It is
// for programs that observe: Attach makes a namespace that does not exist.
type Describer interface {
	// Describe returns the settings that are in force, without Lease. It blocks until ctx ends at
	// most. Errors: [ErrNoNamespace]; anything else means that the store could not be asked.
	Describe(ctx context.Context, namespace string) (Settings, error)
}

// ParseMark returns the settings that a namespace's mark tells. See [Settings.Mark].
func ParseMark(namespace, mark string) (Settings, error) {
	fields := markFields(mark)
	partitions, err := strconv.Atoi(fields["partitions"])
	if err != nil {
		return Settings{}, fmt.Errorf("%w: the mark of namespace %q is %q", ErrMismatch, namespace, mark)
	}
	grace, err := time.ParseDuration(fields["grace"])
	if err != nil {
		return Settings{}, fmt.Errorf("%w: the mark of namespace %q is %q", ErrMismatch, namespace, mark)
	}
	return Settings{Namespace: namespace, Partitions: partitions, Grace: grace}, nil
}

// Describe implements [Describer].
func (a *Memory) Describe(_ context.Context, namespace string) (Settings, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sp := a.spaces[namespace]
	if sp == nil {
		return Settings{}, fmt.Errorf("%w: %q", ErrNoNamespace, namespace)
	}
	mark := sp.sessions.Format
	if mark == "" { // lost since
		mark = sp.settings.Mark(true)
	}
	return ParseMark(namespace, mark)
}
