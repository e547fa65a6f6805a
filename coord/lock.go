package coord

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// MaxKey is the length of the longest key, in bytes.
const MaxKey = 1024

// A Lock is a granted lock. It is a small value: copies are the same lock, and when one of them was unlocked the others
// are told so. The zero Lock is one that was unlocked. Its methods are safe for concurrent use.
type Lock struct {
	p     *partition
	t     *lease.Turn
	fence uint64
	key   string
	ctx   context.Context // the one that Lock was called with: for its values
}

// Lock waits for the key until ctx ends, and returns with the lock granted. Two goroutines of one process exclude each
// other as those of two processes do; callers of one process are served in order of arrival. A lock is not reentrant: with the
// context of a lock of the same key ([Lock.Context], or what Do gives to its function) Lock returns [ErrHeld] at once. So a
// goroutine that is to wait for the lock's end needs another context. Two callers that lock two keys in two orders wait for
// each other: lock several keys by [Coordinator.LockAll].
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

// TryLock is Lock for callers that do not want to wait for others: if the key is not free it returns [ErrLocked] at
// once, and if the arbiter cannot be asked or may not grant, [ErrUnavailable], soon after Options.CallTimeout at the latest.
// Both come as a [*WaitError]; the other errors are Lock's.
//
// It takes one call of the arbiter, or of the node that owns the key; a second one where a process that is known to have died has
// the key; and some more where a partition is changing hands. Whether a holder lives is asked in the background, for the next
// try: so the first TryLock after a crash may say that the key is locked. So it may for some milliseconds (see
// Options.Handoff) of a key that another process has just unlocked, or keeps for its next caller.
func (c *Coordinator) TryLock(ctx context.Context, key string) (Lock, error) {
	return c.lock(ctx, key, true)
}

func checkKey(key string) error {
	if len(key) == 0 || len(key) > MaxKey {
		return fmt.Errorf("%w: it has %d bytes, must have 1 to %d", ErrInvalidKey, len(key), MaxKey)
	}
	if fallback.IsName(key) {
		return fmt.Errorf("%w: a key must not end with NUL, letters or digits, NUL and 0xff", ErrInvalidKey)
	}
	return nil
}

func (c *Coordinator) lock(ctx context.Context, key string, try bool) (Lock, error) {
	if len(key) == 0 || len(key) > MaxKey || key[len(key)-1] == 0xff && fallback.IsName(key) {
		return Lock{}, checkKey(key)
	}
	if ctx.Err() != nil {
		return Lock{}, ended(ctx)
	}
	if labelled.Load() {
		if label, task := labelOf(ctx), isTask(ctx); label != "" || task {
			return c.lockLabelled(ctx, key, try, label)
		}
	}
	p := c.partitionOf(key)
	p.mu.Lock()
	at, calm := lease.Unmeasured, p.Calm()
	if calm { // the processor looks the key up while it reads the clock, and not after that
		at = c.moment()
	}
	k := p.Find(key)
	if rests := p.Rests(k); rests || k == nil && p.Vacant() { // as a rule, at an owner
		if !calm {
			at = c.moment()
		}
		if p.Quick(at) || p.good(&at) {
			var t *lease.Turn
			var fence uint64
			if rests {
				t, fence = p.Again(k, at)
			} else {
				t, fence = p.Fresh(key, at)
			}
			p.mu.Unlock()
			l := Lock{p, t, fence, key, ctx}
			if p.traced {
				c.noteGranted(p, l, PathOwn, 0)
			}
			return l, nil
		}
	}
	if p.Lingers(k) { // as a rule, under a hold of another's key
		if !calm {
			at = c.moment()
		}
		var t *lease.Turn
		var fence uint64
		var path lease.Path
		if p.Soon(k, at) {
			t, fence, path = p.Enter(k, at)
		} else {
			t, fence, path = p.Reenter(k, p.now())
		}
		if t != nil {
			p.mu.Unlock()
			l := Lock{p, t, fence, key, ctx}
			c.noteGranted(p, l, Path(path), 0)
			return l, nil
		}
	}
	return c.enter(&attempt{c: c, p: p, ctx: ctx, key: key, try: try, start: lease.Unmeasured}, k)
}

