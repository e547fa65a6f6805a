package lease

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/peer"
)

// Doubtful asks the holders that have been in the way of others for long whether they are there
// (rule 13). It returns those that cannot be asked: are their sessions dead? lonely tells that one
// has been out of reach for so long that the arbiter is to ask it.
func (p *Partition) Doubtful(now time.Time, fx *Effects) (absent []fallback.Identity, lonely bool) {
	if p.own == nil {
		return nil, false
	}
	if !p.table.unsure {
		p.assertSure()
		return nil, false
	}
	p.table.unsure = false
	for _, k := range p.table.keys {
		g := k.others
		if g == nil || g.holder == (fallback.Identity{}) {
			continue
		}
		if g.link == nil {
			if g.link = p.linkTo(g.holder.Session); g.link != nil && !g.recalled.IsZero() {
				p.send(g.link, peer.Recall, k.name, g.holder)
			}
		}
		p.table.unsure = p.table.unsure || g.doubtful()
		if g.link == nil && now.Sub(g.alone) > p.cfg.SessionTTL { // also if no node wants the key
			absent = append(absent, g.holder)
		}
		if g.recalled.IsZero() {
			continue
		}
		if g.link == nil {
			absent = append(absent, g.holder)
			// It may have given the key back, and could not say so.
			lonely = lonely || min(now.Sub(g.recalled), now.Sub(g.alone)) > p.cfg.RenewEvery
			continue
		}
		if now.Sub(g.recalled) >= p.cfg.RenewEvery && now.Sub(g.asked) >= p.cfg.RenewEvery {
			g.asked = now
			p.send(g.link, peer.Ask, k.name, g.holder)
		}
	}
	return absent, lonely
}

// aloneSince returns the time since when a holder without a stream counts as out of reach. Where
// the death of its node is known soon, the partition is given back when that should be known, and
// no sooner: it stays if the node is dead. Nor is it given back within RetryEvery: there may be a
// stream again by then.
func (p *Partition) aloneSince(l Link, now time.Time) time.Time {
	heard := l.Heard()
	if p.cfg.Death <= 0 || heard.IsZero() {
		return now
	}
	return Later(heard.Add(p.cfg.Death), now.Add(p.cfg.RetryEvery)).Add(-p.cfg.RenewEvery)
}

// doubtful reports whether another node's hold is in the way of others, or its node out of reach.
func (g *grants) doubtful() bool { return g.link == nil || !g.recalled.IsZero() }

// Bury frees the keys of a session that is dead.
func (p *Partition) Bury(session string, now time.Time, fx *Effects) {
	if p.own == nil {
		return
	}
	for key, k := range p.table.keys {
		if k.others != nil && k.others.holder.Session == session {
			if k.others.imported {
				fx.Releases = append(fx.Releases, p.ReleaseOf(key, k.others.holder))
			}
			p.freeHolder(k, now, fx)
		}
	}
}
