package coord

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/handoff"
)

// MaxKey is the length of the longest key, in bytes.
const MaxKey = 1024

// A Lock is a granted lock. It is a small value: copies are the same lock, and when one of them was unlocked the others
// are told so. The zero Lock is one that was unlocked. Its methods are safe for concurrent use.
type Lock struct {
	t     *turn
	fence uint64
	key   string
	ctx   context.Context // the one that Lock was called with: for its values
}

// Lock waits for the key until ctx ends, and returns with the lock granted. Two goroutines of one process exclude each
// other as those of two processes do; callers of one process are served in order of arrival. A lock is not reentrant: with the
// context of a lock of the same key ([Lock.Context], or what Do gives to its function) Lock returns [ErrHeld] at once. So a
// goroutine that is to wait for the lock's end needs another context. Two keys that two callers lock in two orders are not
// noticed: lock several keys in one order everywhere.
//
// ctx limits the wait, not the lock. The lock lasts until Unlock, however long that takes, or until it is lost: see
// [Lock.Context].
//
// Without a cluster, the goroutine that calls Lock may make the first request to the arbiter by itself. It does not notice
// that ctx is cancelled before that request is over, after a twentieth of Options.CallTimeout at the latest. (It does so if
// the arbiter's client heeds deadlines, see [fallback.Prompter], and the arbiter has answered fast before.)
//
// Errors: [ErrInvalidKey], [ErrClosed], [ErrHeld]; ctx's own if it has ended before; or a [*WaitError] that matches ctx.Err() and says by [ErrLocked] or
// [ErrUnavailable] what it was that took so long. A server that refuses to grant locks (maxmemory, permissions) is
// reported at once, as [ErrUnavailable] and [fallback.ErrRefused].
func (c *Coordinator) Lock(ctx context.Context, key string) (Lock, error) {
	return c.lock(ctx, key, false)
}

// TryLock is Lock for callers who do not want to wait for others: if the key is not free it returns [ErrLocked] at
// once, and if the arbiter cannot be asked or may not grant, [ErrUnavailable], soon after Options.CallTimeout at the latest.
// Both come as a [*WaitError]; the other errors are Lock's.
//
// It takes one call of the arbiter, or of the node that owns the key; a second one where a process that is known to have died has
// the key; and some more where a partition is changing hands. Whether a holder lives is asked in the background, for the next one
// who tries: so the first TryLock after a crash may say that the key is locked. So it may for some milliseconds (see
// Options.Handoff) of a key that another process has just unlocked, or keeps for its next caller.
func (c *Coordinator) TryLock(ctx context.Context, key string) (Lock, error) {
	return c.lock(ctx, key, true)
}

func checkKey(key string) error {
	if len(key) == 0 || len(key) > MaxKey {
		return fmt.Errorf("%w: it has %d bytes, must have 1 to %d", ErrInvalidKey, len(key), MaxKey)
	}
	return nil
}

func (c *Coordinator) lock(ctx context.Context, key string, try bool) (Lock, error) {
	if len(key) == 0 || len(key) > MaxKey {
		return Lock{}, checkKey(key)
	}
	if ctx.Err() != nil {
		return Lock{}, ended(ctx)
	}
	p := c.partitionOf(key)
	p.mu.Lock()
	e := p.entries[key]
	if t, fence := p.lockOwn(e); t != nil {
		p.mu.Unlock()
		l := Lock{t, fence, key, ctx}
		if p.traced {
			c.noteGranted(p, l, PathOwn, 0)
		}
		return l, nil
	}
	return c.enter(ctx, p, e, key, try)
}

// enter is lock in all cases but lockOwn's. e is the key's entry, if it has one. p.mu is held, and free afterwards.
func (c *Coordinator) enter(ctx context.Context, p *partition, e *entry, key string, try bool) (Lock, error) {
	x := attempt{c: c, p: p, ctx: ctx, key: key, try: try, start: unmeasured}
	if e != nil && e.q.State() == handoff.Turn && !try && p.ending == endingNot {
		if l, err := x.queue(e); l.t != nil || err != nil {
			return l, err
		}
		e = p.lookUp(key)
	}
	for {
		if l, err := x.once(e); l.t != nil || err != nil {
			return l, err
		}
		e = p.lookUp(key)
	}
}

// An attempt is a call of Lock or TryLock that lockOwn does not serve. Its methods are called with the partition's mutex
// held, and free it. They return the zero Lock without an error if there has to be another try.
type attempt struct {
	c     *Coordinator
	p     *partition
	ctx   context.Context
	key   string
	try   bool
	start moment // when it began; unmeasured if no clock was read
}

