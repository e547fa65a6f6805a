package lease

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
)

// The functions below are for simulations (coord/simulated.go) and tests: no event of a program
// calls them.

// A HoldStatus is a hold as a simulation sees it.
type HoldStatus struct {
	Identity fallback.Identity
	Source   Source
	Epoch    uint32 // of the owner that it rests on
	Until    Deadlines
}

// HoldOf returns this node's hold of a key.
func (p *Partition) HoldOf(key string) (h HoldStatus, ok bool) {
	k := p.table.keys[key]
	if k == nil || k.q.State() == handoff.Idle {
		return HoldStatus{}, false
	}
	return HoldStatus{k.hold.row.Identity, k.hold.source, k.hold.epoch, p.deadlines(k.hold)}, true
}

// HolderOf returns the other node's hold of a key that this node, the owner, knows of; zero if
// there is none. imported tells that it did not grant the hold.
func (p *Partition) HolderOf(key string) (id fallback.Identity, imported bool) {
	if k := p.table.keys[key]; k != nil && k.others != nil {
		return k.others.holder, k.others.imported
	}
	return fallback.Identity{}, false
}

// RequestOf returns the request for a key that is at its owner; a nil stream if there is none.
func (p *Partition) RequestOf(key string) (Link, fallback.Identity) {
	if k := p.table.keys[key]; k != nil {
		return k.request.link, k.request.id()
	}
	return nil, fallback.Identity{}
}

// LastSeq returns the number of the last token that was given out by this node, which serves the
// partition.
func (p *Partition) LastSeq() uint32 { return p.own.seq }

// Describe returns this node's knowledge of a key.
func (p *Partition) Describe(key string, now time.Time) string {
	var s strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&s, format+"; ", args...) }
	say("partition %d, %v, %v, %v, %v", p.number, p.phase, p.record.naming, p.closing.ending, p.record.looking)
	if o := p.own; o != nil {
		say("owned by session %.4s at %d", o.session.ID, o.epoch)
	}
	if !Over(p.bounds.reliedUntil, now) {
		say("an earlier epoch is relied on")
	}
	say("should be this node's: %v, forsworn %d, %d parked", p.cfg.View.Route(p.number).Mine, p.bounds.forsworn, len(p.moving.parked))
	k := p.table.keys[key]
	if k == nil {
		return s.String()
	}
	say("%v, %d wait", k.q.State(), k.q.Waiting())
	if k.q.State() != handoff.Idle {
		h := k.hold
		say("hold of session %.4s with row %v, confirmed %.3f s ago, rests on %v at %d, recalled %v",
			h.session.ID, h.row, now.Sub(h.confirmed).Seconds(), h.source, h.epoch, k.q.Recalled())
		d := p.deadlines(h)
		say("session's deadline in %.3f s, slot's in %.3f s", d.Session.Sub(now).Seconds(), d.Slot.Sub(now).Seconds())
	}
	if x := k.contender; x != nil {
		say("asks the arbiter as %v: %v", x.id, x.trouble)
	}
	if l := k.request.link; l != nil {
		say("asks %v as %v", l.Node(), k.request.id())
	}
	if g := k.others; g != nil {
		say("granted to %v, imported %v, recalled %v, stream %v, %d nodes wait", g.holder, g.imported, !g.recalled.IsZero(), g.link != nil, len(g.queue))
	}
	if g := k.group(); g != nil {
		for _, x := range g.keys[1:] {
			_, m := fallback.Split(x.name)
			say("%v: %v, callers share it: %v, empty %v, recalled %v, %d wait; granted to %v, %d nodes wait", m, x.q.State(), x.turn.pledge != nil,
				x.empty(), x.q.Recalled(), x.q.Waiting(), x.others.holder, len(x.others.queue))
		}
	}
	return s.String()
}

// Reconfirm changes when the ownership of a session was confirmed: a test lets a clock step.
func (p *Partition) Reconfirm(s *Session, f func(time.Time) time.Time) {
	if p.own != nil && p.own.session == s {
		p.own.confirmed, p.own.goodUntil, p.own.quickUntil = f(p.own.confirmed), time.Time{}, 0
	}
	for _, k := range p.table.keys {
		p.retract(k) // deadlines are nearer now
	}
}

// Others calls f with each identity of other nodes that have a key of this node's partition, or
// wait for one.
func (p *Partition) Others(f func(key string, id fallback.Identity)) {
	for key, k := range p.table.keys {
		if k.others == nil {
			continue
		}
		if k.others.holder != (fallback.Identity{}) {
			f(key, k.others.holder)
		}
		for _, c := range k.others.queue {
			if c.link != nil {
				f(key, c.id)
			}
		}
	}
}

// Forget drops another node's hold of a key, as no event does: a test sees whether that is noticed.
func (p *Partition) Forget(key string) {
	if k := p.table.keys[key]; k != nil && k.others != nil {
		k.others.holder, k.others.link = fallback.Identity{}, nil
	}
}
