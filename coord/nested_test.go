package coord_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

func TestDoNested_RunsUnderTheLockThatTheContextCarries(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		depth := 0
		var down func(ctx context.Context, l coord.Lock) error
		var first coord.Fence
		down = func(ctx context.Context, l coord.Lock) error {
			if depth++; depth == 1 {
				first = l.Fence()
			}
			if l.Fence() != first {
				t.Errorf("depth %d: another lock", depth)
			}
			every(t, ctx, c) // Lock and the like do not nest
			if depth < 4 {
				return c.DoNested(ctx, "k", down)
			}
			return ctx.Err()
		}
		if err := c.DoNested(t.Context(), "k", down); err != nil || depth != 4 { // like Do
			t.Error(err, depth)
		}
		free(t, c, "k")
		l := lock(t, c, "k")
		depth = 0
		if err := c.DoNested(l.Context(), "k", down); err != nil || depth != 4 {
			t.Error(err, depth)
		}
		if _, err := c.TryLock(t.Context(), "k"); !errors.Is(err, coord.ErrLocked) {
			t.Errorf("the outer lock is still held: %v", err)
		}
		other := errors.New("fn's")
		if err := c.DoNested(l.Context(), "k", func(context.Context, coord.Lock) error { return other }); err != other {
			t.Error(err)
		}
		unlock(t, l)
		free(t, c, "k")
	})
}

// Goroutines that share a context take turns, at each depth; one that has waited in vain gets
// ErrHeld.
func TestDoNested_GoroutinesExcludeEachOther(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		err := c.DoAll(t.Context(), []string{"k", "other"}, func(ctx context.Context, _ coord.Locks) error {
			var running, ran atomic.Int32
			each := func(context.Context, coord.Lock) error {
				if running.Add(1) != 1 {
					t.Error("two at once")
				}
				time.Sleep(time.Millisecond)
				running.Add(-1)
				ran.Add(1)
				return nil
			}
			several := func(ctx context.Context) {
				var work sync.WaitGroup
				for range 10 {
					work.Go(func() {
						if err := c.DoNested(ctx, "k", each); err != nil {
							t.Error(err)
						}
					})
				}
				work.Wait()
			}
			several(ctx)
			err := c.DoNested(ctx, "k", func(inner context.Context, _ coord.Lock) error {
				several(inner)
				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				err := c.DoNested(short, "k", each) // with the outer context: it waits for this function
				if !errors.Is(err, coord.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				return nil
			})
			if ran.Load() != 20 {
				t.Errorf("%d ran", ran.Load())
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestDoNested_TheOuterLockEnds(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		f := &faulty{Arbiter: a}
		c := start(t, f, nil)
		l := lock(t, c, "k")
		held := l.Context()
		err := c.DoNested(held, "k", func(ctx context.Context, _ coord.Lock) error {
			f.set(func(string) fault { return fault{lost: true} })
			<-ctx.Done()
			f.set(nil)
			return nil
		})
		if !errors.Is(err, coord.ErrLost) {
			t.Error(err)
		}
		if err := c.DoNested(held, "k", nil); !errors.Is(err, coord.ErrLost) {
			t.Errorf("with the context of a lost lock: %v", err)
		}
		time.Sleep(time.Minute)
		again := lock(t, c, "k")
		err = c.DoNested(again.Context(), "k", func(context.Context, coord.Lock) error { return again.Unlock() })
		if !errors.Is(err, coord.ErrUnlocked) {
			t.Error(err)
		}
		// A lock that is over is not nested in: this one is locked anew.
		ran := false
		err = c.DoNested(context.WithoutCancel(held), "k", func(_ context.Context, l coord.Lock) error {
			ran = l.Fence() > again.Fence()
			return nil
		})
		if err != nil || !ran {
			t.Error(err, ran)
		}
	})
}

// Reads nest in reads and in writes, and a write does not nest in a read.
func TestRDoNested(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		ran := 0
		read := func(ctx context.Context, want coord.Fence) {
			t.Helper()
			err := c.RDoNested(ctx, "k", func(_ context.Context, token coord.Fence) error {
				if ran++; token == 0 || want != 0 && token != want {
					t.Errorf("token %v, want %v", token, want)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		read(t.Context(), 0)
		err := c.RDo(t.Context(), "k", func(ctx context.Context, l coord.ReadLock) error {
			read(ctx, l.Fence())
			_ = c.RDoNested(ctx, "k", func(ctx context.Context, _ coord.Fence) error {
				read(ctx, l.Fence())
				return nil
			})
			if err := c.DoNested(ctx, "k", func(context.Context, coord.Lock) error { return nil }); !errors.Is(err, coord.ErrHeld) {
				t.Errorf("writing under a read lock: %v", err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		err = c.Do(t.Context(), "k", func(ctx context.Context, l coord.Lock) error {
			read(ctx, l.Fence())
			return c.DoNested(ctx, "k", func(ctx context.Context, _ coord.Lock) error {
				read(ctx, l.Fence())
				return nil
			})
		})
		if err != nil {
			t.Error(err)
		}
		if ran != 5 {
			t.Errorf("%d functions ran", ran)
		}
		r := rlock(t, c, "k")
		ctx := r.Context()
		err = c.RDoNested(ctx, "k", func(context.Context, coord.Fence) error { return r.Unlock() })
		if !errors.Is(err, coord.ErrUnlocked) {
			t.Errorf("the outer lock has ended: %v", err)
		}
		unlock(t, lock(t, c, "k"))
	})
}

// Readers that nest in one read lock run at the same time.
func TestRDoNested_Together(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		err := c.RDo(t.Context(), "k", func(ctx context.Context, _ coord.ReadLock) error {
			var all, inside sync.WaitGroup
			inside.Add(2)
			for range 2 {
				all.Go(func() {
					_ = c.RDoNested(ctx, "k", func(context.Context, coord.Fence) error {
						inside.Done()
						inside.Wait()
						return nil
					})
				})
			}
			all.Wait()
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
