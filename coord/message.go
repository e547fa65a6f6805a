package coord

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// handle gets the messages for a session, one at a time. They are hints: every client that may
// publish can have sent them, and any may be missing.
func (c *Coordinator) handle(s *session, m fallback.Message) {
	key, _ := fallback.Split(m.Key)
	p := c.partitionOf(key)
	switch id := (fallback.Identity{Session: s.ID, Request: m.Request}); m.Kind {
	case fallback.Wake:
		p.message(hintWoken, m.Key, id)
	case fallback.Ask:
		p.message(hintAsked, m.Key, id)
	case fallback.Freed:
		if id.Session = m.Session; c.cluster != nil {
			p.message(hintFreed, m.Key, id)
		}
	case fallback.Revoked:
		if int64(m.Partition) < int64(len(c.parts)) && c.cluster != nil {
			c.parts[m.Partition].summoned(m.Epoch)
		}
	case fallback.Changes:
		s.rounds.hint()
	case fallback.Changed:
		c.tells.news.tell(m.Key)
	case fallback.Gap: // it may be another server
		s.rounds.hint()
		c.tells.news.tellAll()
		for i := range c.parts {
			c.parts[i].gap()
		}
	}
}

// summoned: a message says that another node asks for the partition.
func (p *partition) summoned(epoch uint32) {
	var a after
	p.mu.Lock()
	p.Summoned(epoch, &a.Effects)
	p.unlock(&a)
}

// gap: messages may have been missed.
func (p *partition) gap() {
	var a after
	p.mu.Lock()
	p.Gap(&a.Effects)
	p.unlock(&a)
}

// revoked: another node asks for the partition, because it cannot reach this one. So it goes key by
// key for a while.
func (p *partition) revoked(epoch uint32) { p.giveUp(epoch, revokedFor*p.c.opts.RenewEvery) }

// revokedFor is for how many times RenewEvery a node does not take a partition again that was
// revoked.
const revokedFor = 4

// giveUp demotes the partition in the background, at that epoch, or any for 0, and does not take it
// again for a while.
func (p *partition) giveUp(epoch uint32, avoid time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.MayGiveUp(epoch) {
		return
	}
	if p.c.sessions.graceSince(p.c.now().Add(-p.c.graceTime())) {
		return // in Grace it would be in vain; the asker asks again
	}
	p.c.background(func() { p.demote(p.c.life.ctx, avoid) })
}
