//go:build unix

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// tenure is the moment of a node's getting a partition, or asking the arbiter to take it back.
type tenure struct {
	Partition uint32
	At        int64 // by the machine's clock, in ns
	Taken     bool
}

// observed is an arbiter that notes when its node takes partitions, and when it gives them back.
type observed struct {
	fallback.Arbiter

	mu  sync.Mutex // protects all
	all []tenure
}

// space is all that the arbiter on Redis is, so that the node uses each part of it.
type space interface {
	fallback.Namespace
	fallback.Prompter
	fallback.Queuer
	fallback.Spreader
	fallback.Burier
	fallback.Lister
	fallback.Announcer
	fallback.ResultStore
	fallback.Adviser
}

type observedSpace struct {
	space
	o *observed
}

// Attach implements [fallback.Arbiter].
func (o *observed) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	ns, err := o.Arbiter.Attach(ctx, s)
	if err != nil {
		return nil, err
	}
	all, ok := ns.(space)
	if !ok {
		return nil, fmt.Errorf("holds: %T is not all of what an arbiter may be", ns)
	}
	return observedSpace{all, o}, nil
}

// Acquire notes the moment of its answer.
func (s observedSpace) Acquire(ctx context.Context, p uint32, me string, x fallback.Expect) (fallback.Acquisition, error) {
	a, err := s.space.Acquire(ctx, p, me, x)
	if err == nil && a.Verdict == fallback.Granted {
		s.o.note(p, time.Now(), true)
	}
	return a, err
}

// Demote notes the moment before it is sent: the node has just ceased to grant the partition's
// keys.
func (s observedSpace) Demote(ctx context.Context, p uint32, me string, epoch uint32, holds map[string]fallback.Row) (fallback.Demotion, error) {
	s.o.note(p, time.Now(), false)
	return s.space.Demote(ctx, p, me, epoch, holds)
}

func (o *observed) note(p uint32, at time.Time, taken bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, tenure{p, at.UnixNano(), taken})
}

// take returns the tenures noted since the last call.
func (o *observed) take() []tenure {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.all
	o.all = nil
	return all
}
