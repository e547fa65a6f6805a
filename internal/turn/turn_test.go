package turn_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/coordtest"
	"github.com/holdfast-go/holdfast/internal/held"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/turn"
)

func TestMain(m *testing.M) { leak.Main(m) }

// The function's context carries its own lock, and around it the locks of the caller: a caller that
// waits for either would wait for itself.
func TestDo_CarriesItsLockInsideOfTheCallers(t *testing.T) {
	coordtest.Bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := coordtest.Start(t, a, nil)
		err := c.Do(t.Context(), "a", func(ctx context.Context, _ coord.Lock) error {
			ran, err := turn.Do(ctx, c, "b", -1, func(ctx context.Context) error {
				for _, key := range []string{"a", "b"} {
					if _, err := c.TryLock(ctx, key); !errors.Is(err, coord.ErrHeld) {
						t.Errorf("%s: %v", key, err)
					}
				}
				h, ok := ctx.Value(held.Key{}).(interface {
					Held() (coord.Lock, context.Context)
				})
				if !ok {
					t.Fatal("no lock")
				}
				if l, _ := h.Held(); l.Key() != "b" {
					t.Errorf("the innermost lock is that of %q", l.Key())
				}
				return nil
			})
			if !ran {
				t.Error("it did not run")
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// The function is told of the caller's deadline, and how it has passed.
func TestDo_PassesTheDeadlineOn(t *testing.T) {
	coordtest.Bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := coordtest.Start(t, a, nil)
		until := time.Now().Add(time.Second)
		ctx, cancel := context.WithDeadline(t.Context(), until)
		defer cancel()
		_, err := turn.Do(ctx, c, "k", -1, func(ctx context.Context) error {
			if d, _ := ctx.Deadline(); !d.Equal(until) {
				t.Errorf("the deadline is %v, want %v", d, until)
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if err != context.DeadlineExceeded {
			t.Error(err)
		}
	})
}
