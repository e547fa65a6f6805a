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
