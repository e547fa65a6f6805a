package coord_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// section counts the functions that are in a critical section of a key.
type section struct{ n atomic.Int32 }

func (s *section) enter(t *testing.T) {
	t.Helper()
	if s.n.Add(1) != 1 {
		t.Error("two at once")
	}
}

func (s *section) leave() { s.n.Add(-1) }

// pass is a section that takes d.
func (s *section) pass(t *testing.T, d time.Duration) {
	t.Helper()
	s.enter(t)
	time.Sleep(d)
	s.leave()
}

// nests returns a function of DoNested that passes through the section.
func (s *section) nests(t *testing.T, d time.Duration) func(context.Context, coord.Lock) error {
	return func(context.Context, coord.Lock) error { s.pass(t, d); return nil }
}

// A function that has waited for its turn does not run under a lock that has ended meanwhile: it
// waits for one of its own.
func TestDoNested_TheLockEndsDuringTheWait(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		one, two := start(t, a, nil), start(t, a, nil)
		for _, turn := range []bool{true, false} { // whether the turn comes before the other process is done
			ctx := coord.WithLocker(t.Context())
			l, err := one.Lock(ctx, "k")
			if err != nil {
				t.Fatal(err)
			}
			var key section
			inside, proceed := make(chan struct{}), make(chan struct{})
			var work sync.WaitGroup
			work.Go(func() {
				err := one.DoNested(ctx, "k", func(inner context.Context, _ coord.Lock) error {
					close(inside)
					<-proceed
					return nil
				})
				if !errors.Is(err, coord.ErrUnlocked) {
					t.Errorf("the lock has ended: %v", err)
				}
			})
			<-inside
			work.Go(func() {
				err := one.DoNested(ctx, "k", func(_ context.Context, own coord.Lock) error {
					if own.Fence() == l.Fence() {
						t.Error("under the lock that has ended")
					}
					key.pass(t, 0)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			unlock(t, l)
			if turn {
				other := lock(t, two, "k")
				key.enter(t)
				close(proceed)
				synctest.Wait()
				key.leave()
				unlock(t, other)
			} else {
				work.Go(func() { time.Sleep(time.Second); close(proceed) })
			}
			work.Wait()
		}
	})
}

// Turn and end come in one moment, with the context of Do, which ends with the lock: fn does not
// run.
func TestDoNested_TurnAndEndInOneMoment(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		for range 50 { // a select of both chooses one
			_ = c.Do(t.Context(), "k", func(ctx context.Context, l coord.Lock) error {
				err := c.DoNested(&lateEnd{Context: ctx, end: func() { _ = l.Unlock() }}, "k", func(context.Context, coord.Lock) error {
					t.Error("it has run")
					return nil
				})
				if !errors.Is(err, coord.ErrUnlocked) {
					t.Error(err)
				}
				return nil
			})
		}
	})
}

// lateEnd is a context that ends when it is asked for its end, but for the first time.
type lateEnd struct {
	context.Context
	end  func()
	asks int
}

func (x *lateEnd) Done() <-chan struct{} { x.end(); return x.Context.Done() }

func (x *lateEnd) Err() error {
	if x.asks++; x.asks > 1 {
		x.end()
	}
	return x.Context.Err()
}

