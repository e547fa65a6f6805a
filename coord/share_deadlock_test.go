package coord_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// A flight waits with the locks of the callers that wait for it: one that has left is in no circle,
// whenever it leaves.
func TestDeadlock_NoneByOneThatLeftItsFlight(t *testing.T) {
	for _, leaves := range []time.Duration{100 * time.Millisecond, 1100 * time.Millisecond} { // before the flight's wait is noted, and after
		bubble(t, func(t *testing.T, a *fallback.Memory) {
			c := start(t, a, &coord.Options{DeadlockAfter: time.Second})
			fn := func(context.Context, coord.Fence) (string, error) { return "v", nil }
			ready, left := make(chan struct{}), make(chan struct{})
			var work sync.WaitGroup
			work.Go(func() { // has "k", and waits for "account" once the other one has left
				err := c.Do(t.Context(), "k", func(ctx context.Context, _ coord.Lock) error {
					close(ready)
					<-left
					return c.Do(ctx, "account", func(context.Context, coord.Lock) error { return nil })
				})
				if err != nil {
					t.Errorf("left after %v: %v", leaves, err)
				}
			})
			<-ready
			work.Go(func() {
				_ = c.Do(t.Context(), "account", func(ctx context.Context, _ coord.Lock) error {
					short, cancel := context.WithTimeout(ctx, leaves)
					defer cancel()
					if _, err := coord.Share(short, c, "k", nil, fn); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("the first caller: %v", err)
					}
					close(left)
					time.Sleep(10 * time.Second)
					return nil
				})
			})
			synctest.Wait()
			if v, err := coord.Share(t.Context(), c, "k", nil, fn); v != "v" || err != nil { // has nothing, and waits in the same flight
				t.Errorf("left after %v: %q, %v", leaves, v, err)
			}
			work.Wait()
		})
	}
}

// A circle is found through the caller that began a flight, and through one that has joined it. It
// is found also through one that waits in a flight that this one waits for.
func TestDeadlock_ThroughAFlight(t *testing.T) {
	for _, x := range []struct {
		name          string
		joins, nested bool
	}{
		{name: "which it began"},
		{name: "which it joined", joins: true},
		{name: "of a flight's function", nested: true},
		{name: "of a flight's function, which joined", nested: true, joins: true},
	} {
		t.Run(x.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				c := start(t, a, &coord.Options{DeadlockAfter: time.Second})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				value := func(context.Context, coord.Fence) (string, error) { return "v", nil }
				share := func(ctx context.Context) error { _, err := coord.Share(ctx, c, "k", nil, value); return err }
				if x.nested {
					share = func(ctx context.Context) error {
						_, err := coord.Share(ctx, c, "outer", nil, func(ctx context.Context, _ coord.Fence) (string, error) {
							return coord.Share(ctx, c, "k", nil, value)
						})
						return err
					}
				}
				k, err := c.Lock(ctx, "k")
				if err != nil {
					t.Fatal(err)
				}
				var work sync.WaitGroup
				if x.joins {
					work.Go(func() { _ = share(ctx) }) // has nothing
				}
				time.Sleep(10 * time.Second)
				var first error
				work.Go(func() {
					first = c.Do(ctx, "account", func(ctx context.Context, _ coord.Lock) error { return share(ctx) })
				})
				synctest.Wait()
				l, second := c.Lock(k.Context(), "account")
				if second == nil {
					unlock(t, l)
				}
				unlock(t, k)
				work.Wait()
				if !errors.Is(first, coord.ErrDeadlock) && !errors.Is(second, coord.ErrDeadlock) {
					t.Errorf("%v, %v", first, second)
				}
				if ctx.Err() != nil {
					t.Error("it took a minute")
				}
			})
		})
	}
}
