package coord

import "time"

// keepDoubting asks after the holders that are in the way of others, until the coordinator stops. It does not wait for the balance:
// a cluster that does not come to rest, or an arbiter that does not take a partition back, has its dead, too.
func (x *cluster) keepDoubting() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for counted := x.c.now(); ; {
		select {
		case <-timer.C:
		case <-x.wakes.dead:
		case <-x.c.life.ctx.Done():
			return
		}
		next := x.c.opts.RenewEvery
		if now := x.c.now(); x.countDue(now.Sub(counted)) {
			x.countKeys(now)
			counted = now
		}
		if x.doubt() {
			next = x.c.opts.RetryEvery / 2
		}
		timer.Reset(next)
	}
}

// doubt asks after the holders that are in the way of others. It reports whether one cannot be asked.
func (x *cluster) doubt() (left bool) {
	c := x.c
	var a after
	for i := range c.parts {
		p := &c.parts[i]
		now := p.lock()
		absent, lonely := p.Doubtful(now, &a.Effects)
		p.unlock(&a)
		for _, id := range absent {
			left = true
			if _, dead := c.tells.liveness.ask(nil, c, id.Session); dead {
				now := p.lock()
				p.Bury(id.Session, now, &a.Effects)
				p.unlock(&a)
				lonely = false
			}
		}
		if lonely {
			p.giveUp(0, 2*c.opts.RetryEvery)
		}
	}
	a.do(c)
	return left
}
