package coord

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/internal/guard"
)

// handle gets the messages for a session, one at a time. They are hints: every client that may publish can have sent
// them, and any may be missing.
func (c *Coordinator) handle(s *session, m fallback.Message) {
	switch m.Kind {
	case fallback.Wake:
		if len(m.Key) <= MaxKey {
			c.partitionOf(m.Key).woken(m.Key, fallback.Identity{Session: s.id, Request: m.Request})
		}
	case fallback.Ask:
		if len(m.Key) <= MaxKey {
			c.partitionOf(m.Key).asked(m.Key, fallback.Identity{Session: s.id, Request: m.Request})
		}
	case fallback.Freed:
		if len(m.Key) <= MaxKey && c.cluster != nil {
			c.partitionOf(m.Key).freed(m.Key, fallback.Identity{Session: m.Session, Request: m.Request})
		}
	case fallback.Revoked:
		if int64(m.Partition) < int64(len(c.parts)) && c.cluster != nil {
			c.parts[m.Partition].summoned(m.Epoch)
		}
	case fallback.Changed:
		c.news.tell(m.Key)
	case fallback.Gap:
		c.news.tellAll()
		for i := range c.parts {
			c.parts[i].wokenAll()
		}
	}
}

// woken: the key is free, and promised to the request. If that is over it is withdrawn, so that the next one need not wait
// until the promise lapses: a replica that was promoted may remember waiters of long ago.
func (p *partition) woken(key string, id fallback.Identity) {
	var a after
	p.mu.Lock()
	e := p.entries[key]
	switch {
	case e != nil && e.acq != nil && e.acq.id == id:
		e.acq.poke()
	case e != nil && e.q.State() != handoff.Idle && e.hold.row.Identity == id: // it came first
	case guard.OnItsWay && e != nil && e.forward.link != nil && e.forward.id == id: // no request of the arbiter's: the message lies
	default:
		a.releases = append(a.releases, p.release(key, id))
	}
	p.mu.Unlock()
	a.do(p.c)
}

// wokenAll: a message may have been missed.
func (p *partition) wokenAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.entries {
		if e.acq != nil {
			e.acq.poke()
		}
	}
}

// asked: another process waits for the key, and the arbiter says that id has it. So it is recalled; or, if this process
// neither has it nor is about to, it is an orphan, and removed (rule 13).
func (p *partition) asked(key string, id fallback.Identity) {
	var a after
	p.mu.Lock()
	e := p.entries[key]
	switch {
	case e != nil && e.q.State() != handoff.Idle && e.hold.row.Identity == id:
		if e.q.Recall(p.c.now()) == handoff.GiveBack {
			p.giveBack(e, &a)
		}
	case e != nil && e.acq != nil && e.acq.id == id:
		e.acq.asked = true
	case guard.OnItsWay && e != nil && e.forward.link != nil && e.forward.id == id: // the owner's grant is on its way, and the row came first
	default:
		a.releases = append(a.releases, p.release(key, id))
	}
	p.mu.Unlock()
	a.do(p.c)
}

// revoked: another node asks for the partition, because it cannot reach this one. So it goes key by key for a while.
func (p *partition) revoked(epoch uint32) { p.giveUp(epoch, revokedFor*p.c.opts.RenewEvery) }

// revokedFor is for how many times RenewEvery a node does not take a partition again that was revoked.
const revokedFor = 4

// giveUp demotes the partition in the background, at that epoch, or any for 0, and does not take it again for a while.
func (p *partition) giveUp(epoch uint32, avoid time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own == nil || epoch != 0 && p.own.epoch != epoch || p.phase == phaseDemoting {
		return
	}
	if p.c.sessions.sweepSince(p.c.now().Add(-p.c.graceTime())) {
		return // in Grace it would be in vain; who asks, asks again
	}
	p.c.work.Add(1)
	p.c.pool.Go(func() {
		defer p.c.work.Done()
		p.demote(p.c.ctx, avoid)
	})
}
