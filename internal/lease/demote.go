package lease

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/peer"
)

// The times of bounds when this node gives a partition up:
//
//	freeze         announcedEnds and reliedUntil are the end of possible announcements, and M
//	               more: the slot's, as the session may be renewed, and a Pong may say so, until
//	               the holders are told.
//	BeginDemote    notBefore is when this node may acquire the partition again, as giveUp says; letGo: after RetryEvery.
//	EndDemote      both are lowered to the session's deadline by now and M more, if that is earlier: the holders have been told.
//	               reliedUntil is cleared if the record is at that epoch no more: no holder relies on
//	               that, as the holds have rows, which the next owner respects.
//	               announcedEnds stays: until then a holder may give back a hold by a Release frame, though it has a row by now.
//	LoseAll        clears both if the session is over.
//	reliedUntil    has passed, where Demote was not answered, or refused in Grace: other nodes may have the partition (Left).
//	announcedEnds  has passed: a record that names this node still may be demoted (MayForswear).
//	notBefore      has passed, or the last owner has said that the partition is free (Moved): it may be acquired (take, Duty).
//
// EndAcquire sets notBefore, too, after an acquisition in vain, to RetryEvery later. Died clears it.

// A Tenure names an ownership. Its zero value is none.
type Tenure struct {
	Session *Session
	Epoch   uint32
}

// A Frozen is a partition that was frozen, and is to be demoted.
type Frozen struct {
	Tenure
	slot    time.Time               // the end of the ownership, if the session does not end before
	Holds   map[string]fallback.Row // to be written; not to be changed
	Stepped bool                    // a step of the clock has ended its session
}

// BeginDemote freezes the partition, which is not to be acquired again for some time. Holds in
// force stay in force (rule 5). It reports whether Demote is to be called.
func (p *Partition) BeginDemote(avoid time.Duration, now time.Time, fx *Effects) (x Frozen, ok bool) {
	o := p.own
	if o == nil || p.phase == Demoting {
		return Frozen{}, false
	}
	x = Frozen{Tenure: Tenure{o.session, o.epoch}, slot: p.slotEnds(), Holds: p.freeze(Demoting)}
	if !guard.Freeze {
		p.own = o
	}
	p.moving.exported, p.moving.late = x.Holds, make(map[string]fallback.Release)
	p.bounds.notBefore = now.Add(avoid)
	return x, true
}

// MayGiveUp reports whether the partition can be demoted, at an epoch, or at any for 0.
func (p *Partition) MayGiveUp(epoch uint32) bool {
	return p.own != nil && (epoch == 0 || p.own.epoch == epoch) && p.phase != Demoting
}

// EndDemote is called when Demote has been answered, or is given up. demoted tells that the arbiter
// did it, and stale that it had been done; sent is the time of the last call.
func (p *Partition) EndDemote(x Frozen, demoted, stale bool, sent, now time.Time, fx *Effects) {
	if !guard.Freeze {
		p.own = nil
	}
	for _, r := range p.moving.late {
		fx.Releases = append(fx.Releases, r)
	}
	step(&p.phase, Unowned, nextPhases[:])
	p.moving.exported, p.moving.late = nil, nil
	// The holders have been told by now, and rely on no later deadline of the session's.
	p.bounds.announcedEnds = Earlier(x.slot, x.Session.Deadline()).Add(p.cfg.Margin)
	// demoted: the holds have rows, so no holder relies on the epoch for longer. stale: an earlier
	// call of this Demote has written them; or another session, which saw this one dead, has
	// acquired the partition, or a Grace has ended: by then all announced deadlines have passed.
	// docs/protocol.md lists the effects of old data here as not covered.
	if demoted || stale {
		p.bounds.reliedUntil = time.Time{}
		step(&p.record.naming, NamedElsewhere, nextNamings[:])
	} else {
		p.bounds.reliedUntil = p.bounds.announcedEnds
		step(&p.record.naming, NamedSurely, nextNamings[:])
	}
	for key, row := range x.Holds {
		k := p.holding(key, row)
		switch {
		case demoted && k != nil && !Past(sent.Add(p.cfg.Lease), now):
			k.hold.confirmed = sent
			p.basis.oldest = Earlier(p.basis.oldest, sent)
		case (demoted || stale) && k == nil && row.Session == x.Session.ID && !x.Stepped: // given back before it had the row
			fx.Releases = append(fx.Releases, p.ReleaseOf(key, row.Identity))
		}
	}
	p.wantAll(now, fx, true)
	p.hearAgain() // messages that came meanwhile are repeated
}

