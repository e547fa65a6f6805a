package lease

import "time"

// bounds are the epochs and times that limit when a partition is served or acquired. A table in
// demote.go lists their changes.
type bounds struct {
	forsworn         uint32    // epochs up to this one are never served
	notBefore        time.Time // the partition is not acquired earlier
	inTheWay         string    // the session that the last acquisition has found as the owner, "" if none: see Died
	announcedEnds    time.Time // when the last deadline announced at an epoch of this node's has passed by any node's clock
	reliedUntil      time.Time // when the last such deadline has passed, of an epoch that the arbiter may not have demoted
	unreachableSince time.Time // its owner cannot be reached
}

// A Placement is a partition's place on the ring.
type Placement struct {
	Known  bool // there is a node that should own it
	Mine   bool // this one
	Agreed bool // the ring is stable, and that node has the same placement (rule 4)
	Outlook
}

// An Outlook is the arbiter's likely answer to a Demote, as far as it is known before the call.
type Outlook struct {
	Grace   bool      // nothing is demoted in Grace: the arbiter would refuse it
	Silent  bool      // the arbiter has not answered the last call
	Overdue time.Time // when a Demote was sent that is not answered in time; zero: none is
}

// A Duty is a task of the balance for a partition.
type Duty uint8

// The duties.
const (
	DutyNone Duty = iota
	DutyLook      // to find out whether the record names this node
	DutyTake      // to acquire the partition
	DutyGive      // to demote it
	DutyWait      // for a call that is under way or due, for nodes to agree, or for Grace to end
	Duties
)

// Duty decides. DutyLook begins LookingAtRecord, which EndLook ends. A partition that should be
// this node's, and may be acquired, needs no look of its own: the shell reads the record before it
// acquires, and demotes one that names this node, as a look does.
func (p *Partition) Duty(x Placement, now time.Time) Duty {
	idle := p.idle()
	switch {
	case idle && p.record.naming != NamedElsewhere && Over(p.bounds.announcedEnds, now) && (!x.Mine || now.Before(p.bounds.notBefore)):
		if now.Sub(p.record.lookedAt) <= p.cfg.RetryEvery {
			return DutyWait
		}
		p.record.lookedAt = now
		step(&p.record.looking, LookingAtRecord, nextLookings[:])
		return DutyLook
	case idle && x.Mine && now.After(p.bounds.notBefore):
		return DutyTake
	case idle && x.Mine:
		return DutyWait
	case p.MayGive(x.Outlook, now) && (p.own.seq >= lastSeq || x.Known && !x.Mine && x.Agreed):
		return DutyGive
	case p.own != nil && (p.own.seq >= lastSeq || x.Known && !x.Mine), x.Mine && p.own == nil:
		return DutyWait
	}
	return DutyNone
}

// EndLook ends LookingAtRecord.
func (p *Partition) EndLook() { step(&p.record.looking, NotLooking, nextLookings[:]) }

// idle reports whether this node has nothing to do with the partition, and is not about to.
func (p *Partition) idle() bool { return p.phase == Unowned && p.record.looking == NotLooking }

// MayGive reports whether this node serves the partition, and the arbiter is likely to take it back
// at once. Else it is not given back: no node could serve it until the arbiter answers, and the
// granted holds would lapse.
func (p *Partition) MayGive(x Outlook, now time.Time) bool {
	if p.own == nil || x.Grace || x.Silent {
		return false
	}
	at := p.own.confirmed
	return at.After(x.Overdue) && now.Sub(at) < p.cfg.RenewEvery+p.cfg.RetryEvery
}
