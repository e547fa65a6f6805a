package lease

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/peer"
)

// MaxRumors is the number of rumors that are remembered. The others are found out later: by doubt
// (rule 13), and by verify.
const MaxRumors = 1024

// Freed: a message says that a hold was released at the arbiter (rule 9).
func (p *Partition) Freed(key string, id fallback.Identity, now time.Time, fx *Effects) {
	k := p.table.keys[key]
	switch {
	case p.phase == Acquiring || p.phase == Demoting: // the rows are on their way here, or from here
		if len(p.moving.freedEarly) < MaxRumors {
			p.moving.freedEarly = append(p.moving.freedEarly, Rumor{key, id})
		}
	case p.own == nil && !Over(p.bounds.announcedEnds, now): // this node may have written the row again
		p.disclaim(key, id, fx)
	case p.own == nil || k == nil || k.others == nil || k.others.holder != id:
	case !guard.Hearsay:
		p.freeHolder(k, now, fx)
	case k.others.restsOnRow() || !guard.Absent:
		out := p.order()
		out.Rumors = append(out.Rumors, Rumor{key, id})
	default:
		p.askHolder(k, now)
	}
}

// Heard compares rumors with the arbiter's answer, with rows for the rumors that have keys. It
// returns the epoch of this node's that another node wants to end, 0 for none. The absence of a row
// proves that an imported hold is over, unless this node has answered for it: then the holder does
// not look after its row, and a failover may have lost it (rule 17).
func (p *Partition) Heard(list []Rumor, s fallback.State, now time.Time, fx *Effects) (revoked uint32) {
	o, row := p.own, 0
	if o == nil { // the partition was given back meanwhile
		for _, r := range list {
			if r.Key != "" {
				p.Freed(r.Key, r.ID, now, fx)
			}
		}
		return 0
	}
	if s.Record.Owner != o.session.ID || s.Record.Epoch != o.epoch || s.Record.Grace > 0 {
		return 0
	}
	for _, r := range list {
		if r.Key == "" {
			if s.Record.Revoked {
				revoked = o.epoch
			}
			continue
		}
		there := s.Rows[row].Identity == r.ID
		row++
		k := p.table.keys[r.Key]
		switch {
		case k == nil || k.others == nil || k.others.holder != r.ID:
		case there || guard.Absent && !k.others.restsOnRow():
			p.askHolder(k, now)
		default:
			p.freeHolder(k, now, fx)
		}
	}
	return revoked
}

// restsOnRow reports whether the hold has a row at the arbiter as long as it is in force.
func (g *grants) restsOnRow() bool { return g.imported && !g.vouched }

// askHolder asks the node that has a key whether it has it, at most once per RetryEvery (rule 13).
func (p *Partition) askHolder(k *Key, now time.Time) {
	g := k.others
	if now.Sub(g.asked) < p.cfg.RetryEvery {
		return
	}
	if g.link == nil {
		g.link = p.linkTo(g.holder.Session)
	}
	if g.link != nil {
		g.asked = now
		p.send(g.link, peer.Ask, k.name, g.holder)
	}
}

// disclaim makes the node of a hold's session remove the row that this node has written, if it has
// not got the hold. If this node leaves, it looks itself whether that session is over: there may be
// no node that does it later.
func (p *Partition) disclaim(key string, id fallback.Identity, fx *Effects) {
	if !guard.Hearsay {
		fx.Releases = append(fx.Releases, p.ReleaseOf(key, id))
		return
	}
	if l := p.cfg.View.LinkTo(id.Session); l != nil {
		p.send(l, peer.Ask, key, id)
	}
	if p.closing.ending == Leaving {
		out := p.order()
		out.Disclaimed = append(out.Disclaimed, p.ReleaseOf(key, id))
	}
}

// hearAgain makes the shell repeat the rumors that came while the rows were on their way.
func (p *Partition) hearAgain() {
	if len(p.moving.freedEarly) > 0 {
		out := p.order()
		out.Again = append(out.Again, p.moving.freedEarly...)
		p.moving.freedEarly = nil
	}
}

// Unknown is for a row of this process's session that was found at the arbiter. If this process has
// nothing to do with the key, the arbiter has lost its release along with other data: the row has
// no holder, and is removed.
func (p *Partition) Unknown(key string, id fallback.Identity, fx *Effects) {
	if p.phase == Unowned && p.own == nil && p.moving.exported == nil && p.table.keys[key] == nil {
		fx.Releases = append(fx.Releases, p.ReleaseOf(key, id))
	}
}