// unrow removes the row of a hold that was given back, once it is there: while Demote, which writes
// it, is under way, a release would come before the row. So EndDemote makes it.
func (p *Partition) unrow(r fallback.Release, fx *Effects) {
	switch {
	case p.phase != Demoting:
		fx.Releases = append(fx.Releases, r)
	case p.moving.exported[r.Key].Identity == r.Identity:
		p.moving.late[r.Key] = r
	}
}

// freeze ends the service: nothing is granted any more at this epoch. It tells the holders, and
// returns all holds. Those of this node's own callers go on like those of others, until the
// deadline of this moment if they do not get a row.
func (p *Partition) freeze(next Phase) map[string]fallback.Row {
	o, slot, until := p.own, p.slotEnds(), p.ownedUntil()
	p.own = nil
	p.show(SightFreezes, o.session.ID, o.epoch, nil)
	step(&p.phase, next, nextPhases[:])
	p.bounds.announcedEnds = slot.Add(p.cfg.Margin) // by the holders' clocks, which may be slower
	p.bounds.reliedUntil = p.bounds.announcedEnds   // until EndDemote knows that the holds have rows
	holds := make(map[string]fallback.Row)
	told := make(map[Link]bool)
	for key, k := range p.table.keys {
		if k.q.State() == handoff.Lingering && k.hold.source == SourceOwn {
			k.q.Relax()
			p.basis.holds--
			p.endHold(k)
		}
		if k.q.State() != handoff.Idle {
			p.freezeHold(k, o, until)
			holds[key] = k.hold.row
		}
		g := k.others
		k.others = nil
		if g != nil {
			if g.holder != (fallback.Identity{}) {
				holds[key] = fallback.Row{Identity: g.holder, Token: g.token}
			}
			p.tellFrozen(key, g, o.epoch, told)
		}
		p.tidy(k)
	}
	return holds
}

// letGo ends an ownership, which there is, that has lapsed or was lost. Its holds are adopted, or
// lost.
func (p *Partition) letGo(now time.Time, fx *Effects) {
	p.freeze(Unowned)
	p.bounds.notBefore = now.Add(p.cfg.RetryEvery)
	p.wantAll(now, fx, true)
	fx.Adopt = true
}

// freezeHold makes a hold of this node's own rest on a row that it is about to get.
func (p *Partition) freezeHold(k *Key, o *ownership, until time.Time) {
	p.retract(k)
	switch k.hold.source {
	case SourceOwn:
		k.hold = p.newHold(*k.hold)
		p.leaveHome(k.hold, o.epoch, until)
		k.hold.row = fallback.Row{
			Identity: fallback.Identity{Session: o.session.ID, Request: p.cfg.Requests.Add(1)}, Token: fallback.Token(k.turn.fence),
		}
		p.show(SightKeeps, o.session.ID, o.epoch, k)
	case SourceHome:
		p.leaveHome(k.hold, o.epoch, until)
	}
}

// leaveHome freezes a hold that rested on this node's own partition, which is not served any more.
func (p *Partition) leaveHome(h *hold, epoch uint32, until time.Time) {
	step(&h.source, SourceFrozen, nextSources[:])
	h.epoch, h.announced = epoch, until
	p.basis.remote++
	p.basis.common.known = false
}

// tellFrozen tells the holder of a key that its epoch is frozen, once per stream, and the nodes
// that wait that it has no owner.
func (p *Partition) tellFrozen(key string, g *grants, epoch uint32, told map[Link]bool) {
	if g.holder != (fallback.Identity{}) && g.link != nil && !told[g.link] && guard.Told {
		told[g.link] = true
		p.send(g.link, peer.Frozen, "", fallback.Identity{}).Epoch = epoch
	}
	for _, c := range g.queue {
		if c.link != nil {
			p.send(c.link, peer.Moved, key, c.id)
		}
	}
}
