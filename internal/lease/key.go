package lease

import (
	"math"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/peer"
)

// Key is a key that this process uses: the queue of its callers, the process's hold, the request for one, and what an owner
// knows of other nodes that have or want the key.
type Key struct {
	name string
	q    handoff.Queue[*Seat]
	hold *hold // one of none, the ownership's, or its own
	turn *Turn // the one that runs if q is in state Turn; else for the next one

	// At most one request is under way, while q is Idle and a caller waits.
	contender *Contender // at the arbiter
	request   request    // at the owner of the partition

	others *grants       // an owner's, of other nodes; nil: there is nothing to know
	wanted chan struct{} // see Wanted; nil: the turn that runs has not asked

	seen     uint64 // the token of the turn that was last looked at: see Overdue
	since    Moment // when that turn began, or was first looked at; or when it began to linger, or a little later
	told     bool   // a record was written of that turn
	used     bool   // a turn has begun since the hold was last verified
	listed   bool   // in the shell's list of lingering keys
	shelved  bool   // on the partition's shelf
	known    bool   // in the partition's keys
	recycled bool   // in the partition's unused
	rested   bool   // no clock was read when it began to linger
	moved    uint8  // consecutive nodes that were asked and did not own the partition, 255 at most

	first Turn // as a rule the only one
}

// askElsewhere notes that one more node that was asked does not own the partition.
func (k *Key) askElsewhere() { k.moved = min(k.moved, math.MaxUint8-1) + 1 }

// Join queues a caller.
func (k *Key) Join(w *Waiter) {
	k.q.Join(w)
	k.want()
}

// Busy reports whether a turn runs that a further caller has to wait for, if the partition is open. own tells whether the key
// is this node's own.
func (p *Partition) Busy(k *Key) (busy, own bool) {
	return k != nil && k.q.State() == handoff.Turn && p.closing.ending == Open, k != nil && k.hold.source == SourceOwn
}

// Enter gives a lingering hold's next turn to the caller, if there is one. The hold is in force.
func (p *Partition) Enter(k *Key, at Moment) (*Turn, uint64, Path) {
	if k.q.State() != handoff.Lingering {
		return nil, 0, 0
	}
	path := p.supply(k)
	fence, _ := k.q.Enter() // it lingers
	return p.begin(k, fence, path, at), fence, path
}

// Lingers reports whether Reenter may grant the key. k may be nil.
func (p *Partition) Lingers(k *Key) bool {
	return k != nil && k.q.State() == handoff.Lingering && p.closing.ending == Open
}

// Soon reports whether the monotonic clock alone allows Enter, as both clocks have shortly before: see Quick. It is so for the key of
// the partition that was found last, as long as its hold is the same, and nothing has brought the deadline nearer.
func (p *Partition) Soon(k *Key, at Moment) bool { return k == p.table.recent && at < p.table.good }

// retract makes callers ask for the deadline of the key's hold, which may be nearer than before.
func (p *Partition) retract(k *Key) {
	k.turn.retract()
	if k == p.table.recent {
		p.table.good = 0
	}
}

// Keep ends a turn under a hold of another's key, which lingers then. As Rest it reads no clock, for nothing is granted. It reports false
// if the caller has to do it by Unlock: one in 64, to be measured, and those after which there may be more to do.
func (p *Partition) Keep(t *Turn, fence uint64) bool {
	k := t.key
	if t.fence != fence || t.lost != nil || k.hold.source == SourceOwn || k.others != nil || t.end != nil || t.pledge != nil || !k.listed ||
		p.closing.ending != Open || p.grants[PathTurn]%64 == 0 || t.began == Unmeasured || !k.q.Keep() {
		return false
	}
	k.rested = true
	k.unwant()
	t.fence = 0
	t.forget()
	p.closing.turns--
	return true
}

// Reenter is Enter after Lingers, if the hold is in force. It takes nothing away.
func (p *Partition) Reenter(k *Key, now time.Time) (*Turn, uint64, Path) {
	own := k.hold.source == SourceOwn && p.Good(now)
	if !own {
		d := p.deadlines(k.hold)
		if d.Past(now) {
			return nil, 0, 0
		}
		if k == p.table.recent {
			p.table.good = min(p.cfg.At(now)+WallEvery, p.cfg.At(d.Session), p.cfg.At(d.Slot))
		}
	}
	return p.Enter(k, p.cfg.At(now))
}

// Live returns the key with a name if its hold is in force or it has none, and a new one otherwise.
func (p *Partition) Live(k *Key, name string, now time.Time, fx *Effects) *Key {
	if k == nil {
		return p.Key(name)
	}
	if k.q.State() != handoff.Idle && !p.InForce(k, now, fx) {
		return p.Key(name) // the other one was forgotten with its hold
	}
	return k
}

