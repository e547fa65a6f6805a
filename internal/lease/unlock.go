package lease

import (
	"time"

	"github.com/holdfast-go/holdfast/handoff"
)

// The end of a turn, and the fate of its hold. The queue of the key (package handoff) decides:
//
//	Rest   ends the turn if no caller waits and the hold was not recalled: the hold lingers
//	Keep   is Rest under a hold that has a token left
//	Pass   ends the turn and gives the next caller one, with a token that it is given
//	Done   ends the turn in all cases: the next caller has one, or the hold lingers, or it is to be given back
//	Relax  ends the lingering: the hold is to be given back
//
// An owner's own key is kept on the partition's shelf (EndOwn, shelve). When another key needs its
// place there, its hold ends, which sends nothing, and tidy forgets it. Another grantor's key is
// kept in the shell's list (Keep, finish): giveback.go.

// EndOwn is Unlock in the usual case of an owner. It needs no clock, for nothing is granted: a lock
// that is as short as most, without a request for its context, would pay half as much again for it.
// One in 64 takes the long way, to be measured. The last turn after a Pass takes it, too: when that
// began was not noted (Unmeasured), so nothing is measured then.
func (p *Partition) EndOwn(t *Turn, fence uint64) bool {
	k := t.key
	if t.fence != fence || t.lost != nil || k.hold.source != SourceOwn || k.others != nil || t.end != nil || p.closing.ending != Open ||
		p.own == nil || p.granted[PathOwn]%64 == 0 || t.began == Unmeasured || p.cfg.Handoff.Linger <= 0 || !k.q.Rest() {
		return false
	}
	if !k.shelved { // it is kept without a timer: see shelve
		p.shelve(k)
	}
	t.fence = 0
	t.forget()
	p.closing.turns--
	return true
}

// Pass is EndOwn where a caller waits in this process, and returns the waiter to be woken. It needs
// no clock either: the waiter reads it before its Lock returns, and that is the moment which counts
// (rule 1). Two in 64 take the long way: one to measure its beginning, and one to measure its end.
// Both extend the time of the quick reading (quickUntil).
func (p *Partition) Pass(t *Turn, fence uint64) *Waiter {
	k, o := t.key, p.own
	if t.fence != fence || t.lost != nil || k.hold.source != SourceOwn || k.others != nil || t.end != nil || p.closing.ending != Open ||
		o == nil || o.seq >= noSeq || o.goodUntil.IsZero() || o.apart || p.granted[PathOwn]%64 < 2 || k.q.Recalled() || k.q.Waiting() == 0 {
		return nil
	}
	next := uint64(p.token(1))
	w := k.q.Pass(next)
	p.granted[PathOwn]++
	t.fence, t.began, k.used, k.moved = next, Unmeasured, true, 0
	t.forget()
	s := w.Value
	s.Turn, s.Valid, s.Path, s.QuickUntil = t, Deadlines{o.goodUntil, o.goodUntil}, PathOwn, o.quickUntil
	return w
}

// Unlock ends a turn, and reports how long it took, a negative number if that was not measured.
func (p *Partition) Unlock(t *Turn, fence uint64, now time.Time, fx *Effects) (held time.Duration, state TurnState) {
	if t.fence != fence {
		return 0, TurnUnlocked
	}
	if t.lost == nil && p.InForce(t.key, now, fx) {
		if held = -1; t.began != Unmeasured {
			held = p.cfg.At(now) - t.began
		}
		p.finish(t.key, now, fx)
		return held, TurnRuns
	}
	t.fence = 0
	return 0, TurnLost
}

// Cede is Unlock without a next turn: the hold is given back, and callers of this node that wait
// for it have to ask for it again. The node has a Downgraded hold, beside which none of them may
// have the key.
func (p *Partition) Cede(t *Turn, fence uint64, now time.Time, fx *Effects) (held time.Duration, state TurnState) {
	if state := p.TurnState(t, fence, now, fx); state != TurnRuns {
		return 0, state
	}
	k := t.key
	if held = -1; t.began != Unmeasured {
		held = p.cfg.At(now) - t.began
	}
	p.end(k, fx)
	k.q.Drop()
	p.giveBack(k, now, fx)
	return held, TurnRuns
}

// end ends the turn that runs.
func (p *Partition) end(k *Key, fx *Effects) {
	t := k.turn
	fx.End = t.end
	t.retract()
	t.fence, t.Context, t.end, t.pledge = 0, nil, nil, nil
	k.endWanted()
	p.closing.turns--
}

// finish ends the turn that runs: the next waiter gets it, or the hold lingers or is given back.
func (p *Partition) finish(k *Key, now time.Time, fx *Effects) {
	p.end(k, fx)
	limits := p.cfg.Handoff
	if p.closing.ending != Open {
		limits.Linger = 0
	}
	fx.Idle = !k.q.Recalled()
	path := p.supply(k)
	next, what := k.q.Done(p.cfg.At(now), limits) // the next waiter, unless the tokens or the quantum of a recalled hold are used up; or an action
	switch {
	case next != nil:
		p.seat(k, next, path, now, fx)
	case what == handoff.GiveBack:
		p.giveBack(k, now, fx)
	case p.shelve(k):
	default:
		k.since, k.undated = p.cfg.At(now), false
		if !k.listed {
			k.listed = true
			p.order().Linger = k // the shell calls Relax for it later
		}
	}
}

// shelve keeps a key with a lingering hold of this node's own, until callers have used a few other
// keys of the partition. So a key that is used again needs no new entry, and one that is not needs
// no timer. It reports false if another node may have to do with the key.
func (p *Partition) shelve(k *Key) bool {
	if k.hold.source != SourceOwn || k.others != nil {
		return false
	}
	if k.shelved {
		return true
	}
	slot := &p.shelf.keys[p.shelf.next]
	p.shelf.next = (p.shelf.next + 1) % shelfSize
	if old := *slot; old != nil {
		old.shelved = false
		if old.hold.source == SourceOwn && old.others == nil && !old.listed && old.q.Relax() == handoff.GiveBack {
			p.endHold(old)
			p.basis.holds--
			p.tidy(old)
		}
	}
	*slot, k.shelved = k, true
	return true
}
