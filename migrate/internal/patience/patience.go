// Package patience waits for a lock as long as another library's retries would take.
package patience

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/migrate"
)

var errOver = errors.New("patience: the last pause is over")

// Lock tries the key, waits in its queue until the pauses are over that next returns, and tries
// once more. A pause of less than 1 ns is the end. The key is not polled between pauses. The errors
// are those of [coord.Coordinator.TryLock], and those of [coord.Coordinator.Lock] if ctx ends.
func Lock(ctx context.Context, locks Locks, key string, next func() time.Duration) (migrate.Held, error) {
	l, err := locks.TryLock(ctx, key)
	if !errors.Is(err, coord.ErrLocked) && !errors.Is(err, coord.ErrUnavailable) {
		return l, err
	}
	pause := next()
	if pause < 1 {
		return l, err
	}
	waiting, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for timer := time.NewTimer(pause); ; {
			select {
			case <-waiting.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
			pause := next()
			if pause < 1 {
				cancel(errOver)
				return
			}
			timer.Reset(pause)
		}
	}()
	l, err = locks.Lock(waiting, key)
	cancel(nil)
	<-done
	if errors.Is(err, errOver) {
		return locks.TryLock(ctx, key) // the wait may have been too short for an answer
	}
	return l, err
}