// Occupied reports whether a caller that only tries is to be sent away, and the reason. If another node has the key, it is
// recalled for the next one.
func (p *Partition) Occupied(k *Key, now time.Time, fx *Effects) (reason error, occupied bool) {
	if k.group() != nil && k.q.State() == handoff.Idle && k.q.Waiting() == 0 {
		name, of := k.name, k.otherSize()
		if occupied = p.refuses(k, now, fx); occupied && of != 0 {
			reason = p.sizeError(name, of)
		}
		return reason, occupied
	}
	if k.others != nil && !k.available() {
		p.recall(k, now, fx)
	}
	if k.q.State() == handoff.Idle && k.q.Waiting() == 0 && k.available() {
		return nil, false
	}
	if reason = p.reason(k); reason == p.cfg.NoAnswer {
		reason = nil // another caller's request is under way: it comes first
	}
	return reason, true
}

// Idle reports whether the key has no hold, and no request is under way.
func (k *Key) Idle() bool {
	return k.q.State() == handoff.Idle && k.contender == nil && k.request.link == nil
}

// Abandon takes a waiter out of the queue, and tells it why the key was not to be had. It reports false if the waiter has its
// turn, or was refused.
func (p *Partition) Abandon(k *Key, w *Waiter, now time.Time, fx *Effects) bool {
	if !k.q.Leave(w) {
		return false
	}
	w.Value.Reason = p.reason(k)
	p.unwanted(k, now, fx)
	return true
}

// Reason returns why a key is not to be had; nil: it is locked, or it is not known. k may be nil.
func (p *Partition) Reason(k *Key) error {
	if k == nil {
		return nil
	}
	return p.reason(k)
}

// reason returns why the key is not to be had; nil: it is locked.
func (p *Partition) reason(k *Key) error {
	switch {
	case k.contender != nil && k.contender.trouble != nil:
		return k.contender.trouble
	case k.contender == nil && k.request.link == nil && k.others == nil && k.q.State() == handoff.Idle: // Acquiring
		return p.cfg.NoAnswer
	default:
		return nil
	}
}

// begin gives the turn that the queue has begun to a caller.
func (p *Partition) begin(k *Key, fence uint64, path Path, at Moment) *Turn {
	p.grants[path]++
	k.turn.fence, k.turn.began, k.used, k.moved = fence, at, true, 0
	p.closing.turns++
	if checked && path == PathOwn {
		p.show(SightTakes, p.own.session.ID, p.own.epoch, k)
	}
	return k.turn
}

// seat gives the turn that the queue has begun to a waiter, to be woken afterwards.
func (p *Partition) seat(k *Key, w *Waiter, path Path, now time.Time, fx *Effects) {
	s := w.Value
	s.Turn, s.Valid, s.Path, s.QuickUntil = p.begin(k, w.Fence(), path, p.cfg.At(now)), p.deadlines(k.hold), path, 0
	fx.wakeUp(w)
}

// Turns returns the number of turns that run.
func (p *Partition) Turns() int { return p.closing.turns }

// finish ends the turn that runs: the next waiter gets it, or the hold lingers or is given back.
func (p *Partition) finish(k *Key, now time.Time, fx *Effects) {
	p.end(k, fx)
	limits := p.cfg.Handoff
	if p.closing.ending != Open {
		limits.Linger = 0
	}
	fx.Idle = !k.q.Recalled()
	path := p.supply(k)
	next, what := k.q.Done(now, limits)
	switch {
	case next != nil:
		p.seat(k, next, path, now, fx)
	case what == handoff.GiveBack:
		p.giveBack(k, now, fx)
	case p.shelve(k):
	default:
		k.since, k.rested = p.cfg.At(now), false
		if !k.listed {
			k.listed = true
			p.order().Linger = k
		}
	}
}

