package coord

import (
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// Doubt has two sides (rule 13). An owner asks after a holder that is in the way of others, as that
// may be gone: keepDoubting. And a process that does not know the fate of a request of its own
// makes sure that no row is left of it: doubts.

// doubtSoon makes the holders that are in the way be asked after.
func (x *cluster) doubtSoon() { signal(x.wakes.dead) }

// doubtMoment is how long keepDoubting waits when it is woken, at least: an event concerns many
// keys, as a rule, and a look goes through all. After a long look it waits for longer, so that
// looks take a tenth of the time, but not for longer than RetryEvery/2.
const doubtMoment = 10 * time.Millisecond

// keepDoubting asks after the holders that are in the way of others, until the coordinator stops.
// It does not wait for the balance: a cluster that does not come to rest, or an arbiter that does
// not take a partition back, has its dead, too.
func (x *cluster) keepDoubting() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var rested time.Time // after the last look
	var gives lonely
	for counted := x.c.now(); ; {
		select {
		case <-timer.C:
		case <-x.wakes.dead:
			if !sleep(x.c.life.ctx, max(doubtMoment, x.c.left(rested))) {
				return
			}
		case <-x.c.life.ctx.Done():
			return
		}
		next := x.c.opts.RenewEvery
		if now := x.c.now(); x.countDue(now.Sub(counted)) {
			x.countKeys(now)
			counted = now
		}
		began := x.c.now()
		if x.doubt(&gives) {
			next = x.c.opts.RetryEvery / 2
		}
		ended := x.c.now()
		rested = ended.Add(min(10*ended.Sub(began), x.c.opts.RetryEvery/2))
		timer.Reset(next)
	}
}

// lonely has the partitions that are given back because a holder cannot be asked.
type lonely struct {
	giving
	busy atomic.Bool // some are being given back
}

// doubt asks after the holders that are in the way of others. It reports whether one cannot be
// asked.
func (x *cluster) doubt(gives *lonely) (left bool) {
	c := x.c
	var a after
	var list []*partition
	for i := range c.parts {
		p := &c.parts[i]
		now := p.lock()
		absent, lonely := p.Doubtful(now, &a.Effects)
		p.unlock(&a)
		for _, id := range absent {
			left = true
			if _, dead := c.sessions.others.ask(nil, c, id.Session); dead {
				now := p.lock()
				p.Bury(id.Session, now, &a.Effects)
				p.unlock(&a)
				lonely = false
			}
		}
		if lonely {
			list = append(list, p)
		}
	}
	if len(list) > 0 && gives.busy.CompareAndSwap(false, true) {
		c.background(func() {
			defer gives.busy.Store(false)
			x.give(&gives.giving, list, 2*c.opts.RetryEvery) // the rest comes again
		})
	}
	a.do(c)
	return left
}

// doubt is a request of this process that may be executed yet, though its call has failed.
type doubt struct {
	p    *partition
	key  string
	id   fallback.Identity
	when time.Time // to look
}

// doubts are requests of ours that may still be executed: a call timed out, and its request may be
// anywhere. If it arrives after everything else of that request is over, it makes a row that this
// process does not know of. A process that wants the key would find out, but perhaps none does.
type doubts struct {
	mu   mutex[leafRank] // protects list
	list []doubt         // nearly in the order of time: a look may be late by a call
}

func (x *doubts) add(d doubt) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.list = append(x.list, d)
}

// due takes the doubts that are due by now.
func (x *doubts) due(now time.Time) []doubt {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 0
	for n < len(x.list) && !now.Before(x.list[n].when) {
		n++
	}
	list := x.list[:n:n]
	if x.list = x.list[n:]; len(x.list) == 0 {
		x.list = nil
	}
	return list
}

// all takes every doubt.
func (x *doubts) all() []doubt {
	x.mu.Lock()
	defer x.mu.Unlock()
	list := x.list
	x.list = nil
	return list
}

// clearDoubts releases the due requests that are no hold of this process, and cannot become one.
func (c *Coordinator) clearDoubts() {
	now := c.now()
	for _, d := range c.debts.doubts.due(now) {
		if d.p.has(d.key, d.id) {
			d.when = now.Add(c.opts.SessionTTL)
			c.debts.doubts.add(d)
			continue
		}
		c.debts.releases.add(d.p.ReleaseOf(d.key, d.id))
	}
}

// has reports whether the request is a hold of this process, or may still become one.
func (p *partition) has(key string, id fallback.Identity) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Has(key, id)
}
