// Package turn runs a function with a lock, and waits for the lock for a limited time.
package turn

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/held"
)

// Do calls fn with the lock of the key. It waits for the lock for wait at most; if that is
// negative, until ctx ends. fn's context ends with ctx and when the lock is lost, with that as its
// cause. It carries the lock.
//
// Errors: those of Lock, and then fn was not called; fn's; and one that Is [coord.ErrLost] if the
// lock was lost.
func Do(ctx context.Context, c *coord.Coordinator, key string, wait time.Duration, fn func(ctx context.Context) error) (ran bool, err error) {
	limit := ctx
	if wait >= 0 {
		var cancel context.CancelFunc
		limit, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	l, err := c.Lock(limit, key)
	if err != nil {
		return false, err
	}
	inner, end := held.Inside(ctx, l.Context())
	defer func() {
		if lost := l.Unlock(); errors.Is(lost, coord.ErrLost) && !errors.Is(err, coord.ErrLost) {
			err = errors.Join(err, lost)
		}
		end(nil)
	}()
	return true, fn(inner)
}
