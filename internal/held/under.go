package held

import (
	"context"
	"slices"
)

// under is a context that ends with the one around it, and with those of locks.
type under struct {
	context.Context                   // ends with one of them, perhaps a moment later, by a goroutine
	of              []context.Context // the locks', and at the end the one around it
	cancel          context.CancelCauseFunc
}

// Under returns a context that ends with outer, and with each of the locks, with the cause of the one
// that ends first; and with end, after which nothing of it stays at them. Its Err asks all of them each
// time, as the context of a lock looks at the clock: what it says is true now, before each write.
func Under(outer context.Context, locks ...context.Context) (ctx context.Context, end context.CancelCauseFunc) {
	live, cancel := context.WithCancelCause(outer)
	stops := make([]func() bool, len(locks))
	for i, lock := range locks {
		stops[i] = context.AfterFunc(lock, func() { cancel(context.Cause(lock)) })
	}
	return &under{live, append(slices.Clip(locks), outer), cancel}, func(cause error) {
		for _, stop := range stops {
			stop()
		}
		cancel(cause)
	}
}

func (u *under) Err() error {
	if u.Context.Err() == nil {
		for _, of := range u.of {
			if of.Err() != nil {
				u.cancel(context.Cause(of))
			}
		}
	}
	return u.Context.Err()
}
