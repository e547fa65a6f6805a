package coord

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/peer"
)

// demote gives the partition back: to be acquired by whoever should own it. Holds in force stay in force (rule 5). It
// blocks until the arbiter has answered, the ownership has lapsed, or ctx has ended.
func (p *partition) demote(ctx context.Context, avoid time.Duration) {
	c := p.c
	var a after
	now := p.c.now()
	p.mu.Lock()
	o := p.own
	if o == nil || p.phase == phaseDemoting {
		p.mu.Unlock()
		return
	}
	holds := p.freeze(phaseDemoting, &a)
	if !guard.Freeze {
		p.own = o
	}
	p.exported, p.late = holds, make(map[string]fallback.Release)
	p.notBefore = now.Add(avoid)
	p.mu.Unlock()
	a.do(c)
	x := frozen{p: p, own: o, holds: holds}
	x.demote(ctx, func() bool { return !past(o.session.deadline(), c.now()) })
}

// frozen is a partition that was frozen, and is to be demoted.
type frozen struct {
	p       *partition
	own     *ownership
	holds   map[string]fallback.Row
	stepped bool // its session has ended: see stepped.go
}

// demote makes the partition Shared, with the rows of its holds. It tries until the arbiter has answered, ctx has ended,
// or more reports false.
func (x *frozen) demote(ctx context.Context, more func() bool) {
	p, o, holds := x.p, x.own, x.holds
	c := p.c
	var a after
	answered, stale := false, false
	var sent time.Time
	for !answered && more() {
		sent = p.c.now()
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.opts.demoting(len(holds)))
		d, err := c.ns.Demote(call, p.number, o.session.id, o.epoch, holds)
		cancel()
		c.called(OpOwnership, sent, err)
		if err == nil {
			answered, stale = d.Verdict == fallback.Granted, d.Verdict == fallback.Stale
			break
		}
		select {
		case <-time.After(jitter(c.opts.RetryEvery / 4)):
			continue
		case <-ctx.Done():
		}
		break
	}
	now := p.c.now()
	p.mu.Lock()
	if !guard.Freeze {
		p.own = nil
	}
	for _, r := range p.late {
		a.releases = append(a.releases, r)
	}
	step(&p.phase, phaseUnowned, nextPhases[:])
	p.exported, p.late = nil, nil
	if answered || stale {
		p.reliedUntil = time.Time{}
		step(&p.naming, namedElsewhere, nextNamings[:])
	} else {
		step(&p.naming, namedSurely, nextNamings[:])
	}
	if answered {
		for key, row := range holds {
			e := p.holding(key, row)
			switch {
			case e != nil && !past(sent.Add(c.opts.lease()), now):
				e.hold.confirmed = sent
				p.oldest = earlier(p.oldest, sent)
			case e == nil && row.Session == o.session.id && !x.stepped: // given back before it had the row
				a.releases = append(a.releases, p.release(key, row.Identity))
			}
		}
	}
	p.wantAll(now, &a, true)
	p.hearAgain()
	p.mu.Unlock()
	a.do(c)
	c.cluster.adoptNow()
	c.cluster.yours(p.number)
}

// demoting returns how long Demote with so many rows may take: one more CallTimeout for each 1,000 of
// them, up to four in all. To encode and send them takes a busy machine longer than the arbiter needs.
func (o *Options) demoting(rows int) time.Duration {
	return o.CallTimeout * time.Duration(min(1+rows/1000, 4))
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// freeze ends the service: nothing is granted any more at this epoch. It tells the holders, and returns all holds. Those
// of this node's own callers go on like those of others, until the deadline of this moment if they do not get a row.
func (p *partition) freeze(next phase, a *after) map[string]fallback.Row {
	o, until := p.own, p.ownedUntil()
	p.own = nil
	step(&p.phase, next, nextPhases[:])
	p.announcedEnds = until.Add(p.c.opts.Margin) // by the holders' clocks, which may be slower
	p.reliedUntil = p.announcedEnds
	holds := make(map[string]fallback.Row)
	told := make(map[*link]bool)
	for key, e := range p.entries {
		if e.q.State() == handoff.Lingering && e.hold.source == sourceOwn {
			e.q.Relax()
			p.holds--
			e.hold = hold{}
		}
		if e.q.State() != handoff.Idle {
			switch e.hold.source {
			case sourceOwn:
				p.leaveHome(&e.hold, o.epoch, until)
				e.hold.row = fallback.Row{
					Identity: fallback.Identity{Session: o.session.id, Request: p.c.requests.Add(1)}, Token: fallback.Token(e.turn.fence),
				}
			case sourceHome:
				p.leaveHome(&e.hold, o.epoch, until)
			}
			holds[key] = e.hold.row
		}
		g := e.g
		e.g = nil
		if g == nil {
			p.tidy(e)
			continue
		}
		if g.holder != (fallback.Identity{}) {
			holds[key] = fallback.Row{Identity: g.holder, Token: g.token}
			if g.link != nil && !told[g.link] {
				told[g.link] = true
				a.send(g.link, peer.Frame{Kind: peer.Frozen, Partition: p.number, Epoch: o.epoch})
			}
		}
		for _, c := range g.queue {
			if c.link != nil {
				a.send(c.link, p.frame(peer.Moved, key, c.id))
			}
		}
		p.tidy(e)
	}
	return holds
}

// letGo ends an ownership that has lapsed or was lost. Its holds are adopted, or lost.
func (p *partition) letGo(now time.Time, a *after) {
	if p.own == nil {
		return
	}
	p.freeze(phaseUnowned, a)
	p.notBefore = now.Add(p.c.opts.RetryEvery)
	p.wantAll(now, a, true)
	a.adopt = true
}
