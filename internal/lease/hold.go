package lease

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/internal/guard"
)

// hold is this process's right to a key, with the source that it rests on.
type hold struct {
	session   *Session
	row       fallback.Row
	confirmed time.Time // the sending of the last call with an answer that confirmed the row; zero: no answer did

	source      Source
	rowed       bool // there is a row, or may be, though it is not read any more (rule 17)
	keepRow     bool // the row that Demote writes is not to be released: a step of the clock has ended the session, and its caller may be at work
	callPending bool // a call that makes its row may be executed yet

	// Of SourceOwner and SourceFrozen.
	epoch     uint32    // of the owner that answers for the hold
	from      Link      // the owner's stream; nil: the owner was this node
	announced time.Time // the owner's deadline (rule 7)
	pongs     uint64    // so many there were when the grant came: a later one may extend it, if its source is SourceOwner

	next *hold // of the spare ones
}

// spareHolds is the number of unused holds that a partition keeps at most.
const spareHolds = 2

// noHold is the hold of a key that has none. It is not to be written to.
var noHold hold

// newHold returns a hold of one key.
func (p *Partition) newHold(h hold) *hold {
	x := p.table.spare
	if x == nil {
		x = new(hold)
	} else {
		p.table.spare = x.next
		p.table.spares--
	}
	*x = h
	return x
}

// endHold takes a key's hold away.
func (p *Partition) endHold(k *Key) {
	if k.hold != &noHold && k.hold.source != SourceOwn {
		*k.hold = hold{}
		if p.table.spares < spareHolds {
			k.hold.next, p.table.spare = p.table.spare, k.hold
			p.table.spares++
		}
	}
	k.hold = &noHold
}

// remote reports whether the hold may have no row.
func (h *hold) remote() bool { return h.source == SourceOwner || h.source == SourceFrozen }

// deadlines returns when the hold lapses.
func (p *Partition) deadlines(h *hold) Deadlines {
	if h.source == SourceOwn && p.own != nil && !p.own.goodUntil.IsZero() && !p.own.apart {
		return Deadlines{p.own.goodUntil, p.own.goodUntil} // both are not earlier than that (extend)
	}
	d := Deadlines{Session: h.session.Deadline()}
	switch {
	case (h.source == SourceOwn || h.source == SourceHome) && p.own != nil:
		d.Slot = p.own.confirmed.Add(p.cfg.Lease)
	case h.confirmed.IsZero() && !guard.Announced:
		d.Slot = d.Session
	case h.confirmed.IsZero():
		d.Slot = h.announcedUntil()
	default:
		d.Slot = h.confirmed.Add(p.cfg.Lease)
		if h.remote() {
			if at := h.announcedUntil(); at.After(d.Slot) {
				d.Slot = at
			}
		}
	}
	return d
}

// InForce checks the key's hold against the clock, and takes it away if it has lapsed (rule 1).
func (p *Partition) InForce(k *Key, now time.Time, fx *Effects) bool {
	if k.q.State() == handoff.Idle {
		return false
	}
	if k.hold.source == SourceOwn && p.Good(now) {
		return true
	}
	if !k.hold.assertHeld() {
		return false
	}
	if !p.deadlines(k.hold).Past(now) {
		return true
	}
	cause := LeaseExpired
	if Past(k.hold.session.Deadline(), now) {
		cause = SessionExpired
	}
	p.lose(k, cause, now, fx)
	return false
}

// holding returns the key if it has that very hold.
func (p *Partition) holding(key string, row fallback.Row) *Key {
	if k := p.table.keys[key]; k != nil && k.q.State() != handoff.Idle && k.hold.row == row {
		return k
	}
	return nil
}

// announcedUntil returns the deadline of a hold without a row, which its owner has announced.
func (h *hold) announcedUntil() time.Time {
	if h.source != SourceOwner {
		return h.announced
	}
	return h.from.Announced(h.announced, h.pongs)
}
