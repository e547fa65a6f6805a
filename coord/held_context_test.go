package coord_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// refused checks that an error says that the caller holds the key.
func refused(t *testing.T, what string, err error) {
	t.Helper()
	w, ok := errors.AsType[*coord.WaitError](err)
	if !errors.Is(err, coord.ErrHeld) || errors.Is(err, coord.ErrLocked) || !ok || w.Key != "k" || !strings.Contains(err.Error(), `"k"`) {
		t.Errorf("%s: %v", what, err)
	}
}

// every calls whatever takes a lock of the key with ctx.
func every(t *testing.T, ctx context.Context, c *coord.Coordinator) {
	t.Helper()
	never := func(context.Context, coord.Lock) error { t.Error("two holders (I1)"); return nil }
	began := time.Now()
	_, err := c.Lock(ctx, "k")
	refused(t, "Lock", err)
	_, err = c.TryLock(ctx, "k")
	refused(t, "TryLock", err)
	refused(t, "Do", c.Do(ctx, "k", never))
	_, err = coord.Share(ctx, c, "k", nil, func(context.Context, coord.Fence) (int, error) { t.Error("fn has run"); return 0, nil })
	refused(t, "Share", err)
	if waited := time.Since(began); waited > time.Second { // of virtual time it is none
		t.Errorf("it took %v", waited)
	}
}

// nested holds the key and calls whatever would wait for it.
func nested(t *testing.T, c *coord.Coordinator) {
	t.Helper()
	err := c.Do(context.Background(), "k", func(ctx context.Context, l coord.Lock) error {
		every(t, ctx, c)
		every(t, l.Context(), c)
		derived, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Hour)
		defer cancel()
		every(t, derived, c)
		return c.Do(ctx, "other", func(ctx context.Context, l coord.Lock) error { // the key is held further out
			every(t, ctx, c)
			every(t, l.Context(), c)
			return ctx.Err()
		})
	})
	if err != nil {
		t.Error(err)
	}
	unlock(t, lock(t, c, "k"))
}

func TestDo_InsideDoOfTheSameKeyIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		nested(t, start(t, a, nil))
		nested(t, start(t, a, &coord.Options{Trace: &coord.Trace{Granted: func(context.Context, coord.GrantInfo) {}}}))
	})
}

func TestDo_InsideDoOfTheSameKeyIsAnErrorInACluster(t *testing.T) {
	t.Parallel()
	a := fallback.NewMemory()
	one, two := join(t, a, unhurried()), join(t, a, unhurried())
	settled(t, 61, one, two)
	nested(t, one) // one of them owns the key
	nested(t, two)
}

func TestLock_OnlyWhatIsHeldIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		other := start(t, a, &coord.Options{Namespace: "other"})
		l := lock(t, c, "k")
		held := l.Context()
		every(t, held, c)
		free, err := other.Lock(held, "k") // another namespace
		if err != nil {
			t.Fatal(err)
		}
		unlock(t, free)
		unlock(t, l)
		again, err := c.Lock(context.WithoutCancel(held), "k") // the lock is over, and its context with it
		if err != nil {
			t.Fatal(err)
		}
		// The next holder is another caller: the stale context waits, and the zero Lock carries
		// nothing.
		for _, ctx := range []context.Context{context.WithoutCancel(held), context.WithoutCancel((coord.Lock{}).Context())} {
			if _, err := c.TryLock(ctx, "k"); !errors.Is(err, coord.ErrLocked) || errors.Is(err, coord.ErrHeld) {
				t.Errorf("with the context of a lock that is over: %v", err)
			}
		}
		unlock(t, again)
	})
}

func TestLock_ALostLockIsNotHeld(t *testing.T) {
	takes.Seconds(t)
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		f := &faulty{Arbiter: a}
		c := start(t, f, nil)
		l := lock(t, c, "k")
		held := l.Context()
		f.set(func(string) fault { return fault{lost: true} })
		<-held.Done()
		f.set(nil)
		time.Sleep(time.Minute)
		again, err := c.Lock(context.WithoutCancel(held), "k")
		if err != nil {
			t.Fatal(err)
		}
		unlock(t, again)
		if err := l.Unlock(); !errors.Is(err, coord.ErrLost) {
			t.Error(err)
		}
	})
}

