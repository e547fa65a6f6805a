package coord

import (
	"context"
	"slices"

	"github.com/holdfast-go/holdfast/internal/held"
)

// WithLocker returns a context for one task that takes locks by several calls, of Lock, RLock or
// their variants, one after another. Permits of a semaphore are no such locks. Each lock that it
// takes with the context counts as carried by it, as if all calls had the context of the lock
// before ([Lock.Context]): so a call for a key that the task has already returns [ErrHeld]. A
// circle of tasks that wait for each other is found as well (Options.DeadlockAfter). Goroutines
// that wait at the same time need a context each, as the wait of one does not hold up another. A
// lock with such a context costs several times as much as one without.
func WithLocker(ctx context.Context) context.Context {
	if !labelled.Load() {
		labelled.Store(true)
	}
	return &lockerContext{ctx, new(locker)}
}

// A locker is a task, with the locks that it has taken.
type locker struct {
	mu     mutex[lastRank] // protects the fields below, and is held for no call of another type
	locks  []carriedLock   // only appended to, or replaced
	tidied int             // how often it was replaced
	fewer  int             // when there are as many, those that have ended are left out
}

// A carriedLock is a lock that a context carries: read if it is one for reading, lock otherwise.
type carriedLock struct {
	lock Lock
	read ReadLock
}

func (x carriedLock) holds() bool {
	if x.read.seat != nil {
		return x.read.holds()
	}
	return x.lock.t != nil && x.lock.holds()
}

// name returns the name of the hold, and the token.
func (x carriedLock) name() (name string, fence uint64) {
	l := x.lock
	if x.read.seat != nil {
		l = x.read.seat.x.lock
	}
	return l.key, l.fence
}

type lockerKey = held.Task

type lockerContext struct {
	context.Context
	locker *locker
}

// Value answers for the locks that the task has. The first of them tells the others as its outer
// context.
func (x *lockerContext) Value(key any) any {
	switch key {
	case lockerKey{}:
		return x.locker
	case held.Key{}:
		if h := chained(x.Context, x.locker.inForce()); h != nil {
			return h
		}
	}
	return x.Context.Value(key)
}

// inForce returns the locks that have not ended, the last one first.
func (x *locker) inForce() []carriedLock {
	locks := slices.Clone(x.tidy())
	slices.Reverse(locks)
	return locks
}

// tidy leaves out the locks that have ended, and returns the rest, which the caller must not
// change. It asks the locks without the mutex, as that takes those of package coord and reads the
// clock; locks that come meanwhile stay.
func (x *locker) tidy() []carriedLock {
	x.mu.Lock()
	before, tidied := x.locks, x.tidied
	x.mu.Unlock()

	var rest []carriedLock // another array, as that of before is read without the mutex
	for _, l := range before {
		if l.holds() {
			rest = append(rest, l)
		}
	}

	x.mu.Lock()
	defer x.mu.Unlock()
	if len(rest) < len(before) && x.tidied == tidied {
		x.locks = slices.Concat(rest, x.locks[len(before):])
		x.tidied++
	}
	x.fewer = 2 * len(x.locks)
	return rest
}

// isTask reports whether a context has a locker.
func isTask(ctx context.Context) bool { return ctx.Value(lockerKey{}) != nil }

// took notes a lock for the locker of a context, if it has one.
func took(ctx context.Context, l carriedLock) {
	x, ok := ctx.Value(lockerKey{}).(*locker)
	if !ok {
		return
	}
	x.mu.Lock()
	x.locks = append(x.locks, l)
	many := len(x.locks) > max(x.fewer, 8)
	x.mu.Unlock()
	if many {
		x.tidy()
	}
}

// chained returns the answer for [held.Key] of a context that carries the locks, nil if there are
// none.
func chained(outer context.Context, locks []carriedLock) any {
	if len(locks) == 0 {
		return nil
	}
	rest := outer
	if len(locks) > 1 {
		rest = &chainContext{outer, locks[1:]}
	}
	if r := locks[0].read; r.seat != nil {
		return &readValues{rest, r}
	}
	l := locks[0].lock
	l.ctx = rest
	return &lockValues{l: l}
}

// chainContext is a context that carries locks.
type chainContext struct {
	context.Context
	locks []carriedLock
}

func (x *chainContext) Value(key any) any {
	if key == (held.Key{}) {
		return chained(x.Context, x.locks)
	}
	return x.Context.Value(key)
}

// carried returns the locks of this coordinator that a context carries and that are in force, each
// once. Locks that callers lend to the context's flight of Share are left out: see stuckWait.has.
func (c *Coordinator) carried(ctx context.Context) (all []carriedLock) {
	for {
		h, ok := ctx.Value(heldKey).(holder)
		if _, lent := h.(*lending); !ok || lent {
			return all
		}
		all = c.addCarried(all, h)
		_, ctx = h.Held()
	}
}

// addCarried adds a holder's lock if it is one of this coordinator, is in force, and is not there
// yet.
func (c *Coordinator) addCarried(all []carriedLock, h holder) []carriedLock {
	l, _ := h.Held()
	x := carriedLock{lock: l}
	if v, ok := h.(*readValues); ok {
		x.read = v.l
	}
	name, fence := x.name()
	same := func(o carriedLock) bool {
		n, f := o.name()
		return n == name && f == fence
	}
	if l.t != nil && l.p.c == c && !slices.ContainsFunc(all, same) && x.holds() {
		all = append(all, x)
	}
	return all
}
