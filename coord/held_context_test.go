package coord_test

import (
	"context"
	"errors"
	"strings"
	"testing"
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
	a := fallback.NewMemory()
	one, two := join(t, a, quick()), join(t, a, quick())
	settle(t, 61, one, two)
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
		// The next holder is another caller: the stale context waits, and the zero Lock carries nothing.
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
