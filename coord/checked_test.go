package coord_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fallback"
)

// A process that was suspended asks a lock's context before any of its timers has run: the clock
// alone tells. The wall clock steps here, which no timer sees.
func TestContext_ErrLooksAtTheClock(t *testing.T) {
	for name, in := range map[string]func(t *testing.T, c *coord.Coordinator, step func(context.Context) error) error{
		"Lock": func(t *testing.T, c *coord.Coordinator, step func(context.Context) error) error {
			l := lock(t, c, "k")
			return errors.Join(step(l.Context()), l.Unlock())
		},
		"RLock": func(t *testing.T, c *coord.Coordinator, step func(context.Context) error) error {
			l := rlock(t, c, "k")
			return errors.Join(step(l.Context()), l.Unlock())
		},
		"Acquire": func(t *testing.T, c *coord.Coordinator, step func(context.Context) error) error {
			p, err := c.Semaphore("k", 3).Acquire(t.Context(), 2)
			if err != nil {
				return err
			}
			return errors.Join(step(p.Context()), p.Release())
		},
		"Do": func(t *testing.T, c *coord.Coordinator, step func(context.Context) error) error {
			return c.Do(t.Context(), "k", func(ctx context.Context, _ coord.Lock) error { return step(ctx) })
		},
		"RDo": func(t *testing.T, c *coord.Coordinator, step func(context.Context) error) error {
			return c.RDo(t.Context(), "k", func(ctx context.Context, _ coord.ReadLock) error { return step(ctx) })
		},
		"Semaphore.Do": func(t *testing.T, c *coord.Coordinator, step func(context.Context) error) error {
			return c.Semaphore("k", 3).Do(t.Context(), 1, step)
		},
		"DoAll": func(t *testing.T, c *coord.Coordinator, step func(context.Context) error) error {
			return c.DoAll(t.Context(), []string{"k", "l"}, func(ctx context.Context, _ coord.Locks) error { return step(ctx) })
		},
		"DoClaims": func(t *testing.T, c *coord.Coordinator, step func(context.Context) error) error {
			return c.DoClaims(t.Context(), []coord.Claim{{Key: "k", Read: true}}, func(ctx context.Context, _ coord.Claimed) error { return step(ctx) })
		},
		"Share": func(t *testing.T, c *coord.Coordinator, step func(context.Context) error) error {
			_, err := coord.Share(t.Context(), c, "k", nil, func(ctx context.Context, _ coord.Fence) (int, error) { return 1, step(ctx) })
			return err
		},
		"an early run of Share": func(t *testing.T, c *coord.Coordinator, step func(context.Context) error) error {
			opts := &coord.ShareOptions[int]{TTL: time.Second, RefreshAhead: 900 * time.Millisecond}
			runs, early := 0, make(chan error, 1)
			for {
				_, err := coord.Share(t.Context(), c, "k", opts, func(ctx context.Context, _ coord.Fence) (int, error) {
					if runs++; runs == 2 {
						early <- step(ctx)
						return 0, context.Cause(ctx)
					}
					return 1, nil
				})
				select {
				case err := <-early:
					return errors.Join(err, coord.ErrLost) // it is told to the log
				case <-time.After(time.Millisecond): // chance decides when it begins
				}
				if err != nil {
					return err
				}
			}
		},
		"a leader": func(t *testing.T, c *coord.Coordinator, step func(context.Context) error) error {
			e, err := election.New(c, "e", nil)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithCancel(t.Context())
			err = e.Run(ctx, func(ctx context.Context, term *election.Term) error {
				defer cancel()
				return errors.Join(step(ctx), context.Cause(term.Context()))
			})
			return errors.Join(err, coord.ErrLost) // Run does not tell, as its caller has ended it
		},
	} {
		for _, asked := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				c, err := coord.New(t.Context(), fallback.NewMemory(), &coord.Options{SessionTTL: time.Minute, Grace: 2 * time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					// There is no next session yet.
					if err := c.Close(context.Background()); err != nil && !errors.Is(err, coord.ErrUnavailable) {
						t.Error(err)
					}
				}()
				err = in(t, c, func(ctx context.Context) error {
					if asked {
						ctx.Done()
					}
					for range 2 {
						if ctx.Err() != nil {
							t.Errorf("in force: %v", ctx.Err())
						}
					}
					if !coord.StepClock(c, c.Stats().Session, 3600) {
						t.Error("no session")
					}
					if ctx.Err() == nil || !errors.Is(context.Cause(ctx), coord.ErrLost) {
						t.Errorf("an hour later (Done was called: %v): %v, cause %v", asked, ctx.Err(), context.Cause(ctx))
					}
					return nil
				})
				if !errors.Is(err, coord.ErrLost) {
					t.Errorf("at the end: %v", err)
				}
			})
		}
	}
}
