package coord

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
)

func (c *Coordinator) moment() lease.Moment { return c.since(c.began) }

func (c *Coordinator) at(t time.Time) lease.Moment { return t.Sub(c.began) }

// now is the time, of which the monotonic clock is read and the wall clock was, up to lease.WallEvery ago: see
// [lease.Partition.Quick]. p.mu is held.
func (p *partition) now() time.Time {
	if d := p.c.since(p.clock); 0 <= d && d < lease.WallEvery {
		return p.clock.Add(d)
	}
	p.clock = p.c.now()
	return p.clock
}

// quickUntil returns the end of the time in which the monotonic clock alone decides about deadlines that p.now was just
// compared with.
func (p *partition) quickUntil(d lease.Deadlines) lease.Moment {
	return min(p.c.at(p.clock)+lease.WallEvery, p.c.at(d.Session), p.c.at(d.Slot))
}