// An inner lock of the key that has ended does not hide an outer one.
func TestDoNested_TheOuterLockOfTheKey(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		first := lock(t, c, "k")
		over := first.Context()
		unlock(t, first)
		second := lock(t, c, "k")
		ctx := innerLock{second.Context(), context.WithoutCancel(over)}
		err := c.DoNested(ctx, "k", func(_ context.Context, l coord.Lock) error {
			if l.Fence() != second.Fence() {
				t.Error("under another lock")
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		unlock(t, second)
	})
}

// innerLock is a context with the lock of another one within.
type innerLock struct {
	context.Context
	inner context.Context
}

func (x innerLock) Value(key any) any {
	h, ok := x.inner.Value(key).(interface {
		Held() (coord.Lock, context.Context)
	})
	if !ok {
		return x.Context.Value(key)
	}
	l, _ := h.Held()
	return innerHolder{l, x.Context}
}

type innerHolder struct {
	l     coord.Lock
	outer context.Context
}

func (h innerHolder) Held() (coord.Lock, context.Context) { return h.l, h.outer }

// fn's context ends with the lock, also where its caller's does not, as that of a locker; and when
// fn returns.
func TestDoNested_TheContextEnds(t *testing.T) {
	for _, x := range []struct {
		name  string
		reads bool // the lock is for reading
		nest  func(ctx context.Context, c *coord.Coordinator, f func(context.Context)) error
	}{
		{"DoNested", false, func(ctx context.Context, c *coord.Coordinator, f func(context.Context)) error {
			return c.DoNested(ctx, "k", func(ctx context.Context, _ coord.Lock) error { f(ctx); return nil })
		}},
		{"RDoNested under a lock for writing", false, rdoNested},
		{"RDoNested", true, rdoNested},
	} {
		t.Run(x.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				f := &faulty{Arbiter: a}
				c := start(t, f, nil)
				take := func(ctx context.Context) (end func() error) {
					if x.reads {
						r, err := c.RLock(ctx, "k")
						if err != nil {
							t.Fatal(err)
						}
						return r.Unlock
					}
					l, err := c.Lock(ctx, "k")
					if err != nil {
						t.Fatal(err)
					}
					return l.Unlock
				}
				ctx := coord.WithLocker(t.Context())
				end := take(ctx)
				var after context.Context
				ended, cancel := context.WithCancelCause(ctx)
				mine := errors.New("mine")
				if err := x.nest(ended, c, func(ctx context.Context) {
					after = ctx
					if ctx.Err() != nil {
						t.Error(ctx.Err())
					}
					cancel(mine)
					if <-ctx.Done(); context.Cause(ctx) != mine {
						t.Errorf("with the caller's context: %v", context.Cause(ctx))
					}
				}); err != nil {
					t.Error(err)
				}
				if err := x.nest(ctx, c, func(ctx context.Context) { after = ctx }); err != nil {
					t.Error(err)
				}
				if after.Err() == nil {
					t.Error("fn has returned, and its context has not ended")
				}
				if err := x.nest(ctx, c, func(ctx context.Context) {
					if err := end(); err != nil {
						t.Error(err)
					}
					if err := ctx.Err(); err == nil || !errors.Is(context.Cause(ctx), coord.ErrUnlocked) {
						t.Errorf("at once: %v, %v", err, context.Cause(ctx))
					}
				}); !errors.Is(err, coord.ErrUnlocked) {
					t.Error(err)
				}
				end = take(ctx)
				if err := x.nest(ctx, c, func(ctx context.Context) {
					f.cut()
					if <-ctx.Done(); !errors.Is(context.Cause(ctx), coord.ErrLost) {
						t.Error(context.Cause(ctx))
					}
					f.mend()
				}); !errors.Is(err, coord.ErrLost) {
					t.Error(err)
				}
				if err := end(); !errors.Is(err, coord.ErrLost) {
					t.Error(err)
				}
			})
		})
	}
}

func rdoNested(ctx context.Context, c *coord.Coordinator, f func(context.Context)) error {
	return c.RDoNested(ctx, "k", func(ctx context.Context, _ coord.Fence) error { f(ctx); return nil })
}

// A caller that goes on after its DoNested has returned, with a context that does not end, has not
// got that turn any more: it waits for its own.
func TestDoNested_AfterItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		l := lock(t, c, "k")
		var key section
		var inner context.Context
		if err := c.DoNested(l.Context(), "k", func(ctx context.Context, _ coord.Lock) error { inner = ctx; return nil }); err != nil {
			t.Fatal(err)
		}
		var work sync.WaitGroup
		for _, ctx := range []context.Context{l.Context(), context.WithoutCancel(inner)} {
			work.Go(func() {
				if err := c.DoNested(ctx, "k", key.nests(t, time.Second)); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		work.Wait()
		unlock(t, l)
	})
}

// RDoNested has waited for its turn under a lock for writing, and that has ended: it reads beside
// another process's reader.
func TestRDoNested_TheLockEndsDuringTheWait(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		one, two := start(t, a, nil), start(t, a, nil)
		l := lock(t, one, "k")
		ctx := context.WithoutCancel(l.Context())
		inside, proceed := make(chan struct{}), make(chan struct{})
		var work sync.WaitGroup
		work.Go(func() {
			_ = one.DoNested(ctx, "k", func(context.Context, coord.Lock) error {
				close(inside)
				<-proceed
				return nil
			})
		})
		<-inside
		began := time.Now()
		work.Go(func() {
			if err := one.RDoNested(ctx, "k", func(context.Context, coord.Fence) error { return nil }); err != nil {
				t.Error(err)
			}
			if d := time.Since(began); d > time.Minute {
				t.Errorf("it waited for %v", d)
			}
		})
		work.Go(func() {
			r := rlock(t, two, "k")
			time.Sleep(time.Hour)
			runlock(t, r)
		})
		synctest.Wait()
		unlock(t, l)
		close(proceed)
		work.Wait()
	})
}
