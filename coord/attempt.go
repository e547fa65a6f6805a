package coord

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// An attempt is a call of Lock or TryLock that takes the long way. queue, once, refuse, beside and
// ask are called with the partition's mutex held, and free it. join leaves it held. The others are
// called without it. A zero Lock without an error means that there has to be another try.
type attempt struct {
	c     *Coordinator
	p     *partition
	ctx   context.Context
	key   string
	try   bool
	start lease.Moment // when it began; lease.Unmeasured if no clock was read
	at    lease.Moment // the time, if the partition's mutex has been held since; else not positive
	label string       // of WithLabel
	reads bool         // the key is known to be read by this process
	holds bool         // ctx carries locks
	room  room

	late <-chan struct{} // closed when a try has waited for an answer for long enough; nil: that begins when it waits
}

// room is what this process has done to make room for a try.
type room struct {
	gave  bool          // it has given back its kept hold of the key by another name
	pause time.Duration // that it waited last for the grantor to know
}

// queue waits behind the turn that runs. Nothing is granted, so no clock is read, but for a sample
// of the waits.
func (x *attempt) queue(k *lease.Key, own bool) (Lock, error) {
	c, p := x.c, x.p
	x.at = 0
	if p.Sampled() || c.opts.Trace.Granted != nil || c.opts.Trace.Waited != nil || !own {
		x.start = c.moment()
	}
	w := x.join(k)
	p.mu.Unlock()
	return x.asked(k, w)
}

// once takes the key if that is possible at once, and waits for it otherwise.
func (x *attempt) once(k *lease.Key) (Lock, error) {
	var a after
	c, p := x.c, x.p
	now := p.nowAt(x.at) // with the mutex held: waiting for it must not make a grant of the past (rule 1)
	begin := c.at(now)
	x.at = 0
	if x.start == lease.Unmeasured {
		x.start = begin
	}
	if p.Ending() != lease.Open {
		p.mu.Unlock()
		return Lock{}, &WaitError{Key: x.key, Reason: c.whyClosed()}
	}
	k = p.Live(k, x.key, now, &a.Effects)
	if t, fence, path := p.Enter(k, begin); t != nil { // it began to linger since it was looked up
		p.mu.Unlock()
		l := Lock{p, t, fence, x.key, x.ctx}
		c.noteGranted(p, l, Path(path), begin-x.start)
		return l, nil
	}
	if t, fence := p.BeginOwn(k, now, begin); t != nil {
		if o := p.Pending(); o != nil {
			a.carryOut(p, o)
		}
		p.mu.Unlock()
		a.do(c)
		l := Lock{p, t, fence, x.key, x.ctx}
		c.noteGranted(p, l, PathOwn, begin-x.start)
		return l, nil
	}
	if r := c.readingOf(x.key); r != nil && !x.reads {
		return x.beside(k, r, &a)
	}
	if x.try {
		live, gave := p.GiveWay(k, now, &a.Effects)
		k, x.room.gave = live, x.room.gave || gave
		if reason, occupied := p.Occupied(k, now, &a.Effects); occupied {
			return Lock{}, x.refuse(reason, &a)
		}
	}
	return x.ask(k, now, &a)
}

// refuse ends a TryLock of a key that is not free.
func (x *attempt) refuse(reason error, a *after) error {
	x.p.unlock(a)
	a.do(x.c)
	if x.c.heldBy(x.ctx, x.key) {
		reason = ErrHeld
	}
	return &WaitError{Key: x.key, Reason: orLocked(reason)}
}

// tellFailed counts a wait that has ended without a lock, tells the trace of it, and returns the
// error. Readers and callers that want permits are counted elsewhere: a request by a name is for
// several of them.
func (x *attempt) tellFailed(err error) error {
	if err == nil {
		return nil
	}
	if !fallback.IsName(x.key) {
		_ = x.c.waitFailed(x.try, err)
	}
	if f := x.c.opts.Trace.Waited; f != nil && x.start != lease.Unmeasured {
		if waited := x.c.moment() - x.start; waited > 0 {
			f(x.ctx, WaitInfo{Key: namedKey(x.key), Waited: waited, Err: err})
		}
	}
	return err
}

