package lease

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/peer"
)

// requestOf returns the key of the request that a frame is about, nil if it is over.
func (p *Partition) requestOf(l Link, f *peer.Frame) *Key {
	k := p.table.keys[string(f.Key)]
	if k == nil || k.request.link != l || k.request.number != f.Request {
		return nil
	}
	return k
}

// ours is the identity, in a frame from an owner, of a request or hold of this node's.
func ours(f *peer.Frame) fallback.Identity {
	return fallback.Identity{Session: string(f.Session), Request: f.Request}
}

// Granted: the owner gives a key, with a deadline that pongs after so many extend; or it answers
// for a hold (rule 17). It returns the waiter that has the turn, if any.
func (p *Partition) Granted(l Link, f *peer.Frame, deadline time.Time, pongs uint64, now time.Time, fx *Effects) *Waiter {
	s, k := p.cfg.View.Session(), p.requestOf(l, f)
	if f.Count == 0 {
		k = nil // the owner answers for a hold that this node has stated or offered
	}
	// If the grant is doubtful the arbiter is asked: it knows the present owner of the partition.
	doubtful := k != nil && !p.believable(fallback.Token(f.Token), now)
	if k == nil || doubtful || s == nil || p.own != nil || k.request.session != s || k.q.State() != handoff.Idle {
		p.notRequested(l, f, k, doubtful, deadline, pongs, now, fx)
		return nil
	}
	h := hold{
		session: s, row: fallback.Row{Identity: k.request.id(), Token: fallback.Token(f.Token)},
		source: SourceOwner, from: l, epoch: f.Epoch, announced: deadline, pongs: pongs,
	}
	k.request = request{}
	var w *Waiter
	until := p.deadlines(&h) // it rests on its owner: deadlines takes the announced one (announcedUntil)
	if !until.Past(now) {
		w = k.q.Take(f.Token, uint64(f.Count), f.Flags == FlagContended || k.asked, p.cfg.At(now))
	}
	if w == nil {
		p.send(l, peer.Release, k.name, h.row.Identity)
		p.want(k, now, fx, true)
		p.tidy(k)
		return nil
	}
	k.hold, p.tokens.brought = p.newHold(h), h.row.Token+fallback.Token(f.Count-1)
	p.show(SightAccepts, s.ID, 0, k)
	p.basis.holds++
	p.basis.remote++
	p.basis.common.known = false // each remote hold is to be looked at once more

	if left := until.Slot.Sub(now); left < p.cfg.RenewEvery { // its owner may be about to lose the partition
		if guard.Sooner {
			fx.Sooner = Earlier(fx.Sooner, until.Slot)
		}
		if !p.cfg.View.Adoption().Trusts(false, left) {
			fx.Adopt = true // the next look may be too late
		}
	}
	p.seatUntil(until, k, w, PathForwarded, now, fx)
	return w
}

// notRequested handles a grant without a pending request of this node's, or a doubtful one. k is
// the key if there is a request.
func (p *Partition) notRequested(l Link, f *peer.Frame, k *Key, doubtful bool, deadline time.Time, pongs uint64, now time.Time, fx *Effects) {
	if h := p.table.keys[string(f.Key)]; h != nil && h.q.State() != handoff.Idle && h.hold.row.Identity == ours(f) {
		p.vouched(l, h.hold, f.Epoch, deadline, pongs, now)
		p.retract(h)
		return
	}
	p.send(l, peer.Release, string(f.Key), ours(f)) // no caller waits for it any more (rule 11)
	if k != nil {
		k.request = request{}
		if doubtful {
			k.askElsewhere()
		}
		p.want(k, now, fx, doubtful)
	}
}

// maxAhead is by how many seconds the epoch of a grant may be ahead of the arbiter's and of this
// node's clock: a year.
const maxAhead = 365 * 24 * 60 * 60

// believable reports whether a grant's first token may be its owner's to give. It is above all that
// owners have given to this node and that the arbiter has told of, and not years ahead.
func (p *Partition) believable(t fallback.Token, now time.Time) bool {
	if t <= p.tokens.seen || t <= p.tokens.brought {
		return false
	}
	epoch := int64(t.Epoch())
	return epoch <= int64(p.tokens.seen.Epoch())+maxAhead || epoch <= fallback.EpochAt(now)+maxAhead
}

// Denied: the owner refuses a request, and the flag says why; or, without one, a node has not got
// the hold id, which it was believed to have.
func (p *Partition) Denied(l Link, f *peer.Frame, id fallback.Identity, now time.Time, fx *Effects) {
	switch f.Flags {
	case FlagFull, FlagSize, FlagBusy:
		if k := p.requestOf(l, f); k != nil {
			k.request = request{}
			p.refused(k, l, f, now, fx)
			p.tidy(k)
		}
	default:
		p.notHeld(l, string(f.Key), id, now, fx)
	}
}

// refused sends callers away after the owner has refused the key.
func (p *Partition) refused(k *Key, l Link, f *peer.Frame, now time.Time, fx *Effects) {
	switch f.Flags {
	case FlagFull: // the owner lets this node have no more keys: waiting would not help
		p.fail(k, nil, p.cfg.Full(l.Node()), now, fx)
	case FlagSize:
		p.fail(k, nil, p.sizeError(k.name, f.Count), now, fx)
	case FlagBusy: // callers that wait ask again
		p.fail(k, tries, nil, now, fx)
		p.want(k, now, fx, false)
	}
}

// Moved: the node that was asked does not own the partition; the arbiter knows the owner (rule 14).
// Or this node should own it.
func (p *Partition) Moved(l Link, f *peer.Frame, now time.Time, fx *Effects) {
	if f.Flags == FlagYours || f.Flags == FlagLeft {
		if p.own != nil && p.own.epoch > f.Epoch && f.Epoch > 0 { // it was quicker
			p.send(l, peer.Moved, "", fallback.Identity{}).Flags = FlagTaken
			return
		}
		// A node that leaves is ahead of this one's ring, which has that node as the owner yet.
		to := p.cfg.View.Route(p.number)
		if p.own == nil && (to.Mine || f.Flags == FlagLeft && to.Link == l) {
			p.mayAcquire()
			if f.Epoch > 0 { // the epoch since which it has no owner
				p.meets(l)
				p.moving.expect, p.moving.giver = fallback.Expect{Epoch: f.Epoch}, l
			}
			if !p.take(now) {
				p.moving.expect, p.moving.giver = fallback.Expect{}, nil // they are of this moment
			}
		}
		return
	}
	if k := p.requestOf(l, f); k != nil {
		k.request = request{}
		k.askElsewhere()
		p.want(k, now, fx, true)
	}
}

// Frozen: the owner extends the deadlines of an epoch no more (rule 5).
func (p *Partition) Frozen(l Link, epoch uint32) {
	p.basis.common.known = false
	for _, k := range p.table.keys {
		if k.q.State() != handoff.Idle && k.hold.from == l && k.hold.epoch == epoch {
			k.hold.freeze()
		}
	}
}

// freeze fixes the deadline of a hold that its owner extends no more.
func (h *hold) freeze() {
	if h.source == SourceOwner {
		h.announced = h.from.Announced(h.announced, h.pongs)
		step(&h.source, SourceFrozen, nextSources[:])
	}
}
