package coord

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// giving has the Demotes under way, of partitions that are given back by lists.
type giving struct {
	mu    mutex[leafRank] // protects the fields below
	begun []time.Time     // in order
	ended time.Time       // the last one that is over
}

// overdue returns when the last overdue Demote was begun. n are begun at a time: where there are
// more, an overdue one has made room for another one ([spread]). Where others were answered since,
// only a part of the arbiter does not answer, and none counts as overdue.
func (x *giving) overdue(n int) time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	if last := len(x.begun) - n; last >= 0 && x.begun[last].After(x.ended) {
		return x.begun[last]
	}
	return time.Time{}
}

func (x *giving) begin(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.begun = append(x.begun, now)
}

func (x *giving) end(begun, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := slices.Index(x.begun, begun)
	x.begun, x.ended = slices.Delete(x.begun, i, i+1), now
}

// give gives partitions back, few at a time, as each has no owner meanwhile, and stops where the
// arbiter does not take them back. It reports whether one is left.
func (x *cluster) give(gives *giving, list []*partition, avoid time.Duration) bool {
	if len(list) == 0 {
		return false
	}
	c := x.c
	n := max(1, givers/max(1, len(x.ring.View().Live())))
	var left atomic.Bool
	paced, end := context.WithTimeout(c.life.ctx, c.opts.CallTimeout) // the list may be long, or the next owners slow
	defer end()
	x.each(list, n, func(p *partition) {
		outlook, now := x.outlook(), c.now()
		if !c.spreads() {
			outlook.Overdue = gives.overdue(n)
		}
		p.mu.Lock()
		serves, may := p.MayGiveUp(0), p.MayGive(outlook, now)
		p.mu.Unlock()
		if !may {
			if serves {
				left.Store(true)
			}
			return
		}
		x.handOver(paced, p, func() {
			gives.begin(now)
			defer func() { gives.end(now, c.now()) }() // also if a trace function ends the goroutine
			p.demote(c.life.ctx, avoid)
		})
	})
	return left.Load()
}

// outlook returns how the arbiter would answer. The silence of one of several servers tells nothing
// of the others.
func (x *cluster) outlook() lease.Outlook {
	c := x.c
	return lease.Outlook{Grace: c.sessions.graceSince(c.now().Add(-c.graceTime())), Silent: c.remote.health.isSilent() && !c.spreads()}
}

// demote gives the partition back, and does not acquire it again for the time avoid. Holds in force
// stay in force (rule 5). It blocks until the arbiter has answered, the session's deadline has
// passed, or ctx has ended.
func (p *partition) demote(ctx context.Context, avoid time.Duration) {
	var a after
	now := p.lock()
	x, frozen := p.BeginDemote(avoid, now, &a.Effects)
	p.unlock(&a)
	a.do(p.c)
	if frozen {
		p.demoteFrozen(ctx, x, func() bool { return !lease.Past(x.Session.Deadline(), p.c.now()) })
	}
}

// demoteFrozen makes a frozen partition Shared, with the rows of its holds. It tries until the
// arbiter has answered, ctx has ended, or more reports false.
func (p *partition) demoteFrozen(ctx context.Context, x lease.Frozen, more func() bool) {
	c := p.c
	flight := c.flights.begin() // of the last call
	defer func() { c.flights.end(flight) }()
	var d fallback.Demotion
	var sent time.Time
	defer func() { p.endDemote(x, d, sent) }() // also if a trace function ends the goroutine
	for more() {
		c.flights.end(flight)
		flight = c.flights.begin()
		sent = c.now()
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.opts.demoting(len(x.Holds)))
		answer, err := c.remote.ns.Demote(call, p.Number(), x.Session.ID, x.Epoch, x.Holds)
		cancel()
		c.called(OpOwnership, sent, err)
		if err == nil {
			d = answer
			c.graceSeen(p.Number(), sent, d.Record.Grace)
			break
		}
		select {
		case <-time.After(jitter(c.opts.RetryEvery / 4)):
			continue
		case <-ctx.Done():
		}
		break
	}
}

// endDemote is called when no call of Demote is under way any more. d is the answer, if one has
// come.
func (p *partition) endDemote(x lease.Frozen, d fallback.Demotion, sent time.Time) {
	var a after
	demoted, since := d.Verdict == fallback.Granted, uint32(0)
	if demoted {
		since = d.Record.Epoch
	}
	now := p.lock()
	p.EndDemote(x, demoted, d.Verdict == fallback.Stale, sent, now, &a.Effects)
	p.unlock(&a)
	a.do(p.c)
	p.c.cluster.adoptNow()
	p.c.cluster.yours(p.Number(), since)
}

// demoting returns how long Demote may take: a CallTimeout, and one more for each 1,000 rows, up to
// four in all. To encode and send them takes a busy machine longer than the arbiter needs.
func (o *Options) demoting(rows int) time.Duration {
	return o.CallTimeout * time.Duration(min(1+rows/1000, 4))
}
