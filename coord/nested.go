package coord

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/held"
)

// DoNested is Do for functions that may be called with the key locked already, or not. If ctx
// carries a lock of the key that is in force, see [ErrHeld], fn runs under that lock; otherwise
// DoNested is [Coordinator.Do]. Goroutines that share a context exclude each other in DoNested: it
// waits its turn until ctx ends. Within fn, calls have to use fn's context: with the outer one they
// wait for fn. It ends with ctx, with the lock, and when fn returns.
//
// Under a lock of the key for reading it returns [ErrHeld].
//
// An outer lock stays locked when fn has returned. If it ended before, the error Is [ErrLost] or
// [ErrUnlocked] as well, even if fn returned nil. If it ended before fn began, DoNested goes on as
// if ctx did not carry it.
func (c *Coordinator) DoNested(ctx context.Context, key string, fn func(ctx context.Context, l Lock) error) (err error) {
	if err := ctx.Err(); err != nil {
		return ended(ctx)
	}
	if ran, err := c.nested(ctx, key, fn); ran {
		return err
	}
	return c.Do(ctx, key, fn)
}

// nested calls fn under a lock of the key that ctx carries and that is in force. It reports false
// if there is none, or none any more.
func (c *Coordinator) nested(ctx context.Context, key string, fn func(ctx context.Context, l Lock) error) (ran bool, err error) {
	for {
		x := c.enclosing(ctx, key)
		if x.turns == nil {
			return false, nil
		}
		got := x.await(ctx)
		over := ctx.Err() != nil // perhaps both
		if got && !over && endOf(x.ends) == nil {
			return true, x.run(ctx, fn)
		}
		if got {
			<-x.turns
		}
		if over {
			return true, &WaitError{Key: key, Reason: ErrHeld, Ended: ended(ctx)}
		}
	}
}

// RDoNested calls fn with the key locked for reading, for functions that may be called with the key
// locked already, or not. If ctx carries a lock of the key that is in force, for reading or for
// writing, fn runs under that lock; otherwise it runs as in [Coordinator.RDo]. Under a lock for
// reading functions run at the same time; under one for writing they take turns with those of
// [Coordinator.DoNested]. fn's token is that of the lock.
//
// DoNested under a lock for reading returns [ErrHeld]: a read lock is never made a write lock.
//
// The rules of DoNested for fn's context, for errors and for an outer lock that ends hold here,
// too.
func (c *Coordinator) RDoNested(ctx context.Context, key string, fn func(ctx context.Context, token Fence) error) (err error) {
	if err := ctx.Err(); err != nil {
		return ended(ctx)
	}
	if l, ends := c.enclosingReader(ctx, key); l.seat != nil {
		inner, end := held.Under(before(ctx), ends...)
		defer end(ErrUnlocked)
		err = fn(inner, l.Fence())
		return joined(err, endOf(ends))
	}
	ran, err := c.nested(ctx, key, func(ctx context.Context, l Lock) error { return fn(ctx, l.Fence()) })
	if ran {
		return err
	}
	return c.RDo(ctx, key, func(ctx context.Context, l ReadLock) error { return fn(ctx, l.Fence()) })
}

// enclosingReader returns the innermost read lock of the key that ctx carries and that is in force,
// the zero one if there is none. It also returns the contexts that end its use.
func (c *Coordinator) enclosingReader(ctx context.Context, key string) (ReadLock, []context.Context) {
	for first := ctx; ; {
		h, ok := ctx.Value(heldKey).(holder)
		if !ok {
			return ReadLock{}, nil
		}
		own, by := unlent(h)
		_, ctx = h.Held()
		if v, ok := own.(*readValues); ok && v.l.seat.x.id.key == key && v.l.seat.x.c == c && v.l.holds() {
			if endOf(by) == nil {
				return v.l, append([]context.Context{v.l.Context()}, by...)
			}
			ctx = first // as in enclosing
		}
	}
}

// A nest is a lock that a function can run under.
type nest struct {
	l     Lock
	turns chan struct{}     // capacity 1: those that nest in it take turns by it. Nil: there is no such lock
	ends  []context.Context // when one of them ends, no function can run under it; the first one is the lock's own
}