// A context of Do ends with all that it hangs on, also if it is first asked when that is over.
func TestDo_ContextEndsWithCallerAndLock(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		why := errors.New("why")
		for _, asked := range []bool{true, false} {
			outer, cancel := context.WithCancelCause(context.WithValue(t.Context(), contextKey{}, "v"))
			var after context.Context
			err := c.Do(outer, "k", func(ctx context.Context, l coord.Lock) error {
				if asked && ctx.Err() != nil {
					t.Error(ctx.Err())
				}
				cancel(why)
				if asked {
					<-ctx.Done()
				}
				if !errors.Is(ctx.Err(), context.Canceled) || context.Cause(ctx) != why || ctx.Value(contextKey{}) != "v" || l.Context().Err() != nil {
					t.Errorf("asked %v: %v, cause %v, lock %v", asked, ctx.Err(), context.Cause(ctx), l.Context().Err())
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			err = c.Do(t.Context(), "k", func(ctx context.Context, l coord.Lock) error {
				if after = ctx; asked {
					_ = ctx.Err()
					_ = l.Context()
				}
				return l.Unlock()
			})
			if err != nil || context.Cause(after) != coord.ErrUnlocked {
				t.Errorf("asked %v: %v, %v", asked, err, context.Cause(after))
			}
		}
	})
}

// watched is a context of the caller's that counts the calls of its methods. Its channel is its own
// if it has one.
type watched struct {
	context.Context
	done  chan struct{}
	calls atomic.Int32
}

func (w *watched) Value(key any) any { w.calls.Add(1); return w.Context.Value(key) }
func (w *watched) Err() error        { w.calls.Add(1); return w.Context.Err() }
func (w *watched) Done() <-chan struct{} {
	w.calls.Add(1)
	if w.done != nil {
		return w.done
	}
	return w.Context.Done()
}

// A lock is lost under a partition's mutex: no code of the caller's may run then. It may ask for
// something that needs the mutex.
func TestContext_ALossRunsNoCodeOfTheCallers(t *testing.T) {
	takes.Seconds(t)
	type then = func(ctx, of context.Context) error
	kinds := map[string]func(ctx context.Context, c *coord.Coordinator, fn then) error{
		"Do": func(ctx context.Context, c *coord.Coordinator, fn then) error {
			return c.Do(ctx, "k", func(ctx context.Context, l coord.Lock) error { return fn(ctx, l.Context()) })
		},
		"RDo": func(ctx context.Context, c *coord.Coordinator, fn then) error {
			return c.RDo(ctx, "k", func(ctx context.Context, l coord.ReadLock) error { return fn(ctx, l.Context()) })
		},
		"DoClaims": func(ctx context.Context, c *coord.Coordinator, fn then) error {
			claims := append(coord.ForReading("k"), coord.ForWriting("l")...)
			return c.DoClaims(ctx, claims, func(ctx context.Context, s coord.Claimed) error { return fn(ctx, s.Of("l").Context()) })
		},
	}
	for name, do := range kinds {
		for _, done := range []chan struct{}{nil, make(chan struct{})} { // nil: that of package context
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				net := &faulty{Arbiter: a}
				c := start(t, net, nil)
				inner, cancel := context.WithCancel(context.Background())
				defer cancel()
				caller := &watched{Context: inner}
				if done != nil {
					caller.done = make(chan struct{})
				}
				err := do(caller, c, func(ctx, of context.Context) error {
					derived, cancel := context.WithCancel(ctx)
					defer cancel()
					<-after(of.Done(), ctx.Done(), derived.Done()) // none has ended
					net.cut()
					caller.calls.Store(0)
					time.Sleep(9 * time.Second) // T - M after the last renewal, at the latest
					synctest.Wait()
					if n := caller.calls.Load(); n != 0 {
						t.Errorf("%s: the caller's context was asked %d times", name, n)
					}
					for _, ctx := range []context.Context{ctx, derived, of} {
						if !errors.Is(context.Cause(ctx), coord.ErrLost) {
							t.Errorf("cause %v", context.Cause(ctx))
						}
					}
					net.mend()
					return nil
				})
				if !errors.Is(err, coord.ErrLost) {
					t.Error(err)
				}
				time.Sleep(time.Minute)
			})
		}
	}
}

// after returns a channel that is closed once none of the others is.
func after(channels ...<-chan struct{}) <-chan struct{} {
	open := make(chan struct{})
	for _, c := range channels {
		select {
		case <-c:
			return nil
		default:
		}
	}
	close(open)
	return open
}

// The part of a lock's context that can end is made on demand; its cause is then the reason for the
// lock's end.
func TestContext_AskedLate(t *testing.T) {
	takes.Seconds(t)
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		c := start(t, net, nil)
		l, lost, early := lock(t, c, "k"), lock(t, c, "lost"), lock(t, c, "early")
		ctx, of, before := l.Context(), lost.Context(), early.Context()
		if ctx.Err() != nil || before.Err() != nil || ctx != l.Context() {
			t.Error(ctx.Err(), before.Err())
		}
		unlock(t, l)
		if again := lock(t, c, "k"); context.Cause(ctx) != coord.ErrUnlocked || again.Context() == ctx || again.Context().Err() != nil {
			t.Errorf("cause %v after Unlock, %v of the next lock", context.Cause(ctx), again.Context().Err())
		} else {
			unlock(t, again)
		}
		net.cut()
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if !errors.Is(context.Cause(before), coord.ErrLost) {
			t.Errorf("cause %v", context.Cause(before))
		}
		for _, l := range []coord.Lock{lost, early} {
			if err := l.Unlock(); !errors.Is(err, coord.ErrLost) {
				t.Error(err)
			}
		}
		for _, ctx := range []context.Context{of, before, lost.Context()} { // the first is asked for the first time
			if !errors.Is(context.Cause(ctx), coord.ErrLost) {
				t.Errorf("after Unlock: cause %v", context.Cause(ctx))
			}
		}
		net.mend()
		time.Sleep(time.Minute)
	})
}

// A context of the caller's that package context does not know ends that of Do, too.
func TestDo_AContextOfAnotherKind(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		why := errors.New("why")
		inner, cancel := context.WithCancelCause(context.Background())
		caller := &watched{Context: inner, done: make(chan struct{})}
		err := c.Do(caller, "k", func(ctx context.Context, _ coord.Lock) error {
			if ctx.Err() != nil {
				t.Error(ctx.Err())
			}
			done := ctx.Done()
			cancel(why)
			close(caller.done)
			<-done
			return context.Cause(ctx)
		})
		if !errors.Is(err, why) {
			t.Error(err)
		}
	})
}
