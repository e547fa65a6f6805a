package coord

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
)

func (c *Coordinator) moment() lease.Moment { return c.since(c.began) }

func (c *Coordinator) at(t time.Time) lease.Moment { return t.Sub(c.began) }

// now returns the time. It reads the monotonic clock now, and has read the wall clock up to
// lease.WallEvery ago. The wall clock is there for a machine that was suspended: the monotonic one
// stands still then. To read it at each event would make a short lock cost half as much again. p.mu
// is held.
func (p *partition) now() time.Time {
	if d := p.c.since(p.clock); 0 <= d && d < lease.WallEvery {
		return p.clock.Add(d)
	}
	p.clock = p.c.now()
	return p.clock
}

// nowAt is now where the monotonic clock was read already, since p.mu was taken: at is the time
// then, and not positive if it was not.
func (p *partition) nowAt(at lease.Moment) time.Time {
	if at > 0 {
		if d := at - p.c.at(p.clock); 0 <= d && d < lease.WallEvery {
			return p.clock.Add(d)
		}
	}
	return p.now()
}

// sleep waits for d, and reports false if ctx ends before that.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
