package coord

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// await waits for the turn, without the mutex. done is that of the caller's context.
func (x *attempt) await(k *lease.Key, w *lease.Waiter, done <-chan struct{}) (Lock, error) {
	t, at, err := x.p.wait(done, k, w, x)
	if err != nil {
		if x.try && errors.Is(err, ErrLocked) && x.c.heldBy(x.ctx, x.key) { // the caller reads the key
			err = &WaitError{Key: x.key, Reason: ErrHeld}
		}
		return Lock{}, err
	}
	path, fence := Path(w.Value.Path), w.Fence()
	x.c.recycle(w)
	if t == nil {
		return Lock{}, nil // enter tries again
	}
	l := Lock{x.p, t, fence, x.key, x.ctx}
	if x.start != lease.Unmeasured {
		x.c.noteGranted(x.p, l, path, at-x.start)
	}
	return l, nil
}

// wait waits for the waiter's turn, and returns when that was; a nil turn if it was over before the
// caller could have it.
func (p *partition) wait(done <-chan struct{}, k *lease.Key, w *lease.Waiter, x *attempt) (t *lease.Turn, at lease.Moment, err error) {
	s, key := w.Value, x.key
	if s.Try && len(s.Ready) == 0 && !p.awaitAnswer(done, k, w, x.late) {
		p.c.recycle(w)
		return nil, at, &WaitError{Key: key, Reason: errNoAnswer}
	}
	select {
	case <-s.Ready:
	case <-done:
		if p.leaveQueue(k, w) {
			return nil, at, p.c.gaveUp(x.ctx, key, w)
		}
		<-s.Ready // the turn came, or a refusal, in the same moment
		if !s.Refused {
			// The caller is not there to use the turn: it is passed on, in full (rule 11).
			Lock{p: p, t: s.Turn, fence: w.Fence()}.pass()
			return nil, at, p.c.gaveUp(x.ctx, key, w)
		}
	}
	if s.Refused {
		err := &WaitError{Key: key, Reason: orLocked(s.Reason)}
		p.c.recycle(w)
		return nil, at, err
	}
	// The turn was given a while ago: this is the moment that counts.
	if s.QuickUntil > 0 { // until then the monotonic clock alone decides
		if at = p.c.moment(); at < s.QuickUntil {
			return s.Turn, at, nil
		}
	}
	now := p.c.now()
	if s.Valid.Past(now) && !(Lock{p: p, t: s.Turn, fence: w.Fence()}).holds() {
		return nil, at, nil
	}
	return s.Turn, p.c.at(now), nil
}

// pass gives the turn on without having used it.
func (l Lock) pass() {
	l.p.mu.Lock()
	_, _ = l.unlock()
}

// awaitAnswer limits the wait of a TryLock: an owner has no deadline for its answer, and a call may
// wait for a connection. It reports false if the waiter has left the queue. late is closed when
// that is over; nil: it begins now.
func (p *partition) awaitAnswer(done <-chan struct{}, k *lease.Key, w *lease.Waiter, late <-chan struct{}) bool {
	var rung <-chan time.Time
	if late == nil {
		timer := time.NewTimer(p.c.answerIn())
		defer timer.Stop()
		rung = timer.C
	}
	select {
	case <-w.Value.Ready:
		w.Value.Ready <- struct{}{} // for wait
		return true
	case <-done:
		return true
	case <-rung:
	case <-late:
	}
	return !p.leaveQueue(k, w)
}

// answerIn is how long a TryLock waits for an answer. A call's own error comes first, and says
// more.
func (c *Coordinator) answerIn() time.Duration { return c.opts.CallTimeout * 9 / 8 }

// leaveQueue takes a waiter out of the queue, if it has not got its turn.
func (p *partition) leaveQueue(k *lease.Key, w *lease.Waiter) bool {
	var a after
	now := p.lock()
	left := p.Abandon(k, w, now, &a.Effects)
	p.unlock(&a)
	a.do(p.c)
	return left
}

func (c *Coordinator) gaveUp(ctx context.Context, key string, w *lease.Waiter) error {
	reason := orLocked(w.Value.Reason)
	c.recycle(w)
	return &WaitError{Key: key, Reason: reason, Ended: ended(ctx)}
}

// recycle lets a waiter be used again.
func (c *Coordinator) recycle(w *lease.Waiter) {
	w.Value.Reset()
	c.callers.waiters.Put(w)
}