// good reads both clocks, and reports whether this node, an owner, may grant the partition's keys.
func (p *partition) good(at *lease.Moment) bool {
	now := p.c.now()
	*at = p.c.at(now)
	return p.Good(now)
}

// enter is lock in all other cases. k is the key, if it is in use. The partition's mutex is held, and free afterwards.
func (c *Coordinator) enter(x *attempt, k *lease.Key) (Lock, error) {
	if busy, own := x.p.Busy(k); busy && !x.try {
		if l, err := x.queue(k, own); l.t != nil || err != nil {
			return l, x.over(err)
		}
		k = x.p.lookUp(x.key)
	}
	for {
		if l, err := x.once(k); l.t != nil || err != nil {
			return l, x.over(err)
		}
		k = x.p.lookUp(x.key)
	}
}

// An attempt is a call of Lock or TryLock that takes the long way. Its methods are called with the partition's mutex held, and
// free it. They return the zero Lock without an error if there has to be another try.
type attempt struct {
	c     *Coordinator
	p     *partition
	ctx   context.Context
	key   string
	try   bool
	start lease.Moment // when it began; lease.Unmeasured if no clock was read
	label string       // of WithLabel
	reads bool         // the key is known to be read by this process
	holds bool         // ctx carries locks

	late <-chan struct{} // closed when a try has waited for an answer for long enough; nil: that begins when it waits
}

// queue waits behind the turn that runs. Nothing is granted, so no clock is read, but for a sample of the waits.
func (x *attempt) queue(k *lease.Key, own bool) (Lock, error) {
	c, p := x.c, x.p
	if p.Sampled() || c.opts.Trace.Granted != nil || c.opts.Trace.Waited != nil || !own {
		x.start = c.moment()
	}
	w := x.join(k)
	p.mu.Unlock()
	if x.itself() && p.leaveQueue(k, w) {
		c.recycle(w)
		return Lock{}, &WaitError{Key: x.key, Reason: ErrHeld}
	}
	return x.await(k, w)
}

