package coord

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// MaxKey is the length of the longest key, in bytes.
const MaxKey = 1024

// A Lock is a granted lock. It is a small value: copies are the same lock, and when one of them was
// unlocked the others are told so. The zero Lock is one that was unlocked. Its methods are safe for
// concurrent use.
type Lock struct {
	p     *partition
	t     *lease.Turn
	fence uint64
	key   string
	ctx   context.Context // the one that Lock was called with: for its values
}

// Lock waits for the key until ctx ends, and returns with the lock granted. Two goroutines of one
// process exclude each other as those of two processes do; callers of Lock in one process are
// served in order of arrival. Readers of the process that came before may come after them, and the
// other way round, by Handoff.MaxHold: see [Coordinator.RLock]. A lock is not reentrant: with the
// context of a lock of the same key ([Lock.Context], or the one that Do gives to its function) Lock
// returns [ErrHeld] at once. So a goroutine that is to wait for the lock's end needs another
// context. Two callers that lock two keys in two orders wait for each other: lock several keys by
// [Coordinator.LockAll].
//
// ctx limits the wait, not the lock. The lock lasts until Unlock, however long that takes, or until
// it is lost: see [Lock.Context].
//
// Without a cluster, the goroutine that calls Lock may make the first request to the arbiter by
// itself. It does so if the arbiter's client heeds deadlines (see [fallback.Prompter]) and the
// arbiter has answered fast before. Before that it sends the key's release, if the key was unlocked
// just now and is not kept (Handoff.Linger). It does not notice that ctx is cancelled before these
// calls are over, each after a twentieth of Options.CallTimeout at the latest.
//
// Errors: [ErrInvalidKey]; ctx's own if it has ended before; or a [*WaitError] that matches
// [ErrClosed], [ErrHeld], [ErrDeadlock] (with Options.DeadlockAfter) or [ErrObserver] (with
// Options.Observe); or one that matches ctx.Err(), and [ErrLocked] or [ErrUnavailable] as the
// reason of the long wait: look by errors.Is, not ==. A server that refuses to grant locks
// (maxmemory, permissions) is reported at once, as [ErrUnavailable] and [fallback.ErrRefused].
func (c *Coordinator) Lock(ctx context.Context, key string) (l Lock, err error) {
	err = c.lock(ctx, key, false, &l)
	return l, err
}

// TryLock is Lock for callers that do not want to wait for others. If the key is not free TryLock
// returns [ErrLocked] at once. If the arbiter cannot be asked or may not grant, TryLock returns
// [ErrUnavailable], soon after Options.CallTimeout at the latest. Both come as a [*WaitError]; the
// other errors are Lock's.
//
// It takes one call of the arbiter, or of the node that owns the key; a second one where a process
// that is known to have died has the key; some more where a partition is changing hands; and up to
// four more, within 15 ms, where this process has just read the key, and gives it back for this.
// Whether a holder lives is asked in the background, for the next try: so the first TryLock after a
// crash may say that the key is locked. So it may for some milliseconds (see Options.Handoff) of a
// key that another process has just unlocked, or keeps for its next caller.
func (c *Coordinator) TryLock(ctx context.Context, key string) (l Lock, err error) {
	err = c.lock(ctx, key, true, &l)
	return l, err
}

// validateOwn is validateKey for the keys of callers. Keys that begin with NUL are the semaphores'.
func validateOwn(key string) error {
	if strings.HasPrefix(key, semaphorePrefix) {
		return fmt.Errorf("%w: a key must not begin with NUL", ErrInvalidKey)
	}
	return validateKey(key)
}

func validateKey(key string) error {
	if len(key) == 0 || len(key) > MaxKey {
		return fmt.Errorf("%w: it has %d bytes, must have 1 to %d", ErrInvalidKey, len(key), MaxKey)
	}
	if fallback.IsName(key) {
		return fmt.Errorf("%w: a key must not end with NUL, letters, digits or slashes, NUL and 0xff", ErrInvalidKey)
	}
	return nil
}

// lock is Lock and TryLock. A Lock is more than the compiler keeps in registers: to is for one copy
// of it less.
func (c *Coordinator) lock(ctx context.Context, key string, try bool, to *Lock) (err error) {
	if len(key) == 0 || len(key) > MaxKey || key[0] == 0 || key[len(key)-1] == 0xff && fallback.IsName(key) {
		return validateOwn(key)
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	if labelled.Load() {
		if label, task := labelOf(ctx), isTask(ctx); label != "" || task {
			*to, err = c.lockLabelled(ctx, key, try, label)
			return err
		}
	}
	p := c.partitionOf(key)
	p.mu.Lock()
	at, calm := lease.Unmeasured, p.Calm()
	if calm { // the processor looks the key up while it reads the clock, and not after that
		at = c.moment()
	}
	k := p.Find(key)
	if warm := p.Warm(k); warm || k == nil && p.Vacant() { // as a rule, at an owner
		if !calm {
			at = c.moment()
		}
		if p.Quick(at) || p.good(&at) {
			var t *lease.Turn
			var fence uint64
			if warm {
				t, fence = p.Again(k, at)
			} else {
				t, fence = p.Fresh(key, at)
			}
			// Before Unlock, as the caller's loads would wait for the stores else; and field by
			// field, as the compiler makes a literal apart from it, and copies it.
			to.p, to.t, to.fence, to.key, to.ctx = p, t, fence, key, ctx
			p.mu.Unlock()
			if p.traced {
				c.noteGranted(p, *to, PathOwn, 0)
			}
			return nil
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
			now := p.now()
			at = c.at(now)
			t, fence, path = p.Reenter(k, now)
		}
		if t != nil {
			p.mu.Unlock()
			*to = Lock{p, t, fence, key, ctx}
			c.noteGranted(p, *to, Path(path), 0)
			return nil
		}
	}
	*to, err = c.enter(&attempt{c: c, p: p, ctx: ctx, key: key, try: try, start: lease.Unmeasured, at: at}, k)
	return err
}

// good reads both clocks, and reports whether this node, an owner, may grant the partition's keys.
func (p *partition) good(at *lease.Moment) bool {
	now := p.c.now()
	*at = p.c.at(now)
	return p.Good(now)
}

// enter is lock in all other cases. k is the key, if it is in use. The partition's mutex is held,
// and free afterwards.
func (c *Coordinator) enter(x *attempt, k *lease.Key) (Lock, error) {
	if busy, own := x.p.Busy(k); busy && !x.try {
		if l, err := x.queue(k, own); l.t != nil || err != nil { // neither: the turn was over before the caller could have it
			return l, x.tellFailed(err)
		}
		k = x.p.lookUp(x.key)
	}
	for {
		if l, err := x.once(k); (l.t != nil || err != nil) && !x.again(err) {
			return l, x.tellFailed(err)
		}
		k = x.p.lookUp(x.key)
	}
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

// Fence returns the lock's fencing token. It is larger than that of every earlier lock of the key,
// by any process: also if the arbiter failed over or lost its data in between, unless its clock was
// set back as well. It is less than 2^63 until the year 2068.
func (l Lock) Fence() Fence { return Fence(l.fence) }

// is reports whether two locks are the same one. Comparing them by == compares the contexts of
// callers, too, which panics if their type is not comparable.
func (l Lock) is(o Lock) bool { return l.t == o.t && l.fence == o.fence }

// holds reports whether the lock is in force by the clock, now.
func (l Lock) holds() bool {
	var a after
	now := l.p.lock()
	state := l.p.TurnState(l.t, l.fence, now, &a.Effects)
	l.p.unlock(&a)
	a.do(l.p.c)
	return state == lease.TurnRuns
}
