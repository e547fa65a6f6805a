package lease

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/peer"
)

// moving has the requests, releases and rows of a partition while it is acquired or demoted.
type moving struct {
	offered    bool                        // while Acquiring, it has become known that the partition is free now
	expect     fallback.Expect             // the record as it was told; epoch 0: it was not
	giver      Link                        // that waits until this node has the partition; nil: none
	parked     []parked                    // requests of other nodes that wait for the end of Acquiring
	freedEarly []Rumor                     // holds that are said to have been released, while Acquiring or Demoting
	exported   map[string]fallback.Row     // that Demote writes; not to be changed
	late       map[string]fallback.Release // those of them that were given back meanwhile: a release that came before Demote would find no row to remove
}

// take begins to acquire the partition: the shell makes the calls, partition.startAcquiring. It
// does not soon after a failure or a revocation (notBefore), in another phase, at the end of the
// coordinator, or without a session. It reports whether the caller is to wait for the result.
func (p *Partition) take(now time.Time) bool {
	switch {
	case p.phase == Acquiring:
		return true
	case p.closing.ending != Open || p.phase != Unowned || now.Before(p.bounds.notBefore) || p.cfg.View.Session() == nil:
		return false
	}
	step(&p.phase, Acquiring, nextPhases[:])
	p.order().Acquire = true
	return true
}

// Take is take for a contender that was told to.
func (p *Partition) Take(now time.Time) { p.take(now) }

// BeginAcquire begins to acquire the partition for the balance, which may have read the record. It
// reports whether the calls are to be made.
func (p *Partition) BeginAcquire(read fallback.Expect) bool {
	if !p.idle() || p.closing.ending != Open {
		return false
	}
	step(&p.phase, Acquiring, nextPhases[:])
	p.moving.expect = read
	return true
}

// Expected returns the record that the first call of Acquire may expect, without a look at it: one
// that is not of older data than this node has seen, so that a look would have nothing to tell the
// arbiter (I1). If the record has changed since, Acquire is refused.
func (p *Partition) Expected() (x fallback.Expect, ok bool) {
	x, p.moving.expect = p.moving.expect, fallback.Expect{}
	if x.Epoch == 0 {
		return x, false
	}
	seen := p.Seen()
	if x.Owner == "" && x.Epoch == seen.Epoch() { // which tokens the record has given is not known
		return x, seen.Seq() == 0 || !guard.Above
	}
	return x, x.Epoch >= seen.Epoch() || !guard.Above
}

// EndAcquire is called when the calls of Acquire have ended, whatever came of them.
func (p *Partition) EndAcquire(now time.Time, fx *Effects) {
	if p.phase != Acquiring {
		return // Serve has ended it
	}
	step(&p.phase, Unowned, nextPhases[:])
	if p.moving.offered {
		p.moving.offered, p.bounds.notBefore = false, time.Time{}
		if p.take(now) {
			return
		}
	}
	p.bounds.notBefore, p.moving.giver = now.Add(p.cfg.RetryEvery), nil
	p.acquired(now, fx)
}

// InTheWay notes that the calls of Acquire have found a session as the owner, "" for none. The
// shell calls it before it asks whether that session is dead.
func (p *Partition) InTheWay(session string) { p.bounds.inTheWay = session }

// Died: a session is dead. If it was in the way of an acquisition, the partition may be acquired
// again at once. Contenders that wait for a stream to its node ask again.
func (p *Partition) Died(session string, fx *Effects) {
	if p.bounds.inTheWay == session {
		p.mayAcquire()
	}
	p.Reached(session, fx)
}

// mayAcquire lets the partition be acquired at once, because it is free now: again, if it is being
// acquired, as it may not have been free yet.
func (p *Partition) mayAcquire() {
	p.bounds.notBefore, p.moving.offered = time.Time{}, p.phase == Acquiring
}

// acquired serves or sends away the requests that waited for the end of Acquiring.
func (p *Partition) acquired(now time.Time, fx *Effects) {
	waiting := p.moving.parked
	p.moving.parked = nil
	p.hearAgain() // messages that came meanwhile are repeated
	p.wantAll(now, fx, p.own == nil)
	for _, x := range waiting {
		x.link.Use(-1) // request counts it again
		switch {
		case x.link.Down():
		case p.serves(now):
			p.request(x.claimant, x.key, x.try, now, fx)
		default:
			p.send(x.link, peer.Moved, x.key, x.id)
		}
	}
}

func newOwnership(s *Session, epoch uint32, confirmed time.Time) *ownership {
	return &ownership{session: s, epoch: epoch, confirmed: confirmed, hold: hold{session: s, source: SourceOwn}}
}