// enclosing returns the innermost lock of the key that ctx carries and that is in force.
func (c *Coordinator) enclosing(ctx context.Context, key string) nest {
	for first := ctx; ; {
		h, ok := ctx.Value(heldKey).(holder)
		if !ok {
			return nest{}
		}
		l, outer := h.Held()
		if l.key == key && l.t != nil && l.p.c == c {
			x := nest{l: l}
			own, by := unlent(h)
			if n, ok := own.(*nestedContext); ok {
				x.turns, x.ends = n.turns, append(slices.Clip(n.ends), by...)
			} else if x.turns = l.turns(); x.turns != nil {
				x.ends = append([]context.Context{l.Context()}, by...)
			}
			if x.turns != nil && endOf(x.ends) == nil {
				return x
			}
			if endOf(by) != nil { // the caller that lent it has just left: another one may lend it
				ctx = first
				continue
			}
		}
		ctx = outer
	}
}

// await waits for the turn, until the context or the lock ends, and reports whether the caller has
// got it.
func (x nest) await(ctx context.Context) bool {
	select {
	case x.turns <- struct{}{}: // as a rule
		return true
	default:
	}
	select {
	case x.turns <- struct{}{}:
		return true
	case <-ctx.Done():
	case <-x.ends[0].Done():
	}
	return false
}

// run runs a function under the lock. The caller has the turn, and has given it back afterwards.
func (x nest) run(ctx context.Context, fn func(ctx context.Context, l Lock) error) error {
	defer func() { <-x.turns }()
	turn, over := context.WithCancelCause(context.Background()) // functions nested in this one have the lock as long as it has the turn
	defer over(ErrUnlocked)
	inner, end := held.Under(&nestedContext{before(ctx), nest{x.l, make(chan struct{}, 1), append(slices.Clip(x.ends), turn)}}, x.ends...)
	defer end(ErrUnlocked)
	err := fn(inner, x.l)
	return joined(err, endOf(x.ends))
}

// joined returns a function's error, with the cause of the end of the lock that it ran under, nil
// if that has not ended.
func joined(err, cause error) error {
	if cause == nil {
		return err
	}
	return errors.Join(err, cause)
}

// endOf returns the cause of the first of the contexts that has ended, nil if none has.
func endOf(all []context.Context) error {
	for _, ctx := range all {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// nesting is the context of a lock that others nest in.
type nesting struct {
	context.Context
	turns chan struct{} // capacity 1
}

// turns returns the channel for the turns of functions that nest in the lock itself, nil if it is
// not in force.
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

// nestedContext has the values of the context that DoNested gives to a function under a lock that
// its caller holds.
type nestedContext struct {
	context.Context
	nest
}

func (n *nestedContext) Held() (Lock, context.Context) { return n.l, n.Context }

func (n *nestedContext) Value(key any) any {
	if key == heldKey {
		return n
	}
	return n.Context.Value(key)
}

// A holder is a context's answer for [held.Key]: a lock that the caller holds, and the context
// around it, which may carry more locks. Package middleware has an implementation of its own.
type holder interface {
	Held() (l Lock, outer context.Context)
}

// heldBy reports whether ctx carries a lock of the key that is in force. A caller that waits for
// the key would wait for itself. It may call the user's code, so no mutex may be held.
func (c *Coordinator) heldBy(ctx context.Context, key string) bool {
	held, _ := c.carries(ctx, key)
	return held
}

// carries is heldBy. Where that is false it reports as well whether ctx carries any lock, or may do
// so later, as that of a flight of Share.
func (c *Coordinator) carries(ctx context.Context, key string) (held, any bool) {
	for first := ctx; ; {
		h, ok := ctx.Value(heldKey).(holder)
		if !ok {
			return false, any || c.opts.DeadlockAfter > 0 && crewOf(first) != nil
		}
		l, outer := h.Held()
		if any = true; l.t != nil && l.p.c == c && (l.key == key || fallback.IsName(l.key) && namedKey(l.key) == key) && l.holds() {
			return true, true
		}
		ctx = outer
	}
}
