//go:build simulation || mutants

package lease

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
)

// simulated reports whether transitions are compared with the tables of legal ones.
const simulated = true

// Illegal is called with the description of an illegal state. A simulation of a core without one of
// its guards notes it, and goes on.
var Illegal = func(text string) { panic("lease: " + text) }

// assertCommon tells of it (Illegal) if a hold may lapse earlier. The stream may end meanwhile: no
// mutex prevents that.
func (p *Partition) assertCommon(until time.Time) {
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

// AssertWanted tells of it (Illegal) if callers wait for a key that nothing is done about, so that
// they would wait for ever. An owner gives its keys away: by Lapsed, if it has just ceased to be
// one.
func (p *Partition) AssertWanted() {
	if p.closing.ending == Open && p.own == nil && p.phase != Acquiring && p.phase != Demoting { // wantAll follows these two
		p.assertWanted()
	}
	p.assertShared()
}

// assertKnown tells of it (Illegal) if a key is used that the partition has forgotten: its callers
// exclude no others.
func (k *Key) assertKnown() {
	if !k.known {
		Illegal("a key is used that was forgotten")
	}
}

// assertHeld tells of it (Illegal), and reports false, if a turn runs without a hold.
func (h *hold) assertHeld() bool {
	if h.session != nil {
		return true
	}
	Illegal("a turn runs without a hold")
	return false
}

// assertShared tells of it (Illegal) if a hold that keys share was written to.
func (p *Partition) assertShared() {
	if noHold != (hold{}) || p.own != nil && p.own.hold != (hold{session: p.own.session, source: SourceOwn}) {
		Illegal("a hold was changed that is not one key's alone")
	}
}

func (p *Partition) assertWanted() {
	for _, k := range p.table.keys {
		if k.q.State() == handoff.Idle && k.q.Waiting() > 0 && k.contender == nil && k.request.link == nil {
			Illegal("nothing is done about a key that callers wait for")
		}
	}
}

// assertCut tells of it (Illegal) if a key keeps a stream that the partition has not met.
func (p *Partition) assertCut(l Link) {
	is := func(c claimant) bool { return c.link == l }
	for _, k := range p.table.keys {
		if k.request.link == l || k.others != nil && (k.others.link == l || slices.ContainsFunc(k.others.queue, is)) {
			Illegal("a key of a stream that the partition has not met")
		}
	}
	if p.moving.giver == l {
		Illegal("a partition's giver at the end of a stream that the partition has not met")
	}
	if slices.ContainsFunc(p.moving.parked, func(x parked) bool { return x.link == l }) {
		Illegal("a request waits of a stream that the partition has not met")
	}
}

// assertSure tells of it (Illegal) if Doubtful would have something to do.
func (p *Partition) assertSure() {
	for _, k := range p.table.keys {
		if g := k.others; g != nil && g.holder != (fallback.Identity{}) && g.doubtful() {
			Illegal("a hold to be asked after, and the partition is sure of all")
		}
	}
}
