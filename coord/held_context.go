package coord

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/held"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// lockValues is the parent of the context that ends with a lock: the values of the context that
// Lock was called with, and the lock. That of Do also ends with the caller's context.
//
// The child is ended under a partition's mutex, where no code of the user's may run. Package
// context then asks the parent for the context that ends it, to take the child off that one. The
// caller's context is asked beforehand, and its answers are kept.
type lockValues struct {
	l    Lock
	done <-chan struct{} // closed when the caller's context ends; nil: that does not end the child
	ends any             // the answer of the caller's context for endKey
}

func (*lockValues) Deadline() (time.Time, bool)     { return time.Time{}, false }
func (v *lockValues) Done() <-chan struct{}         { return v.done }
func (v *lockValues) Held() (Lock, context.Context) { return v.l, v.l.ctx }

// Err is asked once done is closed.
func (v *lockValues) Err() error {
	if v.done == nil {
		return nil
	}
	return v.l.ctx.Err()
}

func (v *lockValues) Value(key any) any {
	switch key {
	case held.Key{}:
		return v
	case endKey:
		return v.ends
	}
	return v.l.ctx.Value(key)
}

// askedContext is a context that was asked beforehand for the one that ends it. So a child of it
// can be ended under a mutex: see lockValues.
type askedContext struct {
	context.Context
	done <-chan struct{}
	ends any
}

// before asks a context for the one that ends it.
func before(ctx context.Context) *askedContext {
	return &askedContext{ctx, ctx.Done(), ctx.Value(endKey)}
}

func (x *askedContext) Done() <-chan struct{} { return x.done }

func (x *askedContext) Value(key any) any {
	if key == endKey {
		return x.ends
	}
	return x.Context.Value(key)
}

// carrying is an askedContext that carries locks.
type carrying struct {
	askedContext
	locks any // its answer for held.Key; nil: the context's answer
}

// carry returns the parent of a context that ends with the caller's, and can be ended under a
// mutex.
func carry(ctx context.Context, locks any) *carrying { return &carrying{*before(ctx), locks} }

func (x *carrying) Value(key any) any {
	if key == heldKey && x.locks != nil {
		return x.locks
	}
	return x.askedContext.Value(key)
}

// endKey is the key that package context asks a context for, to find the one that ends it.
var endKey = func() any {
	var n keyNote
	_ = context.Cause(&n)
	return n.key
}()

// keyNote is a context that has ended, and notes the key that it is asked for.
type keyNote struct {
	context.Context
	key any
}

func (*keyNote) Err() error          { return context.Canceled }
func (n *keyNote) Value(key any) any { n.key = key; return nil }

// Context returns a context that lasts as long as the lock: it ends when the lock is unlocked (its
// cause is then [ErrUnlocked]) or lost (its cause Is [ErrLost], and is a [*LossError]). It has the
// values of the ctx that Lock was called with, but neither its deadline nor its end. It carries the
// lock: see [ErrHeld]. The first call makes it, and the first call of its Done makes the part that
// ends: a lock without these calls pays nothing for a context.
//
// Its Err looks at the clock each time. In a process that was stopped for longer than the lease,
// and goes on, Err says so at once. That may be before Done is closed: ask Err before each write.
func (l Lock) Context() context.Context {
	if l.t == nil {
		return endedContext(context.Background(), ErrUnlocked)
	}
	p, t := l.p, l.t
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !t.Is(l.fence):
		return endedContext(l.ctx, l.cause())
	case t.Context != nil:
		return t.Context.(context.Context)
	case t.Lost() != nil:
		return endedContext(l.ctx, lossOf(t.Lost()))
	}
	s := &section{values: lockValues{l: l}}
	t.Context = s
	return s
}

// endedContext returns a context that has ended.
func endedContext(values context.Context, cause error) context.Context {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(values))
	cancel(cause)
	return ctx
}

// section is the context of a lock. It ends with that; the one that Do gives to its function ends
// with the caller's context as well. The part that can end is made when Done is first called: it
// costs several times as much as the lock.
type section struct {
	values lockValues // the caller's values, and the lock

	mu   sync.Mutex // protects the fields below; locked before the partition's
	live context.Context
	over bool // Do has returned

	follows bool // it ends with the caller's context; not changed
}

// Deadline is the caller's, if the context ends with that.
func (s *section) Deadline() (time.Time, bool) {
	if !s.follows {
		return time.Time{}, false
	}
	return s.values.l.ctx.Deadline()
}

func (s *section) Done() <-chan struct{} { return s.ask().Done() }

// Err looks at the clock each time, and makes nothing if the lock is in force. A process that stood
// still may ask before it has noticed that the lease is over: the end of the context may come after
// the holder's next write. So may that of the caller's context.
func (s *section) Err() error {
	s.mu.Lock()
	live, over := s.live, s.over
	s.mu.Unlock()
	if live != nil && live.Err() != nil {
		return live.Err()
	}
	var caller error
	if !over && s.values.l.holds() {
		if s.follows {
			caller = s.values.l.ctx.Err()
		}
		if caller == nil {
			return nil
		}
	}
	return cmp.Or(s.ask().Err(), caller)
}

// Value goes by way of live once that is there: package context looks there for the context that
// ends this one.
func (s *section) Value(key any) any {
	if key == (held.Key{}) {
		return &s.values
	}
	s.mu.Lock()
	ctx := s.live
	s.mu.Unlock()
	if ctx == nil {
		return s.values.l.ctx.Value(key)
	}
	return ctx.Value(key)
}

// ask returns the context that ends.
func (s *section) ask() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live != nil {
		return s.live
	}
	v := &s.values
	if s.follows && !s.over {
		v.done, v.ends = v.l.ctx.Done(), v.l.ctx.Value(endKey)
	}
	ctx, cancel := context.WithCancelCause(v)
	s.live = ctx
	v.l.endsWith(cancel)
	return ctx
}

// end unlocks. The context ends with the lock.
func (s *section) end() error {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	return s.values.l.Unlock()
}

// clocked is the context of a lock that can end from the start. Its Err looks at the clock, as a
// section's does, and asks the caller's context.
type clocked struct {
	context.Context
	by     lapser
	caller context.Context         // that ends it as well; nil: none does
	end    context.CancelCauseFunc // ends it
}

// A lapser ends locks that are not in force by the clock.
type lapser interface{ endIfLapsed() }

func (c *clocked) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	c.by.endIfLapsed()
	if err := c.Context.Err(); err != nil || c.caller == nil {
		return err
	}
	err := c.caller.Err()
	if errors.Is(err, context.Canceled) {
		c.end(context.Cause(c.caller))
	}
	return err // that its deadline has passed ends this one, too, a moment later
}

// endsWith calls cancel with the cause when the lock ends, or now if it has ended. Cancel must run
// no code of the user's.
func (l Lock) endsWith(cancel context.CancelCauseFunc) {
	var a after
	p, t := l.p, l.t
	now := p.lock()
	switch p.TurnState(t, l.fence, now, &a.Effects) {
	case lease.TurnUnlocked:
		cancel(l.cause())
	case lease.TurnLost:
		cancel(lossOf(t.Lost()))
	default:
		t.OnEnd(cancel)
	}
	p.unlock(&a)
	a.do(p.c)
}

// cause returns why a lock has ended that was unlocked, perhaps after it was lost. The partition's
// mutex is held.
func (l Lock) cause() error {
	if loss := l.t.Lost(); loss != nil && loss.Fence == l.fence {
		return lossOf(loss)
	}
	return ErrUnlocked
}
