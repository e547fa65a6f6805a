package middleware

import (
	"context"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/coordtest"
)

// outer is a context around a handler's. It is asked where that is made, and where it ends.
type outer struct {
	context.Context
	t     *testing.T
	mu    *sync.Mutex // the handler's
	asked int
}

func (o *outer) Done() <-chan struct{} {
	o.asked++
	if !o.mu.TryLock() {
		o.t.Error("asked with the mutex held")
	} else {
		o.mu.Unlock()
	}
	return o.Context.Done()
}

type silent struct{}

func (silent) unlocked(*held, error) {}
func (silent) ranOn(*held)           {}

// While another package is called, the mutex of a handler's context is free. The loss of a lock may
// end the context that the handler's wraps, with a mutex of package coord held. Giving the lock
// back waits for that mutex.
func TestHeld_CallsOthersWithoutItsMutex(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := coordtest.Start(t, fallback.NewMemory(), nil)
	l, err := c.Lock(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	h := &held{c: c, lock: l, holder: silent{}}
	o := &outer{Context: ctx, t: t, mu: &h.mu}
	h.Context = o
	h.Done()
	made := o.asked
	if h.Err() != nil || made == 0 {
		t.Errorf("%v, asked %d times", h.Err(), made)
	}
	h.end()
	if h.Err() == nil || context.Cause(h) != coord.ErrUnlocked || o.asked == made {
		t.Errorf("%v, %v, asked %d times, %d of them before the end", h.Err(), context.Cause(h), o.asked, made)
	}

	p, err := c.Semaphore("k", 1).Acquire(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	u := &until{of: p}
	o = &outer{Context: ctx, t: t, mu: &u.mu}
	u.Context = o
	if u.Err() != nil || o.asked == 0 {
		t.Errorf("%v, asked %d times", u.Err(), o.asked)
	}
	if err := p.Release(); err != nil || u.Err() == nil {
		t.Errorf("%v, %v", err, u.Err())
	}
}

// late is a context whose time is up; its children do not know yet.
type late struct {
	context.Context
	up bool
}

func (l *late) Err() error {
	if l.up {
		return context.DeadlineExceeded
	}
	return nil
}

// The end of a request's time limit is no cancellation, also before its handler's context has heard
// of it: a client that is there would be taken for one that has gone.
func TestHeld_ErrOfATimeLimit(t *testing.T) {
	c := coordtest.Start(t, fallback.NewMemory(), nil)
	l, err := c.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	request := &late{Context: t.Context()}
	h := &held{Context: request, c: c, lock: l, holder: silent{}}
	h.Done()
	if h.Err() != nil {
		t.Error(h.Err())
	}
	request.up = true
	if err := h.Err(); err != context.DeadlineExceeded || context.Cause(h) != context.DeadlineExceeded || gone(h) {
		t.Errorf("%v, %v, gone: %v", err, context.Cause(h), gone(h))
	}
	h.end()
	if h.Err() == nil {
		t.Error("no end")
	}
}
