package coord

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
)

// entry is a key that this process uses: the queue of its callers, the process's hold, the request for one, and what an
// owner knows of other nodes that have or want the key.
type entry struct {
	p    *partition
	key  string
	q    handoff.Queue[*seat]
	hold hold  // valid if q is not Idle
	turn *turn // the one that runs if q is in state Turn; else for the next one

	// At most one request is under way, while q is Idle and a caller waits.
	acq     *acquisition // at the arbiter
	forward forward      // at the owner of the partition
	moved   int          // consecutive nodes that were asked and did not own the partition

	g *grants // an owner's, of other nodes; nil: there is nothing to know

	linger   moment // when it began to linger, or a little later
	since    moment // when the turn with the token turn.seen began, or was first looked at; told once it was reported
	used     bool   // a turn has begun since the hold was last verified
	listed   bool   // in the coordinator's list of lingering entries
	known    bool   // in p.entries
	recycled bool   // in p.spareEntry
}

// turn is one goroutine's lock. An entry uses the same turn again and again: a Lock names the one it means by the token.
// Tokens are unique in a partition, and so is an entry, so a stale Lock can never be taken for a fresh one.
type turn struct {
	e      *entry
	fence  uint64 // 0: unlocked
	lost   *LossError
	seen   uint64          // its token when it was last looked at: see overdue
	began  moment          // or unmeasured
	ctx    context.Context // made when asked for
	cancel context.CancelCauseFunc
}

// seat is a caller's place in the queue of a key.
type seat struct {
	ready      chan struct{} // capacity 1: gets one value when the caller has the turn, or err is set
	turn       *turn
	valid      deadlines // of the hold, as known when the turn was given
	quickUntil moment    // until then the monotonic clock alone decides; zero: both clocks do
	path       Path
	err        error
	since      moment  // when the wait was first looked at; 0: not yet; told once it was reported
	call       *caller // if Options.LogCallers
	try        bool    // the caller does not wait for other callers or nodes
}

type waiter = handoff.Waiter[*seat]

func newWaiter() any { return &waiter{Value: &seat{ready: make(chan struct{}, 1)}} }

// begin gives the turn that the queue has begun to whoever gets the Lock for it.
func (p *partition) begin(e *entry, fence uint64, path Path, at moment) *turn {
	p.grants[path]++
	e.turn.fence, e.turn.began, e.used, e.moved = fence, at, true, 0
	p.turns++
	return e.turn
}

// seat gives the turn that the queue has begun to a waiter, to be woken afterwards.
func (p *partition) seat(e *entry, w *waiter, path Path, now time.Time, after *after) {
	s := w.Value
	s.turn, s.valid, s.path, s.quickUntil = p.begin(e, w.Fence(), path, p.c.at(now)), p.deadlines(&e.hold), path, 0
	after.wakeUp(w)
}

// ended forgets the running turn of e.
func (p *partition) ended() {
	p.turns--
	if p.turns == 0 && p.empty != nil {
		close(p.empty)
		p.empty = nil
	}
}

// finish ends the turn that runs: the next waiter gets it, or the hold lingers or is given back.
func (p *partition) finish(e *entry, now time.Time, after *after) {
	t := e.turn
	after.cancel = t.cancel
	t.fence, t.ctx, t.cancel = 0, nil, nil
	p.ended()
	limits := p.c.limits
	if p.ending != endingNot {
		limits.Linger = 0
	}
	after.idle = !e.q.Recalled()
	path := p.supply(e)
	next, what := e.q.Done(now, limits)
	switch {
	case next != nil:
		p.seat(e, next, path, now, after)
	case what == handoff.GiveBack:
		p.giveBack(e, after)
	default:
		e.linger = p.c.at(now)
		if !e.listed {
			e.listed = true
			p.c.lingers.add(e)
		}
	}
}

// supply gives the next turn its token, if this node is the grantor, and returns the path of that turn.
func (p *partition) supply(e *entry) Path {
	if e.hold.source != sourceOwn || p.own == nil || p.own.seq >= noSeq {
		return PathTurn
	}
	e.q.Supply(uint64(p.token(1)))
	return PathOwn
}

// giveBack returns the hold that the queue has let go of, and gets another if somebody waits.
func (p *partition) giveBack(e *entry, after *after) {
	h := &e.hold
	if h.callPending {
		p.c.doubts.add(doubt{p, e.key, h.row.Identity, p.c.now().Add(p.c.opts.SessionTTL)})
	}
	local := h.source == sourceOwn || h.keepRow
	if !local && (h.source != sourceOwner || !h.confirmed.IsZero() || h.rowed || h.from.down.Load()) { // there is a row, or may be
		after.releases = append(after.releases, p.release(e.key, h.row.Identity))
	}
	if !local && p.c.cluster != nil && p.own == nil {
		p.handBack(e, after)
	}
	p.dropped(e, after)
}

func (p *partition) release(key string, id fallback.Identity) fallback.Release {
	return fallback.Release{Partition: p.number, Key: key, Identity: id}
}

// dropped is called when the queue has dropped its hold.
func (p *partition) dropped(e *entry, after *after) {
	if e.hold.remote() {
		p.remote--
	}
	e.hold = hold{}
	p.holds--
	switch {
	case e.q.Waiting() == 0 && e.g == nil: // nobody wants it
	case p.own == nil:
		p.want(e, p.c.now(), after, false)
	case e.q.Waiting() > 0:
		p.wantHere(e, p.c.now(), after)
	default:
		p.grantNext(e, p.c.now(), after)
	}
	p.tidy(e)
}

// lose takes the hold away from whoever has it. The row may still be at the arbiter: it is released.
func (p *partition) lose(e *entry, cause LossCause, after *after) {
	if e.q.State() == handoff.Turn {
		t := e.turn
		t.lost = &LossError{Key: e.key, Fence: Fence(t.fence), Cause: cause}
		after.losses = append(after.losses, t.lost)
		if t.cancel != nil {
			// With the mutex held, which is safe as it runs nobody's code: once it is free, a message may make this
			// process give the key away.
			t.cancel(t.lost)
		}
		e.turn = &turn{e: e} // the lost one belongs to its Lock
		p.ended()
	}
	e.q.Drop()
	p.giveBack(e, after)
}
