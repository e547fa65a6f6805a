package lease

import (
	"math"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
)

// Key is a key that this process uses: the queue of its callers, the process's hold, the request
// for one, and an owner's knowledge of other nodes that have or want the key.
type Key struct {
	name string
	q    handoff.Queue[*Seat]
	hold *hold // one of none, the ownership's, or its own
	turn *Turn // the one that runs if q is in state Turn; else for the next one

	// At most one request is under way, while q is Idle and a caller waits.
	contender *Contender // at the arbiter
	request   request    // at the owner of the partition

	others *grants       // an owner's, of other nodes; nil: there is nothing to know
	wanted chan struct{} // closed when another caller or node asks for the key; nil: the turn that runs does not want to be told

	// In brackets: the methods that use it.
	seen    uint64 // the token of the turn that was looked at last, for operators (Overdue, held)
	since   Moment // when that turn began, or was first looked at (Overdue, held); or the lingering (Relax)
	notes   notes  // of that turn (Overdue, Count)
	used    bool   // a turn has begun since the hold was last verified (Snapshot)
	listed  bool   // the key is in the shell's list of those that linger (Keep, finish, shelve, tidy); the shell calls Relax for each
	shelved bool   // it is on the partition's shelf (EndOwn, shelve, tidy)
	known   bool   // it is in the partition's keys (Turn.Key, request, tidy, walkAt)
	undated bool   // the hold lingers, and no clock was read when that began (Relax)
	asked   bool   // the hold that is requested of an owner is wanted already (Recalled, Asked, Granted)
	moved   uint8  // consecutive nodes that were asked and did not own the partition, 255 at most (Redirect). A turn clears it

	first Turn // as a rule the only one
}

// notes are facts of a turn besides its beginning. They are bits, as a key has no room for one more
// field.
type notes uint8

const (
	noteTold   notes = 1 << iota // a record was written of it
	noteWanted                   // others have asked for the key meanwhile
)

// look stamps the turn that runs, so that Lock and Unlock need not, and notes whether others want
// the key.
func (k *Key) look(now Moment) {
	t := k.turn
	if k.seen != t.fence {
		k.seen, k.since, k.notes = t.fence, now, 0
		if t.began != Unmeasured {
			k.since = t.began
		}
	}
	if k.isWanted() {
		k.notes |= noteWanted
	}
}

// isWanted reports whether another caller or node asks for the key, now.
func (k *Key) isWanted() bool {
	return k.q.Waiting() > 0 || k.q.Recalled() || k.others != nil && len(k.others.queue) > 0
}

// wantedSince reports whether others were seen to ask for the key since the turn that runs began.
func (k *Key) wantedSince() bool {
	return k.isWanted() || k.seen == k.turn.fence && k.notes&noteWanted != 0
}

// askElsewhere notes that one more node that was asked does not own the partition.
func (k *Key) askElsewhere() { k.moved = min(k.moved, math.MaxUint8-1) + 1 }

// available reports whether no node has the key.
func (k *Key) available() bool {
	return k.q.State() == handoff.Idle && (k.others == nil || k.others.holder == fallback.Identity{})
}

// tellWanted tells the turn that runs that the key is asked for.
func (k *Key) tellWanted() {
	if k.wanted != nil && k.wanted != wantedAlready {
		close(k.wanted)
		k.wanted = wantedAlready
	}
}

// endWanted closes the channel with the turn.
func (k *Key) endWanted() {
	k.tellWanted()
	k.wanted = nil
}

// wantedAlready is the channel of turns that are wanted.
var wantedAlready = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// begin gives the turn that the queue has begun to a caller.
func (p *Partition) begin(k *Key, fence uint64, path Path, at Moment) *Turn {
	k.assertKnown()
	p.granted[path]++
	k.turn.fence, k.turn.began, k.used, k.moved = fence, at, true, 0
	p.closing.turns++
	if simulated && path == PathOwn {
		p.show(SightTakes, p.own.session.ID, p.own.epoch, k)
	}
	return k.turn
}

// seat gives the turn that the queue has begun to a waiter, to be woken afterwards.
func (p *Partition) seat(k *Key, w *Waiter, path Path, now time.Time, fx *Effects) {
	p.seatUntil(p.deadlines(k.hold), k, w, path, now, fx)
}

// seatUntil is seat where the deadlines of the hold are known.
func (p *Partition) seatUntil(valid Deadlines, k *Key, w *Waiter, path Path, now time.Time, fx *Effects) {
	s := w.Value
	s.Turn, s.Valid, s.Path, s.QuickUntil = p.begin(k, w.Fence(), path, p.cfg.At(now)), valid, path, 0
	fx.wakeUp(w)
}

// Turns returns the number of turns that run.
func (p *Partition) Turns() int { return p.closing.turns }
