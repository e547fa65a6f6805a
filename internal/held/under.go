package held

import "context"

// under is a context that ends with the one around it, and with that of a lock.
type under struct {
	context.Context // ends with one of the two, perhaps a moment later, by a goroutine
	outer, lock     context.Context
	cancel          context.CancelCauseFunc
}

// Under returns a context that ends with outer, and with lock, with the cause of the one that ends
// first; and with end. Its Err asks both each time, as the context of a lock looks at the clock: what
// it says is true now, before each write.
func Under(outer, lock context.Context) (ctx context.Context, end context.CancelCauseFunc) {
	live, cancel := context.WithCancelCause(outer)
	stop := context.AfterFunc(lock, func() { cancel(context.Cause(lock)) })
	return &under{live, outer, lock, cancel}, func(cause error) {
		stop()
		cancel(cause)
	}
}

func (u *under) Err() error {
	if u.Context.Err() == nil {
		for _, of := range []context.Context{u.outer, u.lock} {
			if of.Err() != nil {
				u.cancel(context.Cause(of))
			}
		}
	}
	return u.Context.Err()
}
