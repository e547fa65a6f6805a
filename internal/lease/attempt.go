package lease

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/peer"
)

// Join queues a caller.
func (k *Key) Join(w *Waiter) {
	k.assertKnown()
	k.q.Join(w)
	k.tellWanted()
}

// Busy reports whether a turn runs that a further caller has to wait for, if the partition is open.
// own reports whether the key is this node's own.
func (p *Partition) Busy(k *Key) (busy, own bool) {
	return k != nil && k.q.State() == handoff.Turn && p.closing.ending == Open, k != nil && k.hold.source == SourceOwn
}

// Live returns the key with a name if it has no hold, or one in force with a token for the next
// turn. Otherwise it returns a new key.
func (p *Partition) Live(k *Key, name string, now time.Time, fx *Effects) *Key {
	if k == nil {
		return p.Key(name)
	}
	if k.q.State() != handoff.Idle && !p.InForce(k, now, fx) {
		return p.Key(name) // the other one may have been forgotten with its hold
	}
	if p.dry(k) {
		k.q.Relax()
		p.giveBack(k, now, fx)
		return p.Key(name)
	}
	return k
}

// Occupied reports whether a caller that only tries is to be sent away, and the reason. If another
// node has the key, it is recalled for the next one.
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

// Abandon takes a waiter out of the queue, and tells it why the key was not to be had. It reports
// false if the waiter has its turn, or was refused.
func (p *Partition) Abandon(k *Key, w *Waiter, now time.Time, fx *Effects) bool {
	if !k.q.Leave(w) {
		return false
	}
	w.Value.Reason = p.reason(k)
	p.unwanted(k, now, fx)
	return true
}

// fail sends waiters away with a reason, nil for a key that is locked: those that which chooses,
// all if it is nil.
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
