package lease

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/peer"
)

// Lapsed takes away the lapsed holds and the lapsed ownership. It returns when the next may lapse,
// zero if there is none. If a step of the wall clock has ended the session that owns the partition,
// FreezeStepped gives it back with its rows instead.
func (p *Partition) Lapsed(now time.Time, fx *Effects) time.Time {
	if p.own != nil && p.own.stepped(now) {
		return now
	}
	if p.own != nil && !p.serves(now) {
		p.letGo(now, fx)
	}
	var next time.Time
	if p.own != nil {
		next = p.ownedUntil()
	}
	if p.basis.holds == 0 {
		return next
	}
	if until, ok := p.until(now); p.basis.remote > 0 && ok { // all of them rest on one stream
		next = Earlier(next, until)
	} else if p.basis.remote > 0 { // each has a deadline of its own
		c := common{known: true}
		for _, k := range p.table.keys {
			if k.hold.remote() && p.InForce(k, now, fx) {
				next = Earlier(next, p.deadlines(k.hold).Slot)
				c.add(k.hold)
			}
		}
		p.basis.common = c
	}
	return p.lapsedRows(next, now, fx)
}

// lapsedRows takes away holds with rows that were not confirmed in time, and returns the earlier
// one of next and their next deadline.
func (p *Partition) lapsedRows(next, now time.Time, fx *Effects) time.Time {
	if p.basis.oldest.IsZero() {
		return next
	}
	lapse := p.basis.oldest.Add(p.cfg.Lease)
	if Past(lapse, now) {
		p.basis.oldest = time.Time{}
		for _, k := range p.table.keys {
			if p.InForce(k, now, fx) && !k.hold.confirmed.IsZero() {
				p.basis.oldest = Earlier(p.basis.oldest, k.hold.confirmed)
			}
		}
		if p.basis.oldest.IsZero() {
			return next
		}
		lapse = p.basis.oldest.Add(p.cfg.Lease)
	}
	return Earlier(next, lapse)
}

// LoseAll takes away the holds of a session, or all for a nil one.
func (p *Partition) LoseAll(s *Session, cause Cause, now time.Time, fx *Effects) {
	owned := p.own != nil && (s == nil || p.own.session == s)
	if owned {
		over := p.own.session.Deadline().IsZero()
		p.freeze(Unowned)
		if over { // the record names that session: others have the partition only when it is dead, and all announced deadlines have passed
			p.bounds.announcedEnds, p.bounds.reliedUntil = time.Time{}, time.Time{}
		}
	}
	p.loseHolds(s, cause, now, fx)
	if owned { // callers of this node's own waited behind other nodes
		p.wantAll(now, fx, true)
	}
}

// loseHolds is LoseAll once the partition is not served any more.
func (p *Partition) loseHolds(s *Session, cause Cause, now time.Time, fx *Effects) {
	for _, k := range p.table.keys {
		if k.q.State() != handoff.Idle && (s == nil || k.hold.session == s) {
			p.lose(k, cause, now, fx)
		}
		if l := k.request.link; l != nil && (s == nil || k.request.session == s) {
			id := k.request.id()
			k.request = request{}
			p.send(l, peer.Cancel, k.name, id)
			p.want(k, now, fx, true)
		}
	}
}

// FreezeStepped ends the ownership and the holds of a session that a step of the wall clock has
// ended. It reports whether Demote is to be called. The rows of locks that this node's own callers
// have just lost are written and kept: a caller may still be at work.
func (p *Partition) FreezeStepped(s *Session, now time.Time, fx *Effects) (x Frozen, ok bool) {
	o := p.own
	if o == nil || o.session != s || p.phase == Demoting {
		p.loseHolds(s, SessionExpired, now, fx)
		return Frozen{}, false
	}
	x = Frozen{Tenure: Tenure{o.session, o.epoch}, slot: p.slotEnds(), Holds: p.freeze(Demoting), Stepped: true}
	p.moving.exported, p.moving.late = x.Holds, make(map[string]fallback.Release)
	for key, k := range p.table.keys {
		if row, ok := x.Holds[key]; ok && row == k.hold.row {
			k.hold.keepRow = true
		}
	}
	p.loseHolds(s, SessionExpired, now, fx)
	return x, true
}

// Break takes the hold of a key away from the caller that has the lock with a token, for a cause,
// and why. It reports false if no caller has that lock. The hold is given back as if it had been
// unlocked: the loss is an ordered effect, and comes first.
func (p *Partition) Break(key string, fence uint64, cause Cause, why string, now time.Time, fx *Effects) bool {
	k := p.table.keys[key]
	if k == nil || k.q.State() != handoff.Turn || k.turn.fence != fence || !p.InForce(k, now, fx) {
		return false
	}
	p.loseFor(k, cause, why, now, fx)
	return true
}

// lose takes the hold away from the callers. The row may still be at the arbiter: it is released.
func (p *Partition) lose(k *Key, cause Cause, now time.Time, fx *Effects) {
	p.loseFor(k, cause, "", now, fx)
}

func (p *Partition) loseFor(k *Key, cause Cause, why string, now time.Time, fx *Effects) {
	if k.q.State() == handoff.Turn {
		t := k.turn
		loss := Loss{Key: k.name, Fence: t.fence, Cause: cause, Why: why, End: t.end}
		t.lost = &loss
		t.retract()
		fx.Losses = append(fx.Losses, loss)
		if loss.End != nil {
			out := p.order()
			out.Losses = append(out.Losses, loss)
		}
		k.turn = &Turn{key: k} // the lost one belongs to its lock
		k.endWanted()
		p.closing.turns--
	}
	k.q.Drop()
	p.giveBack(k, now, fx)
}
