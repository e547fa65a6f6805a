package coord_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// A context that ends with the caller's has its deadline, so that a call to elsewhere can be told
// how long it may take; and its Err says that the deadline has passed. That of a lock ends with the
// lock alone, and has none.
func TestContext_TheCallersDeadline(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context, c *coord.Coordinator, fn func(context.Context) error) error{
		"Do": func(ctx context.Context, c *coord.Coordinator, fn func(context.Context) error) error {
			return c.Do(ctx, "k", func(ctx context.Context, _ coord.Lock) error { return fn(ctx) })
		},
		"RDo": func(ctx context.Context, c *coord.Coordinator, fn func(context.Context) error) error {
			return c.RDo(ctx, "k", func(ctx context.Context, _ coord.ReadLock) error { return fn(ctx) })
		},
		"DoAll": func(ctx context.Context, c *coord.Coordinator, fn func(context.Context) error) error {
			return c.DoAll(ctx, []string{"k", "l"}, func(ctx context.Context, _ coord.Locks) error { return fn(ctx) })
		},
		"DoClaims": func(ctx context.Context, c *coord.Coordinator, fn func(context.Context) error) error {
			claims := append(coord.ForReading("k"), coord.ForWriting("l")...)
			return c.DoClaims(ctx, claims, func(ctx context.Context, _ coord.Claimed) error { return fn(ctx) })
		},
		"DoClaims of none": func(ctx context.Context, c *coord.Coordinator, fn func(context.Context) error) error {
			return c.DoClaims(ctx, nil, func(ctx context.Context, _ coord.Claimed) error { return fn(ctx) })
		},
		"DoNested": func(ctx context.Context, c *coord.Coordinator, fn func(context.Context) error) error {
			return c.Do(ctx, "k", func(ctx context.Context, _ coord.Lock) error {
				return c.DoNested(ctx, "k", func(ctx context.Context, _ coord.Lock) error { return fn(ctx) })
			})
		},
		"Semaphore.Do": func(ctx context.Context, c *coord.Coordinator, fn func(context.Context) error) error {
			return c.Semaphore("k", 3).Do(ctx, 1, fn)
		},
	} {
		for _, asked := range []bool{false, true} {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				c := start(t, a, nil)
				until := time.Now().Add(time.Second)
				ctx, cancel := context.WithDeadline(t.Context(), until)
				defer cancel()
				err := do(ctx, c, func(ctx context.Context) error {
					if d, ok := ctx.Deadline(); !ok || !d.Equal(until) {
						t.Errorf("%s: the deadline is %v, want %v", name, d, until)
					}
					if asked {
						<-ctx.Done()
					} else {
						time.Sleep(time.Second + 1)
					}
					if context.Cause(ctx) != context.DeadlineExceeded {
						t.Errorf("%s: cause %v", name, context.Cause(ctx))
					}
					return ctx.Err()
				})
				if err != context.DeadlineExceeded {
					t.Errorf("%s, asked %v: %v", name, asked, err)
				}
			})
		}
	}
	for name, of := range map[string]func(t *testing.T, ctx context.Context, c *coord.Coordinator) (context.Context, func() error){
		"Lock": func(t *testing.T, ctx context.Context, c *coord.Coordinator) (context.Context, func() error) {
			l, err := c.Lock(ctx, "k")
			if err != nil {
				t.Fatal(err)
			}
			return l.Context(), l.Unlock
		},
		"RLock": func(t *testing.T, ctx context.Context, c *coord.Coordinator) (context.Context, func() error) {
			l, err := c.RLock(ctx, "k")
			if err != nil {
				t.Fatal(err)
			}
			return l.Context(), l.Unlock
		},
	} {
		bubble(t, func(t *testing.T, a *fallback.Memory) {
			c := start(t, a, nil)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			own, unlock := of(t, ctx, c)
			if d, ok := own.Deadline(); ok {
				t.Errorf("%s: the deadline is %v", name, d)
			}
			time.Sleep(2 * time.Second)
			if own.Err() != nil {
				t.Errorf("%s: %v", name, own.Err())
			}
			if err := unlock(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