// queue waits behind the turn that runs. Nothing is granted, so no clock is read, but for a sample of the waits.
func (x *attempt) queue(e *entry) (Lock, error) {
	c, p := x.c, x.p
	if p.grants[PathOwn]%8 == 0 || c.opts.Trace.Granted != nil || e.hold.source != sourceOwn {
		x.start = c.moment()
	}
	w := x.join(e)
	p.mu.Unlock()
	if c.heldBy(x.ctx, x.key) && p.leaveQueue(e, w) {
		c.recycle(w)
		return Lock{}, &WaitError{Key: x.key, Reason: ErrHeld}
	}
	return x.await(e, w)
}

// once takes the key if that is possible at once, and waits for it otherwise.
func (x *attempt) once(e *entry) (Lock, error) {
	var a after
	c, p := x.c, x.p
	now := p.now() // with the mutex held: waiting for it must not make a grant of the past (rule 1)
	begin := c.at(now)
	if x.start == unmeasured {
		x.start = begin
	}
	if p.ending != endingNot {
		p.mu.Unlock()
		return Lock{}, &WaitError{Key: x.key, Reason: ErrClosed}
	}
	if e == nil {
		e = p.add(x.key)
	}
	if e.q.State() != handoff.Idle && !p.inForce(e, now, &a) {
		e = p.entry(x.key) // the other one was forgotten with its hold
	}
	if e.q.State() == handoff.Lingering {
		path := p.supply(e)
		if fence, ok := e.q.Enter(); ok {
			l := Lock{p.begin(e, fence, path, begin), fence, x.key, x.ctx}
			p.mu.Unlock()
			c.noteGranted(p, l, path, begin-x.start)
			return l, nil
		}
	}
	if t, token := p.beginOwn(e, now, begin); t != nil {
		l := Lock{t, token, x.key, x.ctx}
		p.mu.Unlock()
		a.do(c)
		c.noteGranted(p, l, PathOwn, begin-x.start)
		return l, nil
	}
	if x.try && e.g != nil && !e.available() {
		p.recall(e, now, &a)
	}
	if x.try && (e.q.State() != handoff.Idle || e.q.Waiting() > 0 || !e.available()) {
		return Lock{}, x.refuse(e, &a)
	}
	return x.ask(e, now, &a)
}

// beginOwn grants a key that is free in this node's own partition.
func (p *partition) beginOwn(e *entry, now time.Time, begin moment) (*turn, uint64) {
	if e.g != nil || p.own == nil || !e.available() || !p.serves(now) || e.acq != nil || e.forward.link != nil {
		return nil, 0
	}
	token := uint64(p.token(1))
	if !e.q.Begin(token) {
		return nil, 0
	}
	e.hold = hold{session: p.own.session, source: sourceOwn}
	p.holds++
	return p.begin(e, token, PathOwn, begin), token
}

// refuse ends a TryLock of a key that is not free.
func (x *attempt) refuse(e *entry, a *after) error {
	reason := e.reason()
	if reason == errNoAnswer {
		reason = ErrLocked // another caller's request is under way: it comes first
	}
	x.p.mu.Unlock()
	a.do(x.c)
	if x.c.heldBy(x.ctx, x.key) {
		reason = ErrHeld
	}
	return &WaitError{Key: x.key, Reason: reason}
}

// ask queues the caller, makes a request for the key if none is under way, and waits.
func (x *attempt) ask(e *entry, now time.Time, a *after) (Lock, error) {
	c, p := x.c, x.p
	w := x.join(e)
	var first *acquisition
	switch {
	case e.q.State() != handoff.Idle || e.acq != nil || e.forward.link != nil:
	case c.cluster == nil && c.inline(x.ctx):
		first = p.acquire(e)
	default:
		p.want(e, now, a, false)
	}
	p.mu.Unlock()
	a.do(c)
	if first != nil {
		first.first(w)
	}
	return x.await(e, w)
}

// await waits for the turn, without the mutex.
func (x *attempt) await(e *entry, w *waiter) (Lock, error) {
	l, at, err := x.p.wait(x.ctx, e, w, x.key)
	if err != nil {
		return Lock{}, err
	}
	path := w.Value.path
	x.c.recycle(w)
	if l.t == nil {
		return Lock{}, nil
	}
	l.key, l.ctx = x.key, x.ctx
	if x.start != unmeasured {
		x.c.noteGranted(x.p, l, path, at-x.start)
	}
	return l, nil
}

// join queues the caller.
func (x *attempt) join(e *entry) *waiter {
	w := x.c.waiters.Get().(*waiter)
	w.Value.try = x.try
	if x.p.traced && x.c.opts.LogCallers {
		w.Value.call = calledFrom(0)
	}
	e.q.Join(w)
	return w
}