// orLocked returns the reason why a key is not to be had: it is locked, if there is no other
// reason.
func orLocked(reason error) error {
	if reason == nil {
		return ErrLocked
	}
	return reason
}

// beside is for a key that this process reads. A caller that will not wait for the readers is sent
// away before it asks for the key: that would let no more of them in, for nothing. If there are
// none at the moment it waits for none.
func (x *attempt) beside(k *lease.Key, r *reading, a *after) (Lock, error) {
	x.reads = true
	x.p.Tidy(k) // it may have been made for this caller
	x.p.unlock(a)
	a.do(x.c)
	if x.c.heldBy(x.ctx, x.key) {
		return Lock{}, &WaitError{Key: x.key, Reason: ErrHeld}
	}
	x.room.gave = r.retire()
	if !x.room.gave && x.try && r.lock.holds() {
		return Lock{}, &WaitError{Key: x.key, Reason: ErrLocked}
	}
	return Lock{}, nil
}

// again waits for a moment, and reports whether to try again: the grantor may not know yet that
// this process has given a hold back for this try.
func (x *attempt) again(err error) bool {
	if !x.try || !x.room.gave || x.room.pause >= lastRoom || !errors.Is(err, ErrLocked) || errors.Is(err, ErrHeld) {
		return false
	}
	x.room.pause = max(firstRoom, 2*x.room.pause)
	return sleep(x.ctx, x.room.pause)
}

// ask queues the caller, makes a request for the key if none is under way, and waits.
func (x *attempt) ask(k *lease.Key, now time.Time, a *after) (Lock, error) {
	c, p := x.c, x.p
	w := x.join(k)
	var first *contender
	if c.cluster == nil && k.Idle() && c.inline(x.ctx) { // the caller makes the arbiter's first call itself: first.first below
		first = p.newContender(p.Contend(k))
	} else {
		p.Want(k, now, &a.Effects)
	}
	p.unlock(a)
	a.do(c)
	if first != nil {
		first.first(k, w)
	}
	return x.asked(k, w)
}

// asked waits, once the caller is queued. The mutex is free.
func (x *attempt) asked(k *lease.Key, w *lease.Waiter) (Lock, error) {
	held, stuck, done := x.consult(k, w)
	// A caller that has got its turn since it was found in a circle goes on: it is in none.
	if (held || stuck != nil) && x.p.leaveQueue(k, w) {
		x.c.recycle(w)
		if held {
			return Lock{}, &WaitError{Key: x.key, Reason: ErrHeld}
		}
		return Lock{}, x.c.sentAway(stuck)
	}
	return x.await(k, w, done)
}

// consult asks the caller's context, the user's code, for all that the wait needs. It reports
// whether the caller would wait for itself, and waits until it is clear whether the caller is in a
// circle: then it returns that. If the context panics, the caller leaves the queue.
func (x *attempt) consult(k *lease.Key, w *lease.Waiter) (held bool, stuck *stuckWait, done <-chan struct{}) {
	returned := false
	defer func() {
		if !returned { // no caller would take the turn
			x.p.abandon(k, w)
		}
	}()
	if len(w.Value.Ready) == 0 {
		held, x.holds = x.c.carries(x.ctx, x.key)
	}
	if !held && x.holds && !x.try && mayCircle(x.key) {
		stuck = x.c.endure(x.ctx, x.key, nil, w.Value.Ready)
	}
	done = x.ctx.Done()
	returned = true
	return held, stuck, done
}

// join queues the caller.
func (x *attempt) join(k *lease.Key) *lease.Waiter {
	w := x.c.callers.waiters.Get().(*lease.Waiter)
	w.Value.Try = x.try
	if x.start != lease.Unmeasured {
		w.Value.Began(x.start)
	}
	if x.p.traced && x.c.opts.LogCallers {
		w.Value.Tag = calledFrom(0)
	}
	if x.label != "" {
		w.Value.Tag = withLabel(w.Value.Tag, 0, x.label)
	}
	k.Join(w)
	return w
}

func newWaiter() any { return &lease.Waiter{Value: &lease.Seat{Ready: make(chan struct{}, 1)}} }

// ended returns an error that matches the ctx's Err and its cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