// Serve begins to grant the partition's keys, if the answer to Acquire came in time. The keys of
// the arbiter's rows are held already. It reports whether it does.
func (p *Partition) Serve(s *Session, got fallback.Acquisition, sent, now time.Time, fx *Effects) bool {
	o := newOwnership(s, got.Record.Epoch, sent)
	if Past(s.Deadline(), now) || Past(sent.Add(p.cfg.Lease), now) || p.closing.ending != Open || o.epoch <= p.bounds.forsworn && guard.Forsworn {
		if p.record.naming == NamedElsewhere { // nothing was ever announced at this epoch
			step(&p.record.naming, NamedPerhaps, nextNamings[:])
		}
		return false
	}
	p.own, p.bounds.unreachableSince, p.bounds.inTheWay, p.moving.offered = o, time.Time{}, "", false
	step(&p.record.naming, NamedElsewhere, nextNamings[:])
	p.show(SightServes, s.ID, o.epoch, nil)
	p.sawEpoch(got.Record)
	for key, k := range p.table.keys {
		if k.q.State() != handoff.Idle && k.hold.row.Identity != got.Rows[key].Identity {
			// While p.own is set, to give the hold back would grant the key to the next caller,
			// before the rows are imported.
			p.own = nil
			p.lose(k, Superseded, now, fx)
			p.own = o
		} else if k.q.State() != handoff.Idle {
			p.comeHome(k.hold)
			p.retract(k)
		}
	}
	p.attachAll()
	for key, row := range got.Rows {
		if guard.Import {
			p.imported(key, row, sent, now, fx)
		}
	}
	// Every other request is void: it was not executed before Acquire, and after it the answer is
	// that this node owns the partition; or its grant was given back. acquired makes new ones.
	for key, k := range p.table.keys {
		p.endContender(k)
		if l := k.request.link; l != nil {
			p.send(l, peer.Cancel, key, k.request.id())
			k.request = request{}
		}
		p.ungroup(k)
		p.tidy(k)
	}
	step(&p.phase, Owned, nextPhases[:])
	if l := p.moving.giver; l != nil {
		p.moving.giver = nil
		p.send(l, peer.Moved, "", fallback.Identity{}).Flags = FlagTaken
	}
	p.acquired(now, fx)
	return true
}

// comeHome makes a hold that has a row rest on this node's own partition.
func (p *Partition) comeHome(h *hold) {
	if h.remote() {
		p.basis.remote--
	}
	step(&h.source, SourceHome, nextSources[:])
	h.rowed, h.from, h.epoch, h.confirmed = true, nil, 0, time.Time{}
}

// imported enters a row that Acquire has answered with.
func (p *Partition) imported(key string, row fallback.Row, sent, now time.Time, fx *Effects) {
	k, s := p.Key(key), p.own.session
	if k.q.State() != handoff.Idle {
		return // this node's own
	}
	if row.Session != s.ID { // another's, or one of an earlier session of this node, which is as dead as any other's
		if k.others == nil {
			k.others = &grants{}
		}
		g := k.others
		g.holder, g.token, g.imported, g.link, g.alone = row.Identity, row.Token, true, p.linkTo(row.Session), now
		p.table.unsure = true
		return
	}
	if n := p.grantedByRows(k, row.Identity); n > 0 {
		if w := k.q.Take(uint64(row.Token), n, false, p.cfg.At(now)); w != nil {
			k.hold = p.newHold(hold{session: s, row: row, confirmed: sent})
			p.show(SightAccepts, s.ID, 0, k)
			p.basis.oldest = Earlier(p.basis.oldest, sent)
			p.basis.holds++
			p.seat(k, w, PathArbiter, now, fx)
			return
		}
	}
	fx.Releases = append(fx.Releases, p.ReleaseOf(key, row.Identity)) // a row without a holder
	p.ungroup(k)
	p.tidy(k)
}

// grantedByRows ends a request of this node's that turns out to be granted, as the partition's rows
// say before its own answer has come: no other node must be given the key meanwhile. It returns the
// size of the block of tokens, 0 if there is no such request.
func (p *Partition) grantedByRows(k *Key, id fallback.Identity) uint64 {
	switch {
	case k.contender != nil && k.contender.id == id:
		k.contender.id = fallback.Identity{} // so that Withdraw releases nothing
		p.endContender(k)
		return Block
	case k.request.link != nil && k.request.id() == id:
		k.request = request{}
		return delegated
	}
	return 0
}

// Forswear makes sure that an epoch is never served, because it is about to be demoted (rule 6). It
// reports false if it is served already.
func (p *Partition) Forswear(epoch uint32) bool {
	if p.own != nil && p.own.epoch >= epoch {
		return false
	}
	p.bounds.forsworn = max(p.bounds.forsworn, epoch)
	return true
}

// MayForswear reports whether a record that names this node may be demoted now: once all announced
// deadlines have passed (rule 6). acquiring tells that an acquisition makes the call.
func (p *Partition) MayForswear(acquiring bool, now time.Time) bool {
	return p.own == nil && p.phase != Demoting && (p.phase != Acquiring || acquiring) && (Over(p.bounds.announcedEnds, now) || !guard.Waits)
}

// BeginFreeing begins to ask for the partition of another node's to become Shared. It reports
// whether that is to be done.
func (p *Partition) BeginFreeing() bool {
	if p.phase != Unowned {
		return false
	}
	step(&p.phase, Freeing, nextPhases[:])
	return true
}

// EndFreeing is called when that has ended, whatever came of it.
func (p *Partition) EndFreeing() { step(&p.phase, Unowned, nextPhases[:]) }

// NotNamed notes that the record does not name this node.
func (p *Partition) NotNamed() { step(&p.record.naming, NamedElsewhere, nextNamings[:]) }

// Reachable notes that the owner of the partition can be reached.
func (p *Partition) Reachable() { p.bounds.unreachableSince = time.Time{} }

// Unreachable notes that the owner of a partition that should be this node's cannot be reached. It
// reports whether that has been so for long enough for its ownership to be revoked.
func (p *Partition) Unreachable(now time.Time) bool {
	if p.bounds.unreachableSince.IsZero() {
		p.bounds.unreachableSince = now
		return false
	}
	return now.Sub(p.bounds.unreachableSince) > p.cfg.RenewEvery
}
