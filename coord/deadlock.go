package coord

import (
	"fmt"
	"strings"
	"time"
)

// A DeadlockError is the reason why a waiting caller was sent away: callers waited for each other
// in a circle, and this one had come last. The locks that it has are as they were: it gives them
// back for the others to go on, and begins anew. See Options.DeadlockAfter.
type DeadlockError struct {
	Key   string         // the key that the caller waited for
	Cycle []DeadlockWait // each waits for a lock of the next one, and the last one for a lock of the first, which is the caller
}

// modeRead is the name of the mode of a lock for reading.
const modeRead = "read"

// A DeadlockWait is one of the callers of a circle.
type DeadlockWait struct {
	Process
	Key     string    // the key that it waits for
	Mode    string    // how: "" for a lock, or "read"
	Label   string    // of WithLabel
	Since   time.Time // when it began to wait, by its process's clock
	Has     string    // the key that it has, and that the caller before it in the circle waits for
	HasMode string    // as Mode
}

// Error returns the circle, for logs.
func (e *DeadlockError) Error() string {
	return "coord: callers wait for each other in a circle: " + e.circle()
}

// Is makes errors.Is(e, ErrDeadlock) and errors.Is(e, ErrLocked) true.
func (e *DeadlockError) Is(target error) bool { return target == ErrDeadlock || target == ErrLocked }

// circle returns the circle in one line, such as `a of berta has "x" and waits for "y"; ...`.
func (e *DeadlockError) circle() string {
	var all []string
	for _, w := range e.Cycle {
		all = append(all, fmt.Sprintf("%s has %s and waits for %s", w.name(), quotedMode(w.Has, w.HasMode), quotedMode(w.Key, w.Mode)))
	}
	return strings.Join(all, "; ")
}

// name returns the caller's label and process, as far as there are any.
func (w *DeadlockWait) name() string {
	if w.Label == "" {
		return "a caller of " + quoted(w.Process.Name)
	}
	return quoted(w.Label) + " of " + quoted(w.Process.Name)
}

func quotedMode(key, mode string) string {
	if mode == "" {
		return quoted(key)
	}
	return quoted(key) + " (" + mode + ")"
}
