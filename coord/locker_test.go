package coord_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// Permits of a key are no lock of it, also for a caller with a context that carries them.
func TestPermits_ContextIsNoLock(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		p, err := c.Semaphore("k", 2).Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		l := lock(t, c, "k")
		_, err = c.TryLock(p.Context(), "k")
		if !errors.Is(err, coord.ErrLocked) || errors.Is(err, coord.ErrHeld) {
			t.Error(err)
		}
		unlock(t, l)
		err = c.Semaphore("k", 2).Do(t.Context(), 1, func(ctx context.Context) error {
			l, err := c.Lock(ctx, "k")
			return errors.Join(err, l.Unlock())
		})
		if err := errors.Join(err, p.Release()); err != nil {
			t.Error(err)
		}
	})
}

// A task's locks are carried by its context until they are unlocked.
func TestWithLocker(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		type mark struct{}
		ctx := coord.WithLocker(context.WithValue(t.Context(), mark{}, 1))
		if ctx.Value(mark{}) != 1 {
			t.Error("the values are gone")
		}
		for range 100 {
			l, err := c.Lock(ctx, "k")
			if err != nil {
				t.Fatal(err)
			}
			r, err := c.RLock(ctx, "r")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Lock(ctx, "k"); !errors.Is(err, coord.ErrHeld) {
				t.Error(err)
			}
			if _, err := c.Lock(ctx, "r"); !errors.Is(err, coord.ErrHeld) {
				t.Error(err)
			}
			if err := c.DoNested(ctx, "k", func(_ context.Context, inner coord.Lock) error {
				if inner.Fence() != l.Fence() {
					t.Error("another lock")
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			unlock(t, l)
			runlock(t, r)
		}
		other := lock(t, c, "k")
		if _, err := c.TryLock(ctx, "k"); errors.Is(err, coord.ErrHeld) || !errors.Is(err, coord.ErrLocked) {
			t.Error(err)
		}
		unlock(t, other)
	})
}
