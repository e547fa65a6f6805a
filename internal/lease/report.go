package lease

import (
	"time"

	"github.com/holdfast-go/holdfast/handoff"
)

// Counts are the totals of all partitions.
type Counts struct {
	Owned   int    // partitions
	Locked  int    // keys, by callers
	Kept    int    // keys without a caller
	Waiting int    // callers
	First   Moment // when the first of those began to wait that wait for another caller and are not expected, or was first looked at; 0: none was yet
	Held    Moment // when the first lock began that others were seen to want since, and is not expected; 0: there is none
}

// Count adds the partition to the counts of all. It stamps turns and waiters that it sees for the
// first time, and calls rest as Survey does. expected reports whether callers wait for a key for
// long as a matter of course.
func (p *Partition) Count(now Moment, rest func() bool, to *Counts, granted func(Path, uint64), expected func(key string) bool) {
	if p.own != nil {
		to.Owned++
	}
	for path, n := range p.granted {
		granted(Path(path), n)
	}
	p.walk(rest, func(k *Key) {
		switch state := k.q.State(); {
		case state == handoff.Lingering || state == handoff.Turn && k.empty():
			to.Kept++
		case state == handoff.Turn:
			to.Locked++
			k.look(now)
			if since := k.longest(now); k.notes&noteWanted != 0 && (to.Held == 0 || since < to.Held) && !expected(k.name) {
				to.Held = max(since, 1)
			}
		}
		if n := k.q.Waiting(); n > 0 {
			to.Waiting += n
			k.q.Any(func(w *Waiter) bool {
				if since := w.Value.since; since != 0 && (to.First == 0 || since < to.First) && p.reason(k) == nil && !expected(k.name) {
					to.First = since
				}
				return true // it is the first of the key
			})
		}
	})
}

// longest is since when a caller may have the lock without a break. The turn may be longer than any
// caller has been inside.
func (k *Key) longest(now Moment) Moment {
	if p := k.turn.pledge; p != nil {
		return max(k.since, p.callers.Stays(now))
	}
	return k.since
}

// An Overdue is a key that callers of this process have waited for, or that one of them has held,
// for long.
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

// Overdue calls f with each key that callers have waited for or held for so long, once per wait and
// lock; 0 is never. It stamps turns and waiters that it sees for the first time, so that Lock and
// Unlock need not. It calls rest as Survey does, also between the waiters of a key.
func (p *Partition) Overdue(now Moment, rest func() bool, wait, hold time.Duration, f func(Overdue)) {
	at := &pace{rest: rest}
	p.walkAt(at, func(k *Key) {
		if t := k.turn; k.q.State() == handoff.Turn {
			k.look(now)
			if hold > 0 && k.notes&noteTold == 0 {
				if since := k.longest(now); now-since >= hold {
					f(Overdue{Key: k.name, Since: since, Fence: t.fence, Tag: p.table.tags[k]})
					k.notes |= noteTold
				}
			}
		}
		if wait > 0 && k.q.Waiting() > 0 {
			if x := p.longWaits(k, now, wait, at); x.Waiting > 0 {
				f(x)
			}
		}
	})
}

// longWaits counts the callers that have waited for too long since its last call. It tells the
// obstacle in their way as of its beginning.
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

// Serving returns the epoch that this node serves the partition at, and the deadline; 0 if it does
// not.
func (p *Partition) Serving() (epoch uint32, until time.Time) {
	if p.own == nil {
		return 0, time.Time{}
	}
	return p.own.epoch, p.ownedUntil()
}
