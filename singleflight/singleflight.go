// Package singleflight lets concurrent callers that want the same thing share one execution of a
// function. Each of them can leave without disturbing the rest.
//
// One call's journey: [Group.Do] joins the flight of its key, or starts one: a goroutine that runs
// fn with a context of the flight's own. The caller waits for fn's end or for the end of its own
// context, whichever is first. In the latter case it leaves; the others fly on. When the last
// member leaves, the flight is dying: its context is cancelled with [ErrAbandoned] and it is out of
// the group in the same instant. So the next caller starts a new flight and never inherits the
// cancellation. [Group.Join] is the same journey for callers that select for themselves.
//
// golang.org/x/sync/singleflight cannot serve here because a caller cannot leave a
// flight, a flight cannot be cancelled, and it is not generic.
package singleflight

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrAbandoned is the cause of the end of fn's context when all members of its flight have left.
var ErrAbandoned = errors.New("singleflight: all members left")

// Group is a set of flights, at most one per key. The zero value is ready for use. A
// Group must not be copied after first use; its methods are safe for concurrent use.
//
// Keys must equal themselves: a floating-point NaN would never be found again.
type Group[K comparable, V any] struct {
	// Spawn starts a flight's goroutine, in the place of a go statement, for programs that keep
	// goroutines to use them again. Nil: a go statement. It must not call f in its own goroutine,
	// nor wait for f. To be set before the first flight.
	Spawn func(f func())

	mu      sync.Mutex          // protects flights, and members and shared of each flight
	flights map[K]*flight[K, V] // with at least one member, and fn not known to have ended
}

// Join adds one member to key's flight; if there is none it starts one, which runs fn
// in a goroutine of its own. It never blocks. Each member should call Leave once it no
// longer waits; after Done is closed it need not.
//
// The context that fn gets carries the values of ctx (the first member's) but not its
// end. It is cancelled with cause [ErrAbandoned] when all members have left, and without
// a cause of its own after fn has ended. fn should heed it, as nothing else stops
// fn, and must not wait for its own key, as it would wait for itself.
//
// Join never joins a dying flight (one that all members have left): it starts a new
// one, even if the old fn is still running. By the time the new fn starts the context
// of the old one has been cancelled.
func (g *Group[K, V]) Join(ctx context.Context, key K, fn func(context.Context) (V, error)) *Member[K, V] {
	// Nothing else here, so that it is inlined and Do's Member stays off the heap.
	return &Member[K, V]{f: g.join(ctx, key, fn)}
}

func (g *Group[K, V]) join(ctx context.Context, key K, fn func(context.Context) (V, error)) *flight[K, V] {
	g.mu.Lock()
	defer g.mu.Unlock() // deferred: an interface key may hold an unhashable value and panic
	if f, ok := g.flights[key]; ok {
		f.members++
		f.shared = true
		return f
	}
	f := &flight[K, V]{g: g, key: key, members: 1, done: make(chan struct{})}
	f.ctx.values = ctx
	if g.flights == nil {
		g.flights = make(map[K]*flight[K, V])
	}
	g.flights[key] = f
	if g.Spawn != nil {
		g.Spawn(func() { f.run(fn) })
	} else {
		go f.run(fn)
	}
	return f
}

// Do joins key's flight, as [Group.Join] does, and returns its result and whether the
// flight was shared with another member. It blocks until fn or ctx has ended; if both
// have, it prefers the result.
//
// If ctx ends first, Do leaves the flight and returns an error that matches both
// ctx.Err() and context.Cause(ctx). If ctx has ended already, Do neither joins nor
// starts a flight. A panic or Goexit of fn passes through, as in [Member.Result].
func (g *Group[K, V]) Do(ctx context.Context, key K, fn func(context.Context) (V, error)) (v V, shared bool, err error) {
	if ctx.Err() != nil {
		return v, false, endOf(ctx)
	}
	m := g.Join(ctx, key, fn)
	select {
	case <-m.Done():
	case <-ctx.Done():
		select {
		case <-m.Done(): // both were ready, and select had picked at random
		default:
			m.Leave()
			return v, m.Shared(), endOf(ctx)
		}
	}
	v, err = m.Result()
	return v, m.Shared(), err
}

// Len returns the number of flights in progress. A dying flight is not counted, even if
// its fn is still running.
func (g *Group[K, V]) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.flights)
}

// remove takes f out of the group. The caller holds g.mu. A dying flight may end after
// its successor has started, hence the comparison: the key alone is not the flight.
func (g *Group[K, V]) remove(f *flight[K, V]) {
	if g.flights[f.key] == f {
		delete(g.flights, f.key)
	}
}

// endOf returns the reason for ctx's end: a custom cause alone would not match ctx.Err().
func endOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
