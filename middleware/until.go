package middleware

import (
	"context"
	"sync"

	"github.com/holdfast-go/holdfast/coord"
	locks "github.com/holdfast-go/holdfast/internal/held"
)

// until is the context of a handler that runs with permits, or with a lock for reading. It ends
// with the request's, and when those are lost or given back; but their own context is asked for
// only on request.
type until struct {
	context.Context // the request's
	of              interface{ Context() context.Context }
	c               *coord.Coordinator // of a lock for reading

	mu   sync.Mutex // protects live; not held while another package is called
	live context.Context
}

// ask returns the context that ends.
func (u *until) ask() context.Context {
	u.mu.Lock()
	live := u.live
	u.mu.Unlock()
	if live != nil {
		return live
	}
	ctx, end := locks.Under(u.Context, u.of.Context())
	u.mu.Lock()
	first := u.live == nil
	if first {
		u.live = ctx
	}
	live = u.live
	u.mu.Unlock()
	if !first {
		end(nil)
	}
	return live
}

func (u *until) Done() <-chan struct{} { return u.ask().Done() }

// Err asks the request's context and that of the permits or the lock each time: see Err of held.
func (u *until) Err() error { return u.ask().Err() }

// Value tells package coord of a lock for reading, so that no handler waits for itself. It goes by
// way of live once that is there: package context looks there for the context that ends this one.
func (u *until) Value(key any) any {
	if l, reads := u.of.(coord.ReadLock); reads {
		switch key.(type) {
		case locks.Key:
			return l.Context().Value(key)
		case readKey:
			return u
		}
	}
	u.mu.Lock()
	ctx := u.live
	u.mu.Unlock()
	if ctx == nil {
		ctx = u.Context
	}
	return ctx.Value(key)
}

type readKey struct{}

// ReadLock returns the lock for reading that [Serialize] holds for a request of
// SerializeOptions.Shared, the innermost one; the zero ReadLock, which was unlocked, if there is
// none.
func ReadLock(ctx context.Context) coord.ReadLock {
	u := readBy(ctx)
	if u == nil {
		return coord.ReadLock{}
	}
	l, _ := u.of.(coord.ReadLock)
	return l
}

// readBy returns the innermost context of a lock for reading, nil if there is none.
func readBy(ctx context.Context) *until {
	u, _ := ctx.Value(readKey{}).(*until)
	return u
}
