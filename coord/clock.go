package coord

import "time"

// A moment is a reading of the monotonic clock: the time since the coordinator began. It is a third of the size of a
// time.Time, and read in half the time. It stands still while the machine is suspended, so nothing is granted by it alone
// for longer than wallEvery.
type moment = time.Duration

// unmeasured is no moment.
const unmeasured moment = -1

func (c *Coordinator) moment() moment { return c.since(c.began) }

func (c *Coordinator) at(t time.Time) moment { return t.Sub(c.began) }

// now is the time, of which the monotonic clock is read and the wall clock was, up to wallEvery ago: see [ownership.quick].
// p.mu is held.
func (p *partition) now() time.Time {
	if d := p.c.since(p.clock); 0 <= d && d < wallEvery {
		return p.clock.Add(d)
	}
	p.clock = p.c.now()
	return p.clock
}

// quickUntil returns the end of the time in which the monotonic clock alone decides about deadlines that p.now was just
// compared with.
func (p *partition) quickUntil(d deadlines) moment {
	return min(p.c.at(p.clock)+wallEvery, p.c.at(d.session), p.c.at(d.slot))
}
