package lease

import (
	"time"

	"github.com/holdfast-go/holdfast/handoff"
)

// common is the one stream to an owner that all of a partition's remote holds rest on, if they do.
// What the owner has announced there is a bound for all their deadlines, so not each has to be
// looked at.
type common struct {
	known bool // false: each hold is to be looked at
	from  Link
	pongs uint64 // the owner's word is for each hold after more pongs
}

// add takes one of the holds in. c begins with known set.
func (c *common) add(h *hold) {
	if h.source != SourceOwner || c.from != nil && c.from != h.from {
		c.known = false
		return
	}
	c.from, c.pongs = h.from, max(c.pongs, h.pongs)
}

// until returns when the first of the remote holds may lapse, and reports false if each has to be
// looked at.
func (p *Partition) until(now time.Time) (until time.Time, ok bool) {
	c := &p.basis.common
	if !c.known || c.from == nil || c.from.Down() {
		return time.Time{}, false
	}
	until = c.from.Announced(time.Time{}, c.pongs)
	ok = !until.IsZero() && !Past(until, now)
	if ok && checked {
		p.checkCommon(until)
	}
	return until, ok
}

// checkCommon panics if a hold may lapse earlier. The stream may end meanwhile, of which no mutex
// keeps it.
func (p *Partition) checkCommon(until time.Time) {
	for _, k := range p.table.keys {
		h := k.hold
		if k.q.State() == handoff.Idle || !h.remote() || !h.ownerGone() && !p.deadlines(h).Slot.Before(until) {
			continue
		}
		if !p.basis.common.from.Down() {
			Illegal("a hold does not rest on the stream that all are said to rest on")
		}
	}
}

// CheckWanted panics if callers wait for a key that nothing is done about, so that they would wait
// for ever. An owner gives its keys away: by Lapsed, if it has just ceased to be one.
func (p *Partition) CheckWanted() {
	if checked && p.closing.ending == Open && p.own == nil && p.phase != Acquiring && p.phase != Demoting { // wantAll follows these two
		p.checkWanted()
	}
	if checked {
		p.checkShared()
	}
}

// checkShared panics if a hold that keys share was written to.
func (p *Partition) checkShared() {
	if noHold != (hold{}) || p.own != nil && p.own.hold != (hold{session: p.own.session, source: SourceOwn}) {
		Illegal("a hold was changed that is not one key's alone")
	}
}

func (p *Partition) checkWanted() {
	for _, k := range p.table.keys {
		if k.q.State() == handoff.Idle && k.q.Waiting() > 0 && k.contender == nil && k.request.link == nil {
			Illegal("nothing is done about a key that callers wait for")
		}
	}
}
