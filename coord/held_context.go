package coord

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/held"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// A holder is what a context answers for [held.Key]: a lock that the caller holds, and the context around it, which may
// carry more locks. Package middleware has an implementation of its own.
type holder interface {
	Held() (l Lock, outer context.Context)
}

// heldBy reports whether ctx carries a lock of the key that is in force. A caller that waits for the key would wait for
// itself. It may call the user's code, so no mutex may be held.
func (c *Coordinator) heldBy(ctx context.Context, key string) bool {
	for {
		h, ok := ctx.Value(held.Key{}).(holder)
		if !ok {
			return false
		}
		l, outer := h.Held()
		if l.t != nil && (l.key == key || fallback.IsName(l.key) && namedKey(l.key) == key) && l.p.c == c && l.holds() {
			return true
		}
		ctx = outer
	}
}

// lockValues is the parent of the context of a lock: the values of the context that Lock was called with, and the lock. It
// never ends, so that ending its child under a partition's mutex runs no code of the user's.
type lockValues Lock

func (*lockValues) Deadline() (time.Time, bool)     { return time.Time{}, false }
func (*lockValues) Done() <-chan struct{}           { return nil }
func (*lockValues) Err() error                      { return nil }
func (v *lockValues) Held() (Lock, context.Context) { return Lock(*v), v.ctx }

func (v *lockValues) Value(key any) any {
	if key == (held.Key{}) {
		return v
	}
	return v.ctx.Value(key)
}

// section is the context that Do gives to its function. It ends with the caller's context and with the lock. The context
// that can end is made when Done or Err is first called: it costs several times as much as the lock.
type section struct {
	values lockValues // the caller's values, and the lock
	mu     sync.Mutex // protects what follows; locked before the partition's
	live   context.Context
	stop   func() bool // stops following the caller's context
	over   bool        // Do has returned
}

func (s *section) Deadline() (time.Time, bool) { return time.Time{}, false }
func (s *section) Done() <-chan struct{}       { return s.ask().Done() }
func (s *section) Err() error                  { return s.ask().Err() }

// Value goes by way of live once that is there: package context looks there for what ends this context.
func (s *section) Value(key any) any {
	if key == (held.Key{}) {
		return &s.values
	}
	s.mu.Lock()
	ctx := s.live
	s.mu.Unlock()
	if ctx == nil {
		return s.values.ctx.Value(key)
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
	ctx, cancel := context.WithCancelCause(&s.values)
	s.live = ctx
	outer := s.values.ctx
	switch {
	case outer.Done() == nil || s.over:
	case outer.Err() != nil:
		cancel(context.Cause(outer))
		return ctx
	default:
		s.stop = context.AfterFunc(outer, func() { cancel(context.Cause(outer)) })
	}
	Lock(s.values).endsWith(cancel)
	return ctx
}

// end unlocks. The context ends with the lock.
func (s *section) end() error {
	s.mu.Lock()
	s.over = true
	stop := s.stop
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
	return Lock(s.values).Unlock()
}

// endsWith calls cancel with the cause when the lock ends, or now if it has ended. Cancel must run no code of the user's.
func (l Lock) endsWith(cancel context.CancelCauseFunc) {
	var a after
	p, t := l.p, l.t
	now := p.lock()
	switch p.TurnState(t, l.fence, now, &a.Effects) {
	case lease.TurnUnlocked:
		cancel(ErrUnlocked)
	case lease.TurnLost:
		cancel(lossOf(t.Lost()))
	default:
		t.OnEnd(cancel)
	}
	p.unlock(&a)
	a.do(p.c)
}
