package lease

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
)

// Counts are what there is in all partitions.
type Counts struct {
	Owned   int    // partitions
	Locked  int    // keys, by callers
	Kept    int    // keys without a caller
	Waiting int    // callers
	First   Moment // when the first of these began to wait, or was first looked at; 0: none was yet
}

// Count adds the partition to the counts of all. It calls rest as Survey does.
func (p *Partition) Count(rest func() bool, to *Counts, granted func(Path, uint64)) {
	if p.own != nil {
		to.Owned++
	}
	for path, n := range p.grants {
		granted(Path(path), n)
	}
	p.walk(rest, func(k *Key) {
		switch state := k.q.State(); {
		case state == handoff.Lingering || state == handoff.Turn && k.empty():
			to.Kept++
		case state == handoff.Turn:
			to.Locked++
		}
		if n := k.q.Waiting(); n > 0 {
			to.Waiting += n
			k.q.Any(func(w *Waiter) bool {
				if since := w.Value.since; since != 0 && (to.First == 0 || since < to.First) {
					to.First = since
				}
				return true // it is the first of the key
			})
		}
	})
}

// An Overdue is a key that callers of this process have waited for, or that one of them has held, for long.
type Overdue struct {
	Key   string
	Since Moment // when the wait or the lock began, or was first seen
	Tag   any    // of the first waiter's seat, or of the key

	// Of a wait.
	Waiting int           // callers that have waited for so long and were not told of before; 0: it is a lock
	Reason  error         // why the key is not to be had; nil: it is locked
	Here    bool          // this process holds it
	Session string        // that holds it; empty if unknown
	Held    time.Duration // for so long, if this process holds it and that is known
	HeldTag any           // of the key then
	Owner   string        // node that was asked for the key, and knows its holder

	Fence uint64 // of the lock that is held
}

// Overdue calls f with each key that callers have waited for or held for so long, once per wait and lock; 0 is never. It stamps
// what it sees for the first time, so that Lock and Unlock need not. It calls rest as Survey does, also between the waiters of a key.
func (p *Partition) Overdue(now Moment, rest func() bool, wait, hold time.Duration, f func(Overdue)) {
	at := &pace{rest: rest}
	p.walkAt(at, func(k *Key) {
		if t := k.turn; k.q.State() == handoff.Turn {
			if k.seen != t.fence {
				k.seen, k.since, k.told = t.fence, now, false
				if t.began != Unmeasured {
					k.since = t.began
				}
			}
			since := k.since
			if hold > 0 && !k.told && t.pledge != nil {
				since = max(since, t.pledge.callers.Stays(now)) // the turn may be longer than any caller has been inside
			}
			if hold > 0 && !k.told && now-since >= hold {
				f(Overdue{Key: k.name, Since: since, Fence: t.fence, Tag: p.table.tags[k]})
				k.told = true
			}
		}
		if wait > 0 && k.q.Waiting() > 0 {
			if x := p.longWaits(k, now, wait, at); x.Waiting > 0 {
				f(x)
			}
		}
	})
}

// longWaits counts the callers that have waited for too long since it was called last. What is in their way it tells as of its
// beginning.
func (p *Partition) longWaits(k *Key, now Moment, wait time.Duration, at *pace) Overdue {
	x := Overdue{Key: k.name, Since: now, Reason: p.reason(k)}
	switch {
	case k.q.State() == handoff.Turn:
		x.Here, x.HeldTag, x.Fence, x.Held = true, p.table.tags[k], k.turn.fence, now-k.since
	case k.others != nil:
		x.Session = k.others.holder.Session
	case k.request.link != nil:
		x.Owner = k.request.link.Node()
	case k.contender != nil:
		x.Session = k.contender.holder
	}
	k.q.Walk(at.step, func(w *Waiter) {
		switch s := w.Value; {
		case s.since == 0:
			s.since = now
		case !s.told && now-s.since >= wait:
			if x.Waiting == 0 {
				x.Since, x.Tag = s.since, s.Tag
			}
			x.Waiting++
			s.told = true
		}
	})
	return x
}

// Serving returns the epoch that this node serves the partition at, and the deadline; 0 if it does not.
func (p *Partition) Serving() (epoch uint32, until time.Time) {
	if p.own == nil {
		return 0, time.Time{}
	}
	return p.own.epoch, p.ownedUntil()
}

// LastSeq returns the number of the last token that was given out by this node, which serves the partition.
func (p *Partition) LastSeq() uint32 { return p.own.seq }

// A HoldStatus is a hold as a simulation and a debug page see it.
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

// HolderOf returns the other node's hold of a key that this node, the owner, knows of; zero if there is none. imported tells that
// it did not grant the hold.
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

// Describe tells what this node knows of a key.
func (p *Partition) Describe(key string, now time.Time) string {
	var s strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&s, format+"; ", args...) }
	say("partition %d, %v, %v, %v, %v", p.number, p.phase, p.check.naming, p.closing.ending, p.check.checking)
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

// Others calls f with each identity of other nodes that have a key of this node's partition, or wait for one.
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
