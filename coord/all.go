package coord

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/held"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// Locks are the locks of several keys, which [Coordinator.LockAll] granted together. Copies are the
// same locks. Their methods are safe for concurrent use.
type Locks []Lock

// Of returns the lock of a key; the zero Lock, which is not in force, if the key was not asked for.
func (s Locks) Of(key string) Lock {
	for _, l := range s {
		if l.key == key {
			return l
		}
	}
	return Lock{}
}

// Fence returns the token of the lock of a key, 0 if the key was not asked for.
func (s Locks) Fence(key string) Fence { return s.Of(key).Fence() }

// Unlock unlocks all of them, also if some were lost or unlocked before. The error joins those of
// [Lock.Unlock]. It does not block on the network.
func (s Locks) Unlock() error {
	var errs []error
	for _, l := range slices.Backward(s) {
		errs = append(errs, l.Unlock())
	}
	return errors.Join(errs...)
}

// LockAll waits for all of the keys until ctx ends, and returns with all of them locked. With an
// error none is. A key that is given twice is locked once; of no keys there is nothing to wait for.
//
// Callers that each lock several keys by one call of LockAll, TryLockAll or DoAll never wait for
// each other in a circle. The order of the arguments does not matter. A caller that waits for a key
// holds only earlier keys, in an order that is the same in all processes (partition, then key). So
// a caller must not call LockAll while it holds another lock that others lock in the same way.
//
// Free keys cost as much as the slowest of them: those of other nodes, or of the arbiter, are asked
// for at the same time, and each other node in one write. Each that is not free is waited for in
// turn. Keys that other nodes keep for their next callers ([Handoff].Linger) are asked for twice,
// once in vain: their owner has them given back meanwhile. It keeps no request for them, as a
// caller that waits for one key must not be granted a later one.
//
// Errors are those of [Coordinator.Lock]; a [*WaitError] names the key.
func (c *Coordinator) LockAll(ctx context.Context, keys ...string) (Locks, error) {
	return writes(c.lockAll(ctx, ForWriting(keys...), false))
}

// TryLockAll is LockAll for callers that do not want to wait for others: if one of the keys is not
// free it returns an error at once, as [Coordinator.TryLock] does, and leaves none locked.
func (c *Coordinator) TryLockAll(ctx context.Context, keys ...string) (Locks, error) {
	return writes(c.lockAll(ctx, ForWriting(keys...), true))
}

// writes returns the locks of keys that were claimed for writing.
func writes(all []granted, err error) (Locks, error) {
	if err != nil {
		return nil, err
	}
	locks := make(Locks, len(all))
	for i, g := range all {
		locks[i] = g.l
	}
	return locks, nil
}

// DoAll calls fn with all of the keys locked, as by LockAll, and unlocks them when fn returns,
// panics or calls runtime.Goexit. fn's context has the values and the deadline of ctx, and ends
// with it. It also ends when one of the locks is lost or unlocked, with that as its cause; fn has
// to heed it. It carries the locks: see [ErrHeld].
//
// DoAll returns the error of LockAll or of fn. If a lock was lost before fn ended, the error Is
// [ErrLost] as well, even if fn returned nil.
func (c *Coordinator) DoAll(ctx context.Context, keys []string, fn func(ctx context.Context, locks Locks) error) (err error) {
	return c.DoClaims(ctx, ForWriting(keys...), func(ctx context.Context, s Claimed) error { return fn(ctx, s.Writes) })
}

// eagerRounds is how often LockAll asks for all the keys that it lacks at the same time. After that
// it waits for one after the other: among busy keys another round would be in vain.
const eagerRounds = 3

// A granted is a lock of one of several keys: l, or r if the key was claimed for reading.
type granted struct {
	l Lock
	r ReadLock
}

func (g granted) unlock() error {
	if g.r.seat != nil {
		return g.r.Unlock()
	}
	return g.l.Unlock()
}

// pass gives it back unused.
func (g granted) pass() {
	if g.r.seat != nil {
		_ = g.r.Unlock()
		return
	}
	g.l.pass()
}