// lookUp returns a key's entry, if it has one, with p.mu held.
func (p *partition) lookUp(key string) *entry {
	p.mu.Lock()
	return p.entries[key]
}

// wait waits for the waiter's turn, and returns when that was; the zero Lock if the turn was over before the caller could
// have it.
func (p *partition) wait(ctx context.Context, e *entry, w *waiter, key string) (l Lock, at moment, err error) {
	s := w.Value
	if s.try && len(s.ready) == 0 && !p.awaitAnswer(ctx, e, w) {
		p.c.recycle(w)
		return Lock{}, at, &WaitError{Key: key, Reason: errNoAnswer}
	}
	select {
	case <-s.ready:
	case <-ctx.Done():
		if p.leaveQueue(e, w) {
			return Lock{}, at, p.c.gaveUp(ctx, key, w)
		}
		<-s.ready // the turn came, or an error, in the same moment
		if s.err == nil {
			// Nobody is there to use the turn: it is passed on, in full (rule 11).
			Lock{t: s.turn, fence: w.Fence()}.pass()
			return Lock{}, at, p.c.gaveUp(ctx, key, w)
		}
	}
	if err := s.err; err != nil {
		p.c.recycle(w)
		return Lock{}, at, err
	}
	l = Lock{t: s.turn, fence: w.Fence()}
	// The turn was given a while ago: this is the moment that counts.
	if s.quickUntil > 0 { // see quick
		if at = p.c.moment(); at < s.quickUntil {
			return l, at, nil
		}
	}
	now := p.c.now()
	if s.valid.past(now) && !l.holds() {
		return Lock{}, at, nil
	}
	return l, p.c.at(now), nil
}

// awaitAnswer limits the wait of a TryLock: an owner has no deadline for its answer, and a call may
// wait for a connection. It reports false if the waiter has left the queue.
func (p *partition) awaitAnswer(ctx context.Context, e *entry, w *waiter) bool {
	late := time.NewTimer(p.c.opts.CallTimeout * 9 / 8) // a call's own error comes first, and says more
	defer late.Stop()
	select {
	case <-w.Value.ready:
		w.Value.ready <- struct{}{} // for wait
	case <-ctx.Done():
	case <-late.C:
		return !p.leaveQueue(e, w)
	}
	return true
}

// leaveQueue takes a waiter out of the queue, if it has not got its turn.
func (p *partition) leaveQueue(e *entry, w *waiter) bool {
	var a after
	defer func() { a.do(p.c) }()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !e.q.Leave(w) {
		return false
	}
	w.Value.err = e.reason()
	p.unwanted(e, &a)
	return true
}

// reason is why the key is not to be had.
func (e *entry) reason() error {
	switch {
	case e.acq != nil && e.acq.trouble != nil:
		return e.acq.trouble
	case e.acq == nil && e.forward.link == nil && e.g == nil && e.q.State() == handoff.Idle: // nobody has been asked: take is at work
		return errNoAnswer
	default:
		return ErrLocked
	}
}

func (c *Coordinator) gaveUp(ctx context.Context, key string, w *waiter) error {
	reason := w.Value.err
	if reason == nil {
		reason = ErrLocked
	}
	c.recycle(w)
	return &WaitError{Key: key, Reason: reason, Ended: ended(ctx)}
}

// recycle lets a waiter be used again.
func (c *Coordinator) recycle(w *waiter) {
	w.Value.err, w.Value.turn, w.Value.since, w.Value.call = nil, nil, 0, nil
	c.waiters.Put(w)
}

// ended returns an error that matches the ctx's Err and its cause.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
}

func (c *Coordinator) noteGranted(p *partition, l Lock, path Path, waited time.Duration) {
	if waited > 0 {
		c.stats.stripes[p.number%stripes].waits.record(waited)
	}
	if p.traced && c.opts.LogCallers {
		p.noteCaller(l)
	}
	if f := c.opts.Trace.Granted; f != nil {
		returned := false
		defer func() {
			if !returned { // f panicked, so nobody will get the lock
				l.pass()
			}
		}()
		f(GrantInfo{Key: l.key, Fence: l.Fence(), Path: path, Waited: waited})
		returned = true
	}
}

// Key returns the key that was locked.
func (l Lock) Key() string { return l.key }

// Fence returns the lock's fencing token. It is larger than that of every lock of the key that was granted before, by any
// process, also if the arbiter failed over or lost its data in between. It is less than 2^63 until the year 2068.
func (l Lock) Fence() Fence { return Fence(l.fence) }