// Relax gives the hold back if it has lingered for long enough. It reports false if it has to linger on.
func (p *Partition) Relax(k *Key, now time.Time, fx *Effects) bool {
	if k.q.State() == handoff.Lingering && k.rested {
		k.rested, k.since = false, p.cfg.At(now)
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

// supply gives the next turn its token, if this node is the grantor, and returns the path of that turn.
func (p *Partition) supply(k *Key) Path {
	if k.hold.source != SourceOwn || p.own == nil || p.own.seq >= noSeq {
		return PathTurn
	}
	k.q.Supply(uint64(p.token(1)))
	return PathOwn
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
		fx.Releases = append(fx.Releases, p.release(k.name, h.row.Identity))
	}
	if !local && p.cfg.Clustered && p.own == nil {
		p.handBack(k)
	}
	p.dropped(k, now, fx)
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
	k.rested = false
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

// lose takes the hold away from the callers. The row may still be at the arbiter: it is released.
func (p *Partition) lose(k *Key, cause Cause, now time.Time, fx *Effects) {
	p.loseFor(k, cause, "", now, fx)
}

// Break takes the hold of a key away from the caller that has the lock with a token, for a cause, and why. It reports false if
// no caller has that lock. The hold is given back as if it had been unlocked: the loss is an ordered effect, and comes first.
func (p *Partition) Break(key string, fence uint64, cause Cause, why string, now time.Time, fx *Effects) bool {
	k := p.table.keys[key]
	if k == nil || k.q.State() != handoff.Turn || k.turn.fence != fence || !p.InForce(k, now, fx) {
		return false
	}
	p.loseFor(k, cause, why, now, fx)
	return true
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
		k.unwant()
		p.closing.turns--
	}
	k.q.Drop()
	p.giveBack(k, now, fx)
}

// fail sends waiters away with a reason, nil for a key that is locked: those that which chooses, all if it is nil.
func (p *Partition) fail(k *Key, which func(*Waiter) bool, reason error, now time.Time, fx *Effects) {
	k.q.Drain(which, func(w *Waiter) {
		w.Value.Refused, w.Value.Reason = true, reason
		fx.wakeUp(w)
	})
	p.unwanted(k, now, fx)
}

// unwanted ends the request that no caller waits for any more (rule 11).
func (p *Partition) unwanted(k *Key, now time.Time, fx *Effects) {
	if k.q.Waiting() > 0 {
		return
	}
	p.endContender(k)
	if l := k.request.link; l != nil {
		if !l.Down() {
			p.send(l, peer.Cancel, k.name, k.request.id())
		}
		k.request = request{}
	}
	if k.others != nil {
		k.others.queue = slices.DeleteFunc(k.others.queue, func(c claimant) bool { return c.link == nil })
		if len(k.others.queue) == 0 && k.others.holder == (fallback.Identity{}) {
			p.noGrants(k)
		}
		if g := k.group(); g != nil { // it may have been in the way of nodes that came later
			p.grantGroup(g, now, fx)
		}
	}
	p.tidy(k)
}

// Has reports whether the request is a hold of this process, or may still become one.
func (p *Partition) Has(key string, id fallback.Identity) bool {
	k := p.table.keys[key]
	return k != nil && (k.q.State() != handoff.Idle && k.hold.row.Identity == id || k.contender != nil && k.contender.id == id)
}

// Woken is a message of the arbiter's: the key is free, and promised to the request. If that is over it is withdrawn, so that
// the next one need not wait until the promise lapses: a replica that was promoted may remember waiters of long ago.
func (p *Partition) Woken(key string, id fallback.Identity, _ time.Time, fx *Effects) {
	k := p.table.keys[key]
	switch {
	case k != nil && k.contender != nil && k.contender.id == id:
		out := p.order()
		out.Pokes = append(out.Pokes, k.contender)
	case k != nil && k.q.State() != handoff.Idle && k.hold.row.Identity == id: // it came first
	case guard.OnItsWay && k != nil && k.request.link != nil && k.request.id() == id: // no request of the arbiter's: the message lies
	default:
		fx.Releases = append(fx.Releases, p.release(key, id))
	}
}

// Gap is a message of the arbiter's: others may have been missed.
func (p *Partition) Gap(fx *Effects) {
	for _, k := range p.table.keys {
		if k.contender != nil {
			out := p.order()
			out.Pokes = append(out.Pokes, k.contender)
		}
	}
}

// Asked is a message of the arbiter's: another process waits for the key, and the arbiter has a row with the identity. The hold
// is recalled. If this process neither has it nor is about to, the row is an orphan, and removed (rule 13).
func (p *Partition) Asked(key string, id fallback.Identity, now time.Time, fx *Effects) {
	k := p.table.keys[key]
	switch {
	case k != nil && k.q.State() != handoff.Idle && k.hold.row.Identity == id:
		p.recallHere(k, now, fx)
	case k != nil && k.contender != nil && k.contender.id == id:
		k.contender.asked = true
	case guard.OnItsWay && k != nil && k.request.link != nil && k.request.id() == id: // the owner's grant is on its way, and the row came first
	default:
		fx.Releases = append(fx.Releases, p.release(key, id))
	}
}