// claim locks a key as it is claimed.
func (c *Coordinator) claim(ctx context.Context, x Claim, try bool) (g granted, err error) {
	switch {
	case x.Read && try:
		g.r, err = c.TryRLock(ctx, x.Key)
	case x.Read:
		g.r, err = c.RLock(ctx, x.Key)
	default:
		err = c.lock(ctx, x.Key, try, &g.l)
	}
	return g, err
}

// claimNext waits for a key, for a caller that has others.
func (c *Coordinator) claimNext(ctx context.Context, x Claim, others []granted) (granted, error) {
	if len(others) == 0 || c.opts.DeadlockAfter <= 0 {
		return c.claim(ctx, x, false)
	}
	locks := make([]carriedLock, len(others))
	for i, g := range others {
		locks[i] = carriedLock{g.l, g.r}
	}
	g, err := c.claim(&chainContext{ctx, locks}, x, false)
	g.l.ctx, g.r.ctx = ctx, ctx
	return g, err
}

func (c *Coordinator) lockAll(ctx context.Context, claims []Claim, try bool) ([]granted, error) {
	order, err := c.inOrder(claims)
	if err != nil {
		return nil, err
	}
	locks, n := make([]granted, len(order)), 0 // the first n are granted
	whole := false
	var inTheWay *WaitError // of the last try
	defer func() {
		if !whole { // or a function of Options.Trace has panicked
			for _, g := range slices.Backward(locks[:n]) {
				_ = g.unlock()
			}
		}
	}()
	for round := 0; n < len(order); round++ {
		if try || round < eagerRounds {
			granted, err := c.tryEach(ctx, order[n:], locks[n:])
			n += granted
			if n == len(order) {
				break
			}
			if try {
				return nil, err
			}
			if e, ok := errors.AsType[*WaitError](err); ok {
				inTheWay = e
			}
		}
		if locks[n], err = c.claimNext(ctx, order[n], locks[:n]); err != nil {
			if _, told := errors.AsType[*WaitError](err); !told && ctx.Err() != nil && inTheWay != nil { // the time was up with the try
				err = &WaitError{Key: inTheWay.Key, Reason: inTheWay.Reason, Ended: ended(ctx)}
			}
			return nil, err
		}
		n++
	}
	whole = true
	return locks, nil
}

// inOrder returns the claims, one for each key, in the order in which every process waits for them.
// A key that is claimed for reading and for writing is claimed for writing.
func (c *Coordinator) inOrder(claims []Claim) ([]Claim, error) {
	for _, x := range claims {
		if err := validateOwn(x.Key); err != nil {
			return nil, err
		}
	}
	order := slices.Clone(claims)
	slices.SortStableFunc(order, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(c.partitionOf(a.Key).Number(), c.partitionOf(b.Key).Number()), cmp.Compare(a.Key, b.Key))
	})
	once := order[:0]
	for _, x := range order {
		if n := len(once); n > 0 && once[n-1].Key == x.Key {
			once[n-1].Read = once[n-1].Read && x.Read
			continue
		}
		once = append(once, x)
	}
	return once, nil
}

// tryEach locks keys without waiting for others, and returns how many of the first ones it got,
// with the error of the one after these. It keeps none of the rest: a caller that waits for a key
// must not hold a later one.
func (c *Coordinator) tryEach(ctx context.Context, claims []Claim, locks []granted) (int, error) {
	errs := make([]error, len(claims))
	var work sync.WaitGroup
	asked, done := c.askTogether(ctx, claims)
	defer done()
	whole := false
	defer func() {
		if whole {
			return
		}
		for _, x := range asked { // a function of Options.Trace has panicked
			x.p.abandon(x.k, x.w)
		}
		work.Wait()
		for _, g := range locks {
			_ = g.unlock()
		}
	}()
	next := 0 // of asked
	for i, x := range claims {
		if next < len(asked) && asked[next].claim == i {
			next++
			continue
		}
		if n, _ := c.Owner(x.Key); n.Self || len(claims) == 1 {
			locks[i], errs[i] = c.claim(ctx, x, true)
			continue
		}
		work.Add(1)
		c.life.pool.Go(func() {
			defer work.Done()
			errs[i] = errGoexit // until it returns
			locks[i], errs[i] = c.claim(ctx, x, true)
		})
	}
	for len(asked) > 0 {
		x := asked[0]
		asked = asked[1:]
		locks[x.claim].l, errs[x.claim] = x.answer()
	}
	work.Wait()
	whole = true
	n := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if n < 0 {
		return len(claims), nil
	}
	for i := n; i < len(claims); i++ {
		if errs[i] == nil {
			locks[i].pass()
			locks[i] = granted{}
		}
	}
	if errs[n] == errGoexit {
		errs[n] = &WaitError{Key: claims[n].Key, Reason: errGoexit}
	}
	return n, errs[n]
}