// holds tells whether the lock is in force by the clock, now.
func (l Lock) holds() bool {
	var a after
	p := l.t.e.p
	p.mu.Lock()
	ok := l.t.fence == l.fence && l.t.lost == nil && p.inForce(l.t.e, p.c.now(), &a)
	p.mu.Unlock()
	a.do(p.c)
	return ok
}

// Context returns a context that lasts as long as the lock: it ends when the lock is unlocked (its cause is then
// [ErrUnlocked]) or lost (its cause Is [ErrLost], and is a [*LossError]). It has the values of the ctx that Lock
// was called with, but does not end with that. It carries the lock: see [ErrHeld]. It is made when it is first asked for.
func (l Lock) Context() context.Context {
	if l.t == nil {
		return over(context.Background(), ErrUnlocked)
	}
	var a after
	p := l.t.e.p
	p.mu.Lock()
	t := l.t
	if t.fence == l.fence && t.lost == nil {
		p.inForce(t.e, p.c.now(), &a)
	}
	var ctx context.Context
	switch {
	case t.fence != l.fence:
		ctx = over(l.ctx, ErrUnlocked)
	case t.ctx != nil:
		ctx = t.ctx
	case t.lost != nil:
		ctx = over(l.ctx, t.lost)
	default:
		var cancel context.CancelCauseFunc
		t.ctx, cancel = context.WithCancelCause((*lockValues)(&l))
		t.onEnd(cancel)
		ctx = t.ctx
	}
	p.mu.Unlock()
	a.do(p.c)
	return ctx
}

// over returns a context that has ended.
func over(values context.Context, cause error) context.Context {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(values))
	cancel(cause)
	return ctx
}

// Unlock gives the lock to the next waiter of this process, or back to the arbiter. It never blocks on the network: what
// has to be sent is sent in the background. It returns [ErrUnlocked] if this lock was unlocked before, and an error
// that Is [ErrLost] if it was lost: then somebody else may have had the key already. (A lock of a partition that this node
// owns, for whose Context nobody has asked, is not checked against the clock here: a process that was stopped for longer
// than the lease may be told nil before it has noticed.)
func (l Lock) Unlock() error {
	if l.t == nil {
		return ErrUnlocked
	}
	t, p := l.t, l.t.e.p
	p.mu.Lock()
	if p.unlockOwn(t, l.fence) {
		p.mu.Unlock()
		return nil
	}
	if w := p.passOwn(t, l.fence); w != nil {
		p.mu.Unlock()
		w.Value.ready <- struct{}{}
		return nil
	}
	held, err := l.unlock()
	if err != nil {
		return err
	}
	if held < 0 {
		return nil
	}
	p.c.stats.stripes[p.number%stripes].holds.record(held)
	if trace := p.c.opts.Trace.Released; trace != nil {
		trace(ReleaseInfo{Key: l.key, Fence: l.Fence(), Held: held})
	}
	return nil
}

// unlock ends the turn, and returns how long it took, a negative number if that was not measured. The partition's mutex is
// held, and free afterwards.
func (l Lock) unlock() (held time.Duration, err error) {
	var a after
	t, p := l.t, l.t.e.p
	now := p.now()
	if t.fence != l.fence {
		p.mu.Unlock()
		return 0, ErrUnlocked
	}
	if t.lost == nil && p.inForce(t.e, now, &a) {
		if held = -1; t.began != unmeasured {
			held = p.c.at(now) - t.began
		}
		p.finish(t.e, now, &a)
	} else {
		t.fence, err = 0, t.lost
	}
	p.mu.Unlock()
	a.do(p.c)
	return held, err
}

// pass gives the turn on without having used it.
func (l Lock) pass() {
	l.t.e.p.mu.Lock()
	_, _ = l.unlock()
}

// Do calls fn with the key locked, and unlocks it when fn returns, panics or calls runtime.Goexit. fn's context has the
// values of ctx and ends with it, and also when the lock is lost, with that as its cause; fn has to heed it. It carries the
// lock: Do, Lock and TryLock of the same key with it return [ErrHeld].
//
// Do returns the error of Lock or of fn. If the lock was lost before fn ended, the error Is [ErrLost] as well, even if
// fn returned nil: what fn did may have been done without protection. fn may unlock l itself.
func (c *Coordinator) Do(ctx context.Context, key string, fn func(ctx context.Context, l Lock) error) (err error) {
	l, err := c.Lock(ctx, key)
	if err != nil {
		return err
	}
	s := &section{values: lockValues(l)}
	defer func() {
		unlocked := s.end()
		if unlocked != nil && errors.Is(unlocked, ErrLost) && !errors.Is(err, ErrLost) {
			err = errors.Join(err, unlocked)
		}
	}()
	return fn(s, l)
}
