package coord

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// demote gives the partition back, and does not acquire it again for the time avoid. Holds in force stay
// in force (rule 5). It blocks until the arbiter has answered, the session's deadline has passed,
// or ctx has ended.
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
	demoted, stale := false, false
	var sent time.Time
	defer func() { p.endDemote(x, demoted, stale, sent) }() // also if a trace function ends the goroutine
	for more() {
		c.flights.end(flight)
		flight = c.flights.begin()
		sent = c.now()
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.opts.demoting(len(x.Holds)))
		d, err := c.remote.ns.Demote(call, p.Number(), x.Session.ID, x.Epoch, x.Holds)
		cancel()
		c.called(OpOwnership, sent, err)
		if err == nil {
			demoted, stale = d.Verdict == fallback.Granted, d.Verdict == fallback.Stale
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

// endDemote is when no call of Demote is under way any more.
func (p *partition) endDemote(x lease.Frozen, demoted, stale bool, sent time.Time) {
	var a after
	now := p.lock()
	p.EndDemote(x, demoted, stale, sent, now, &a.Effects)
	p.unlock(&a)
	a.do(p.c)
	p.c.cluster.adoptNow()
	p.c.cluster.yours(p.Number())
}

// demoting returns how long Demote with so many rows may take: one more CallTimeout for each 1,000
// of them, up to four in all. To encode and send them takes a busy machine longer than the arbiter
// needs.
func (o *Options) demoting(rows int) time.Duration {
	return o.CallTimeout * time.Duration(min(1+rows/1000, 4))
}
