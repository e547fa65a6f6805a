package coord_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// TestBehind_ARequestOfADeadSession has a process crash that has some permits, or reads a key.
// Another caller of that process waits for more, or to write. A caller of another process fits
// beside the hold, and comes after the request: it is served when the session is known to be dead,
// and does not ask without a pause until then.
func TestBehind_ARequestOfADeadSession(t *testing.T) {
	type unlock = func() error
	type wants func(ctx context.Context, c *coord.Coordinator) (unlock, error)
	acquiring := func(n int) wants {
		return func(ctx context.Context, c *coord.Coordinator) (unlock, error) {
			p, err := c.Semaphore("k", 100).Acquire(ctx, n)
			return p.Release, err
		}
	}
	reading := func(ctx context.Context, c *coord.Coordinator) (unlock, error) {
		l, err := c.RLock(ctx, "k")
		return l.Unlock, err
	}
	writing := func(ctx context.Context, c *coord.Coordinator) (unlock, error) {
		l, err := c.Lock(ctx, "k")
		return l.Unlock, err
	}
	for name, x := range map[string]struct{ has, more, other wants }{
		"permits": {acquiring(10), acquiring(100), acquiring(5)},
		"readers": {reading, writing, reading},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				dead, live := &faulty{Arbiter: a}, &faulty{Arbiter: a}
				dies, lives := start(t, dead, nil), start(t, live, nil)
				lost, err := x.has(t.Context(), dies)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				go func() { _, _ = x.more(ctx, dies) }()
				synctest.Wait()
				time.Sleep(100 * time.Millisecond) // it is in the arbiter's queue
				dead.set(func(string) fault { return fault{lost: true} })
				var calls atomic.Int64
				live.set(func(op string) fault {
					if op == "lock" {
						calls.Add(1)
					}
					return fault{request: time.Millisecond}
				})
				begun := time.Now()
				unlock, err := x.other(ctx, lives)
				if err != nil || time.Since(begun) > 20*time.Second {
					t.Errorf("%v after %v", err, time.Since(begun))
				}
				if n := calls.Load(); n > 200 {
					t.Errorf("it asked the arbiter %d times", n)
				}
				cancel()
				dead.set(nil)
				_ = lost() // it may have noticed
				if err := unlock(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
