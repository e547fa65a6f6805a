package coord

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// LockFor is [Coordinator.Lock] with a time to hold the lock, which must be positive: after d, by
// this process's monotonic clock, the lock is lost with the cause [TimeOver], and the next caller
// gets the key. It is for a caller that must not keep others waiting should it hang; a process that
// dies loses its locks without it. As with each loss, the holder may be in the middle of something:
// it has to heed [Lock.Context], and the resource the token.
func (c *Coordinator) LockFor(ctx context.Context, key string, d time.Duration) (Lock, error) {
	if d <= 0 {
		return Lock{}, fmt.Errorf("coord: LockFor: a lock cannot be held for %v", d)
	}
	l, err := c.Lock(ctx, key)
	if err != nil {
		return Lock{}, err
	}
	timer := time.AfterFunc(d, func() { l.takeAway(lease.TimeOver) })
	l.endsWith(func(error) { timer.Stop() })
	return l, nil
}

// takeAway ends the lock, if it has not ended, as one that is lost.
func (l Lock) takeAway(cause lease.Cause) {
	var a after
	now := l.p.lock()
	l.p.Break(l.key, l.fence, cause, "", now, &a.Effects)
	l.p.unlock(&a)
	a.do(l.p.c)
}
