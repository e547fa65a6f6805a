package coord

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/held"
)

// DoNested is Do for functions that may be called with the key locked already, or not. If ctx carries a
// lock of the key that is in force, see [ErrHeld], fn runs under that lock; otherwise DoNested is
// [Coordinator.Do]. Goroutines that share a context exclude each other in DoNested: it waits its turn
// until ctx ends. Within fn, calls have to use fn's context: with the outer one they wait for fn.
//
// Under a lock of the key for reading it returns [ErrHeld].
//
// An outer lock stays locked when fn has returned. If it ended before, the error Is [ErrLost] or
// [ErrUnlocked] as well, even if fn returned nil.
func (c *Coordinator) DoNested(ctx context.Context, key string, fn func(ctx context.Context, l Lock) error) (err error) {
	if err := ctx.Err(); err != nil {
		return ended(ctx)
	}
	l, turns := c.enclosing(ctx, key)
	if turns == nil {
		return c.Do(ctx, key, fn)
	}
	select {
	case turns <- struct{}{}:
	case <-ctx.Done():
		return &WaitError{Key: key, Reason: ErrHeld, Ended: ended(ctx)}
	}
	defer func() { <-turns }()
	err = fn(&nestedContext{ctx, l, make(chan struct{}, 1)}, l)
	if l.holds() {
		return err
	}
	return errors.Join(err, context.Cause(l.Context()))
}

// RDoNested calls fn with the key locked for reading, for functions that may be called with the key
// locked already, or not. If ctx carries a lock of the key that is in force, for reading or for
// writing, fn runs under that lock; otherwise it runs as in [Coordinator.RDo]. Under a lock for
// reading functions run at the same time; under one for writing they take turns with those of
// [Coordinator.DoNested]. fn's token is that of the lock.
//
// DoNested under a lock for reading returns [ErrHeld]: a read lock is never made a write lock.
//
// What is said of errors and of an outer lock that ends there holds here, too.
func (c *Coordinator) RDoNested(ctx context.Context, key string, fn func(ctx context.Context, token Fence) error) (err error) {
	if err := ctx.Err(); err != nil {
		return ended(ctx)
	}
	if l := c.enclosingReader(ctx, key); l.seat != nil {
		err = fn(ctx, l.Fence())
		if l.holds() {
			return err
		}
		return errors.Join(err, context.Cause(l.Context()))
	}
	if _, turns := c.enclosing(ctx, key); turns != nil {
		return c.DoNested(ctx, key, func(ctx context.Context, l Lock) error { return fn(ctx, l.Fence()) })
	}
	return c.RDo(ctx, key, func(ctx context.Context, l ReadLock) error { return fn(ctx, l.Fence()) })
}

// enclosingReader returns the innermost read lock of the key that ctx carries and that is in force, the zero one if there is none.
func (c *Coordinator) enclosingReader(ctx context.Context, key string) ReadLock {
	for {
		h, ok := ctx.Value(held.Key{}).(holder)
		if !ok {
			return ReadLock{}
		}
		if v, ok := h.(*readValues); ok && v.l.seat.x.id.key == key && v.l.seat.x.c == c && v.l.holds() {
			return v.l
		}
		_, ctx = h.Held()
	}
}

// enclosing returns the innermost lock of the key that ctx carries, if it is in force, and what those that
// nest in it take turns by: a channel of capacity 1. It is nil if there is no such lock.
func (c *Coordinator) enclosing(ctx context.Context, key string) (Lock, chan struct{}) {
	for {
		h, ok := ctx.Value(held.Key{}).(holder)
		if !ok {
			return Lock{}, nil
		}
		l, outer := h.Held()
		if l.key == key && l.t != nil && l.p.c == c {
			n, ok := h.(*nestedContext)
			if !ok {
				return l, l.turns()
			}
			if l.holds() {
				return l, n.turns
			}
		}
		ctx = outer
	}
}

// nesting is the context of a lock that others nest in.
type nesting struct {
	context.Context
	turns chan struct{} // capacity 1
}

// turns returns what the functions take turns by that nest in the lock itself, nil if it is not in force.
func (l Lock) turns() chan struct{} {
	ctx := l.Context() // which the turn keeps as long as it runs
	if ctx.Err() != nil {
		return nil
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if n, ok := l.t.Context.(*nesting); ok && (n == ctx || n.Context == ctx) { // another goroutine may just have made it of ctx
		return n.turns
	}
	if l.t.Context != ctx {
		return nil
	}
	n := &nesting{ctx, make(chan struct{}, 1)}
	l.t.Context = n
	return n.turns
}

// nestedContext is the context that DoNested gives to a function under a lock that its caller holds.
type nestedContext struct {
	context.Context
	l     Lock
	turns chan struct{} // capacity 1
}

func (n *nestedContext) Held() (Lock, context.Context) { return n.l, n.Context }

func (n *nestedContext) Value(key any) any {
	if key == (held.Key{}) {
		return n
	}
	return n.Context.Value(key)
}

// A holder is what a context answers for [held.Key]: a lock that the caller holds, and the context around it, which may
// carry more locks. Package middleware has an implementation of its own.
type holder interface {
	Held() (l Lock, outer context.Context)
}

// heldBy reports whether ctx carries a lock of the key that is in force. A caller that waits for the key would wait for
// itself. It may call the user's code, so no mutex may be held.
func (c *Coordinator) heldBy(ctx context.Context, key string) bool {
	held, _ := c.carries(ctx, key)
	return held
}

// carries is heldBy. Where that is false it reports as well whether ctx carries any lock.
func (c *Coordinator) carries(ctx context.Context, key string) (held, any bool) {
	for {
		h, ok := ctx.Value(heldKey).(holder)
		if !ok {
			return false, any
		}
		l, outer := h.Held()
		if any = true; l.t != nil && l.p.c == c && (l.key == key || fallback.IsName(l.key) && namedKey(l.key) == key) && l.holds() {
			return true, true
		}
		ctx = outer
	}
}

var heldKey any = held.Key{}
