package held

import (
	"context"
	"errors"
	"slices"
)

// under is a context that ends with the one around it, and with those of locks.
type under struct {
	context.Context                   // ends with one of them, perhaps a moment later, by a goroutine
	locks           []context.Context // those of locks
	outer           context.Context   // the one around it
	cancel          context.CancelCauseFunc
}

// Under returns a context that ends with outer, with each of the locks, and with end. Its cause is
// that of the one that ends first. end leaves nothing of it at the locks. Its Err asks all of them
// each time, as the context of a lock looks at the clock: its answer is true now, before each
// write.
func Under(outer context.Context, locks ...context.Context) (ctx context.Context, end context.CancelCauseFunc) {
	live, cancel := context.WithCancelCause(outer)
	stops := make([]func() bool, len(locks))
	for i, lock := range locks {
		stops[i] = context.AfterFunc(lock, func() { cancel(context.Cause(lock)) })
	}
	return &under{live, slices.Clip(locks), outer, cancel}, func(cause error) {
		for _, stop := range stops {
			stop()
		}
		cancel(cause)
	}
}

func (u *under) Err() error {
	if err := u.Context.Err(); err != nil {
		return err
	}
	for _, of := range u.locks {
		if of.Err() != nil {
			u.cancel(context.Cause(of))
			return u.Context.Err()
		}
	}
	err := u.outer.Err()
	if errors.Is(err, context.Canceled) {
		u.cancel(context.Cause(u.outer))
	}
	return err // that its deadline has passed ends the live one, too, a moment later
}

// Inside returns the context of a caller's work with a lock: that of the caller, with its deadline,
// which ends with the lock, too. It carries the locks of the lock's context: the lock, and around
// it those that the caller had before. end is as that of Under.
func Inside(caller, lock context.Context) (ctx context.Context, end context.CancelCauseFunc) {
	return Under(&inside{caller, lock}, lock)
}

// inside is the caller's context with the locks of another one.
type inside struct {
	context.Context
	lock context.Context
}

func (x *inside) Value(key any) any {
	if key == (Key{}) {
		return x.lock.Value(key)
	}
	return x.Context.Value(key)
}