// once takes the key if that is possible at once, and waits for it otherwise.
func (x *attempt) once(k *lease.Key) (Lock, error) {
	var a after
	c, p := x.c, x.p
	now := p.now() // with the mutex held: waiting for it must not make a grant of the past (rule 1)
	begin := c.at(now)
	if x.start == lease.Unmeasured {
		x.start = begin
	}
	if p.Ending() != lease.Open {
		p.mu.Unlock()
		return Lock{}, &WaitError{Key: x.key, Reason: c.over()}
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
		return x.beside(r, &a)
	}
	if x.try {
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

// orLocked returns the reason why a key is not to be had, which is that it is locked if there is no other.
func orLocked(reason error) error {
	if reason == nil {
		return ErrLocked
	}
	return reason
}

// ask queues the caller, makes a request for the key if none is under way, and waits.
func (x *attempt) ask(k *lease.Key, now time.Time, a *after) (Lock, error) {
	c, p := x.c, x.p
	w := x.join(k)
	var first *acquisition
	if c.cluster == nil && k.Idle() && c.inline(x.ctx) {
		first = p.newAcquisition(p.Contend(k))
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

// asked waits, once a request is under way. The mutex is free.
func (x *attempt) asked(k *lease.Key, w *lease.Waiter) (Lock, error) {
	if len(w.Value.Ready) == 0 && x.itself() && x.p.leaveQueue(k, w) { // the caller reads the key
		x.c.recycle(w)
		return Lock{}, &WaitError{Key: x.key, Reason: ErrHeld}
	}
	return x.await(k, w)
}

// itself reports whether the caller would wait for itself, and notes whether it has locks.
func (x *attempt) itself() (held bool) {
	held, x.holds = x.c.carries(x.ctx, x.key)
	return held
}

// lookUp returns a key if it is in use, with p.mu held.
func (p *partition) lookUp(key string) *lease.Key {
	p.mu.Lock()
	return p.Find(key)
}

func (c *Coordinator) noteGranted(p *partition, l Lock, path Path, waited time.Duration) {
	if waited > 0 {
		c.tells.stats.stripes[p.Number()%stripes].waits.record(waited)
		if f := c.opts.Trace.Waited; f != nil {
			c.tell(l, func() {
				f(l.ctx, WaitInfo{Key: namedKey(l.key), Fence: l.Fence(), Path: path, Waited: waited})
			})
		}
	}
	if p.traced && c.opts.LogCallers {
		p.noteCaller(l)
	}
	if f := c.opts.Trace.Granted; f != nil {
		c.tell(l, func() {
			f(l.ctx, GrantInfo{Key: namedKey(l.key), Fence: l.Fence(), Path: path, Waited: waited})
		})
	}
}

// Key returns the key that was locked.
func (l Lock) Key() string { return l.key }

// Fence returns the lock's fencing token. It is larger than that of every lock of the key that was granted before, by any
// process, also if the arbiter failed over or lost its data in between. It is less than 2^63 until the year 2068.
func (l Lock) Fence() Fence { return Fence(l.fence) }

// holds reports whether the lock is in force by the clock, now.
func (l Lock) holds() bool {
	var a after
	now := l.p.lock()
	state := l.p.TurnState(l.t, l.fence, now, &a.Effects)
	l.p.unlock(&a)
	a.do(l.p.c)
	return state == lease.TurnRuns
}

// Context returns a context that lasts as long as the lock: it ends when the lock is unlocked (its cause is then
// [ErrUnlocked]) or lost (its cause Is [ErrLost], and is a [*LossError]). It has the values of the ctx that Lock
// was called with, but does not end with that. It carries the lock: see [ErrHeld]. It is made when it is first asked for, and what
// ends it when that is asked for.
//
// Its Err looks at the clock each time. In a process that was stopped for longer than the lease, and goes on, Err says so at once, which may be
// before Done is closed: ask Err before each write.
func (l Lock) Context() context.Context {
	if l.t == nil {
		return over(context.Background(), ErrUnlocked)
	}
	p, t := l.p, l.t
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !t.Is(l.fence):
		return over(l.ctx, l.cause())
	case t.Context != nil:
		return t.Context.(context.Context)
	case t.Lost() != nil:
		return over(l.ctx, lossOf(t.Lost()))
	}
	s := &section{values: lockValues{l: l}}
	t.Context = s
	return s
}

// over returns a context that has ended.
func over(values context.Context, cause error) context.Context {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(values))
	cancel(cause)
	return ctx
}

// Unlock gives the lock to the next waiter of this process, or back to the arbiter. It never blocks on the network: what
// has to be sent is sent in the background. It returns [ErrUnlocked] if this lock was unlocked before, and an error
// that Is [ErrLost] if it was lost: then another caller may have had the key already. (A lock of a partition that this node
// owns is not checked against the clock here if no caller has asked when its context ends, by Done: a process that was stopped for
// longer than the lease may be told nil before it has noticed.)
func (l Lock) Unlock() error {
	if l.t == nil {
		return ErrUnlocked
	}
	t, p := l.t, l.p
	p.mu.Lock()
	if !p.traced {
		if p.Rest(t, l.fence) || p.Keep(t, l.fence) {
			p.mu.Unlock()
			return nil
		}
		if w := p.Pass(t, l.fence); w != nil {
			p.mu.Unlock()
			w.Value.Ready <- struct{}{}
			return nil
		}
	}
	held, err := l.unlock()
	if err != nil {
		return err
	}
	if held < 0 {
		return nil
	}
	p.c.noteReleased(p, l, held)
	return nil
}

// unlock ends the turn, and returns how long it took, a negative number if that was not measured. The partition's mutex is
// held, and free afterwards.
func (l Lock) unlock() (held time.Duration, err error) {
	var a after
	p := l.p
	held, state := p.Partition.Unlock(l.t, l.fence, p.now(), &a.Effects)
	p.unlock(&a)
	a.do(p.c)
	switch state {
	case lease.TurnUnlocked:
		return 0, ErrUnlocked
	case lease.TurnLost:
		return 0, lossOf(l.t.Lost())
	}
	return held, nil
}

// pass gives the turn on without having used it.
func (l Lock) pass() {
	l.p.mu.Lock()
	_, _ = l.unlock()
}