// An asking is a try with a request that is under way.
type asking struct {
	*attempt
	claim int // which one
	k     *lease.Key
	w     *lease.Waiter
}

// askTogether asks other nodes for keys that no caller of this process uses: each node for all of
// its keys in one write. Other keys are left out. Those for reading are asked for, and to be
// claimed yet. done is called when all have been awaited.
func (c *Coordinator) askTogether(ctx context.Context, claims []Claim) (asked []asking, done func()) {
	var ends []func()
	done = func() {
		for _, end := range ends {
			end()
		}
	}
	if c.cluster == nil || len(claims) == 1 || ctx.Err() != nil {
		return nil, done
	}
	label := ""
	if labelled.Load() {
		label = labelOf(ctx)
	}
	var a after
	var late context.Context // ends when the answers have been awaited for long enough
	for i, claim := range claims {
		if claim.Read {
			if n, _ := c.Owner(claim.Key); !n.Self {
				if land := c.flyAhead(claim.Key, &a); land != nil {
					ends = append(ends, land)
				}
			}
			continue
		}
		x := &attempt{c: c, p: c.partitionOf(claim.Key), ctx: ctx, key: claim.Key, try: true, label: label}
		k, w := x.send(&a)
		if w == nil {
			continue
		}
		if late == nil {
			var cancel context.CancelFunc
			late, cancel = context.WithTimeout(context.Background(), c.answerIn())
			ends = append(ends, cancel)
		}
		x.late = late.Done()
		asked = append(asked, asking{x, i, k, w})
	}
	a.do(c)
	return asked, done
}

// send queues the caller for a key that is not in use here, and is not this node's. The request
// stays in a. It returns no waiter, and has done nothing, if the key is another one.
func (x *attempt) send(a *after) (k *lease.Key, w *lease.Waiter) {
	p := x.p
	now := p.lock()
	if p.Find(x.key) != nil || p.Vacant() || p.Ending() != lease.Open || x.c.readingOf(x.key) != nil {
		p.mu.Unlock()
		return nil, nil
	}
	k, x.start = p.Key(x.key), x.c.at(now)
	w = x.join(k)
	p.Want(k, now, &a.Effects)
	p.unlock(a)
	return k, w
}

// answer waits for the answer.
func (x *asking) answer() (Lock, error) {
	l, err := x.asked(x.k, x.w)
	if l.t == nil && err == nil { // it was over before the caller had it
		l, err = x.c.enter(x.attempt, x.p.lookUp(x.key))
	} else {
		err = x.tellFailed(err)
	}
	if err != nil || !labelled.Load() {
		return l, err
	}
	if x.label != "" {
		l.keepLabel(x.label)
	}
	took(x.ctx, carriedLock{lock: l})
	return l, nil
}

// heldLocks is the parent of DoAll's context: the caller's values, and the locks.
type heldLocks struct {
	ctx   context.Context
	locks Locks
}

func (heldLocks) Deadline() (time.Time, bool)     { return time.Time{}, false }
func (heldLocks) Done() <-chan struct{}           { return nil }
func (heldLocks) Err() error                      { return nil }
func (h heldLocks) Held() (Lock, context.Context) { return h.locks[0], heldLocks{h.ctx, h.locks[1:]} }

func (h heldLocks) Value(key any) any {
	if key == (held.Key{}) && len(h.locks) > 0 {
		return h
	}
	return h.ctx.Value(key)
}
