package lease

import (
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/internal/guard"
)

// A Sharer is callers that share a turn. Its methods are called by events, so they must not block,
// nor call the partition.
type Sharer interface {
	// Shut lets no more callers in. It reports whether that was not so before, and none is inside:
	// then the partition ends the turn. Otherwise the last caller that leaves is to unlock.
	Shut() (empty bool)
	// Vacate is Shut if no caller is inside. It reports whether it did that.
	Vacate() (empty bool)
	// Empty reports whether no caller is inside.
	Empty() bool
	// Stays returns since when, at the latest, a caller has been inside that is inside yet, as far
	// as calls of Stays have seen; now if there is none.
	Stays(now Moment) Moment
}

// A Pledge is a turn that callers share, as they may see it without the partition's mutex: until a
// moment the monotonic clock alone decides that the turn is in force, and for some time after that
// both clocks do, by Extend. It only repeats the deadlines of an event at most pledgedFor before.
// Where an event takes the hold away, or may bring a deadline nearer, the pledge is retracted.
type Pledge struct {
	until   atomic.Int64 // a Moment; 0: to be asked for
	callers Sharer

	// Of the event that gave it. Protected by the callers' mutex.
	since   Moment
	wall    int64 // Unix nanoseconds
	good    Moment
	session *Session
}

// pledgedFor is the longest time that callers of a shared turn look at the clocks alone. The
// partition has to learn often enough that the key is used.
const pledgedFor = 50 * time.Millisecond

// Holds reports whether the turn is in force at a moment.
func (x *Pledge) Holds(at Moment) bool { return int64(at) < x.until.Load() }

// Given reports whether the pledge was not retracted since it was given.
func (x *Pledge) Given() bool { return x.until.Load() != 0 }

// Extend makes Holds report true for WallEvery, if three conditions hold. The pledge was not
// retracted; the deadlines of the event that gave it have not passed at now, which is the moment
// at; and both clocks have gone on alike since that event. It reports whether Holds does. The
// callers' mutex is held, the partition's need not be.
func (x *Pledge) Extend(at Moment, now time.Time) bool {
	given := x.until.Load()
	if given == 0 || at >= x.good || x.session.Deadline().IsZero() {
		return false
	}
	if apart := time.Duration(now.UnixNano()-x.wall) - (at - x.since); apart.Abs() >= WallEvery {
		return false
	}
	if int64(at) < given { // another caller has extended it
		return true
	}
	return x.until.CompareAndSwap(given, int64(min(at+WallEvery, x.good))) // else it has just been retracted
}

// Retract makes Holds and Extend report false, until Pledge gives it again. It is safe without any
// mutex.
func (x *Pledge) Retract() {
	if guard.Pledge {
		x.until.Store(0)
	}
}

// Share notes that callers share a turn. They are asked to make way when another caller or node
// asks for the key; at once, if one has. If none is inside then, the turn ends with that. A turn
// that has ended concerns them no more.
func (p *Partition) Share(t *Turn, fence uint64, x *Pledge, callers Sharer, now time.Time, fx *Effects) {
	k := t.Key(fence)
	if k == nil {
		return
	}
	x.callers, t.pledge = callers, x
	if p.closing.ending != Open || k.q.Waiting() > 0 || k.q.Recalled() || k.others != nil && len(k.others.queue) > 0 {
		p.makeWay(k, now, fx)
	}
}

// Pledge gives the pledge of a turn that runs and is in force now, by both clocks. The callers'
// mutex is held as well.
func (p *Partition) Pledge(t *Turn, now time.Time) {
	d := p.deadlines(t.key.hold)
	t.key.used = true
	x := t.pledge
	if x == nil {
		return
	}
	left := min(pledgedFor, p.cfg.RenewEvery/4)
	for _, t := range [...]time.Time{d.Session, d.Slot} {
		left = min(left, Left(t, now))
	}
	if t.key.hold.source == SourceOwn && p.own != nil && !p.own.goodUntil.IsZero() {
		left = min(left, time.Duration(p.own.goodWall-now.UnixNano()))
	}
	x.since, x.wall, x.session = p.cfg.At(now), now.UnixNano(), t.key.hold.session
	x.good = x.since + left
	x.until.Store(int64(min(x.since+WallEvery, x.good)))
}

// Retire ends a turn that callers share if none of them is inside, and gives the hold back. It
// reports whether the turn has ended.
func (p *Partition) Retire(t *Turn, fence uint64, now time.Time, fx *Effects) (ended bool) {
	k := t.Key(fence)
	if k == nil {
		return true
	}
	return p.vacated(k, now, fx)
}

// usualQuantum is the quantum where Handoff.MaxHold does not limit it.
const usualQuantum = 5 * time.Millisecond

// QuantumLeft returns for how long a caller of this node should wait for the end of a key's running
// turn, if one runs: until its quantum is over. Then the next turn is not this node's to give. k
// may be nil.
func (p *Partition) QuantumLeft(k *Key, now time.Time) (left time.Duration, busy bool) {
	if k == nil || k.q.State() != handoff.Turn {
		return 0, false
	}
	quantum := p.cfg.Handoff.MaxHold
	if quantum <= 0 {
		quantum = usualQuantum
	}
	return quantum - k.q.RecalledFor(p.cfg.At(now)), true
}

// vacated ends the turn that runs if callers share it, and none is inside. It reports whether it
// did.
func (p *Partition) vacated(k *Key, now time.Time, fx *Effects) bool {
	if k.q.State() != handoff.Turn || k.turn.pledge == nil || !k.turn.pledge.callers.Vacate() {
		return false
	}
	p.vacate(k, now, fx)
	return true
}

// makeWay lets no more callers in where callers share the turn that runs, and ends it if none is
// inside.
func (p *Partition) makeWay(k *Key, now time.Time, fx *Effects) {
	if k.q.State() == handoff.Turn && k.turn.pledge != nil && k.turn.pledge.callers.Shut() {
		p.vacate(k, now, fx)
	}
}

// vacate ends the turn that runs, which no caller uses: the next waiter gets it, or the hold is
// given back.
func (p *Partition) vacate(k *Key, now time.Time, fx *Effects) {
	end := fx.End
	p.end(k, fx)
	fx.End = end // of another turn that this event has ended
	limits := p.cfg.Handoff
	limits.Linger = 0
	path := p.supply(k)
	if next, what := k.q.Done(p.cfg.At(now), limits); next != nil {
		p.seat(k, next, path, now, fx)
	} else if what == handoff.GiveBack {
		p.giveBack(k, now, fx)
	}
}

// empty reports whether callers share the turn that runs, and none is inside.
func (k *Key) empty() bool { return k.turn.pledge != nil && k.turn.pledge.callers.Empty() }

// retract makes callers that share the turn ask for its deadline, which may be nearer than before.
func (t *Turn) retract() {
	if t.pledge != nil {
		t.pledge.Retract()
	}
}

// GiveWay gives back an exclusive hold that lingers. It does so for a caller of this process that
// tries to get the same key by another name, the name of k. It reports false if there is none. An
// owner's own hold is in no caller's way. It returns k, or if k was forgotten with the other hold a
// new one in its place.
func (p *Partition) GiveWay(k *Key, now time.Time, fx *Effects) (*Key, bool) {
	name := k.name
	key, _ := fallback.Split(name)
	x := p.table.keys[key]
	if key == name || x == nil || x.q.State() != handoff.Lingering || x.hold.source == SourceOwn {
		return k, false
	}
	p.recallHere(x, now, fx)
	return p.Key(name), true
}
