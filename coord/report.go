package coord

import (
	"time"
)

// reports collects the losses, which are not logged when they happen, because they may come in
// storms.
type reports struct {
	mu      mutex[leafRank]    // protects losses, expired
	losses  map[LossCause]loss // that were not reported yet
	expired int                // losses of the present session, as it has expired
	signal  chan struct{}      // capacity 1: losses is not empty
}

// loss is locks that were lost for the same reason.
type loss struct {
	count int
	first *LossError
}

func (r *reports) init() { r.signal = make(chan struct{}, 1) }

func (r *reports) add(losses []*LossError) {
	if len(losses) == 0 {
		return
	}
	r.mu.Lock()
	if r.losses == nil {
		r.losses = make(map[LossCause]loss)
	}
	for _, l := range losses {
		if l.Cause == SessionExpired {
			r.expired++
		}
		x := r.losses[l.Cause]
		if x.count++; x.first == nil {
			x.first = l
		}
		r.losses[l.Cause] = x
	}
	r.mu.Unlock()
	select {
	case r.signal <- struct{}{}:
	default:
	}
}

// ofSession returns how many locks were lost since it was last called, as their session has expired.
// A holder that asks for a lock's state may lose it before the session is taken away.
func (r *reports) ofSession() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.expired
	r.expired = 0
	return n
}

func (r *reports) take() map[LossCause]loss {
	r.mu.Lock()
	defer r.mu.Unlock()
	losses := r.losses
	r.losses = nil
	return losses
}

// Losses of one moment make one record per cause, and those of a storm one per lossEvery.
const lossMoment, lossEvery = 100 * time.Millisecond, 10 * time.Second

// keepReporting runs until the coordinator stops. The logger is the user's and may be slow: no
// other goroutine waits for it here.
func (c *Coordinator) keepReporting() {
	look := time.NewTimer(0)
	defer look.Stop()
	look.Stop()
	every := c.opts.lookEvery()
	if every > 0 {
		look.Reset(every)
	}
	lost := time.NewTimer(0)
	defer lost.Stop()
	lost.Stop()
	var last time.Time // when losses were reported
	defer c.reportLosses()
	for {
		select {
		case <-c.life.ctx.Done():
			return
		case <-c.tells.reports.signal:
			lost.Reset(max(lossMoment, lossEvery-time.Since(last)))
		case <-lost.C:
			last = time.Now()
			c.reportLosses()
		case <-look.C:
			begin := time.Now()
			c.watchOverdue()
			look.Reset(max(every, 100*time.Since(begin))) // it takes a hundredth of a core at most
		}
	}
}

// lookEvery is how often long waits and holds are looked for, 0 if never.
func (o *Options) lookEvery() time.Duration {
	var every time.Duration
	for _, d := range []time.Duration{o.LongWait, o.LongHold} {
		if d > 0 && (every == 0 || d < every) {
			every = d
		}
	}
	if every == 0 {
		return 0
	}
	return max(every/4, time.Millisecond)
}

func (c *Coordinator) reportLosses() {
	for cause, x := range c.tells.reports.take() {
		c.opts.Logger.Warn("holdfast: locks lost", "count", x.count, "cause", cause, "key", logged(x.first.Key), "fence", x.first.Fence)
	}
}
