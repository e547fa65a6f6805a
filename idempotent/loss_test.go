package idempotent_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/idempotent"
)

// A function that asks its context after the lock was lost is told so by the first answer.
func TestOnce_ErrAfterALoss(t *testing.T) {
	c := locks(t, fallback.NewMemory())
	wrong := 0
	for range 20 {
		err := idempotent.Once(t.Context(), c, idempotent.NewMemoryStore(nil), "id", func(ctx context.Context, l coord.Lock) error {
			if ctx.Err() != nil {
				t.Error(ctx.Err())
			}
			if err := c.Break(t.Context(), l.Key(), l.Fence(), "a test"); err != nil {
				t.Error(err)
			}
			if ctx.Err() == nil {
				wrong++
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, coord.ErrLost) {
			t.Error(err)
		}
	}
	if wrong > 0 {
		t.Errorf("no error in %d of 20 calls", wrong)
	}
}
