package lease

import (
	"time"

	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/peer"
)

// The fate of a hold of another grantor's key that no caller uses: it is kept in the shell's list
// (Keep, finish). The shell calls Relax for each key there. If no caller has come for long enough,
// giveBack sends the hold back, and dropped forgets the key. A hold that another caller or node
// wants goes by giveBack, too.

// Keep ends a turn under a hold of another's key, which lingers then. As EndOwn it reads no clock,
// for nothing is granted: so Relax begins to count when it comes by (undated). It reports false if
// the caller has to do it by Unlock: one in 64, to be measured; and a turn that may leave more to
// do, as where the key is not in the shell's list yet (listed): finish puts it there.
func (p *Partition) Keep(t *Turn, fence uint64) bool {
	k := t.key
	if t.fence != fence || t.lost != nil || k.hold.source == SourceOwn || k.others != nil || t.end != nil || t.pledge != nil || !k.listed ||
		p.closing.ending != Open || p.granted[PathTurn]%64 == 0 || t.began == Unmeasured || !k.q.Keep() {
		return false
	}
	k.undated = true
	k.endWanted()
	t.fence = 0
	t.forget()
	p.closing.turns--
	return true
}

// Relax gives the hold back if it has lingered for long enough. It reports false if it has to
// linger on.
func (p *Partition) Relax(k *Key, now time.Time, fx *Effects) bool {
	if k.q.State() == handoff.Lingering && k.undated {
		k.undated, k.since = false, p.cfg.At(now)
	}
	if k.q.State() == handoff.Lingering && p.cfg.At(now)-k.since < p.cfg.Handoff.Linger {
		return false
	}
	k.listed, fx.Idle = false, true
	if k.q.Relax() == handoff.GiveBack {
		p.giveBack(k, now, fx)
	}
	return true
}

// giveBack returns the hold that the queue has let go of, and gets another if a caller waits.
func (p *Partition) giveBack(k *Key, now time.Time, fx *Effects) {
	h := k.hold
	if h.callPending {
		out := p.order()
		out.Doubts = append(out.Doubts, Doubt{k.name, h.row.Identity, now.Add(p.cfg.SessionTTL)})
	}
	local := h.source == SourceOwn || h.keepRow
	if !local && (h.source != SourceOwner || !h.confirmed.IsZero() || h.rowed || h.from.Down()) { // there is a row, or may be
		fx.Releases = append(fx.Releases, p.ReleaseOf(k.name, h.row.Identity))
	}
	if !local && p.cfg.Clustered && p.own == nil {
		p.handBack(k)
	}
	p.dropped(k, now, fx)
}

// handBack tells the owner that a hold is given back. An owner that does not hear it asks (rule
// 13).
func (p *Partition) handBack(k *Key) {
	l := k.hold.from
	switch {
	case k.hold.source != SourceOwner: // there is a row, and the present owner of the partition has read it
		last := l
		l = p.cfg.View.Route(p.number).Link
		if last != nil && last != l && !last.Down() { // or the last owner is about to write it
			p.send(last, peer.Release, k.name, k.hold.row.Identity)
		}
	case l.Down():
		l = p.linkNode(l.Node())
	}
	if l != nil {
		p.send(l, peer.Release, k.name, k.hold.row.Identity)
	}
}

// dropped is called when the queue has dropped its hold.
func (p *Partition) dropped(k *Key, now time.Time, fx *Effects) {
	if k.hold.remote() {
		p.basis.remote--
	}
	if k.hold.source != SourceOwn {
		p.show(SightDrops, k.hold.row.Session, 0, k)
	}
	p.endHold(k)
	k.undated = false
	p.retract(k)
	p.basis.holds--
	switch {
	case k.q.Waiting() == 0 && k.others == nil: // it is not wanted
	case p.own == nil:
		p.want(k, now, fx, false)
	case k.q.Waiting() > 0:
		p.wantHere(k, now, fx)
	default:
		p.grantNext(k, now, fx)
	}
	p.tidy(k)
}
