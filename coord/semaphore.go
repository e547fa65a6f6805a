package coord

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// A Semaphore has a fixed number of permits. Callers of all processes together never have more. It
// is made by [Coordinator.Semaphore], and safe for concurrent use.
type Semaphore struct {
	c    *Coordinator
	key  string // as it was given
	of   uint32
	err  error // why it cannot be used; nil: it can
	pool atomic.Pointer[pool]
}

// A SizeError is why permits cannot be had: others of the same semaphore are in use, in this
// process or another one, where it has another number of them. It may be tried again once those are
// given back.
type SizeError struct {
	Key   string
	Size  int // how many permits the semaphore has, by the caller
	InUse int // and by those that have some
}

// Error returns the key and both numbers, for logs.
func (e *SizeError) Error() string {
	return fmt.Sprintf("coord: a semaphore of key %s with %d permits; it is in use with %d", quoted(e.Key), e.Size, e.InUse)
}

// errSize is a SizeError for a semaphore's key as the holds' names have it.
func errSize(key string, wanted, inUse uint32) error {
	return &SizeError{namedSemaphore(key), int(wanted), int(inUse)}
}

// namedSemaphore returns the key that a semaphore was made of.
func namedSemaphore(key string) string { return key[min(len(key), len(semaphorePrefix)):] }

// semaphorePrefix makes the key of a semaphore another one than the key of a lock.
const semaphorePrefix = "\x00"

// Semaphore returns the semaphore of a key with n permits, at least 1. It asks no other process. A
// semaphore and a lock of the same key have nothing to do with each other. All processes have to
// use the same n: while permits are in use of another n, in any process, Acquire returns a
// [*SizeError].
//
// A process has its permits in blocks, which its callers share: while a block has enough of them,
// Acquire asks no other process. When others wait, a process gives back the permits that its
// callers do not use; and a block that is not used for a second, or twenty times
// Options.Handoff.Linger if that is longer. Stats, Trace and the log tell of blocks, not of each
// caller. The permits of a process that crashed are free when its session is dead.
//
// All processes have to know of blocks: one of an older version of this module keeps the
// unused permits of a block until its last used ones are released.
func (c *Coordinator) Semaphore(key string, n int) *Semaphore {
	s := &Semaphore{c: c, key: key, err: validateOwn(key)}
	if s.err == nil && fallback.IsName(semaphorePrefix+key) {
		s.err = fmt.Errorf("%w: a semaphore's key must not be letters, digits or slashes, NUL and 0xff", ErrInvalidKey)
	}
	if s.err == nil && (n < 1 || uint64(n) > math.MaxUint32) {
		s.err = fmt.Errorf("coord: Semaphore: %d permits of key %s; there has to be 1 at least, and 4294967295 at most", n, quoted(key))
	}
	s.of = uint32(n)
	return s
}

// Acquire waits for n permits until ctx ends. Requests that reach the grantor are
// served in order: a large one is not starved by small ones. Once a process hears of a caller
// that waits, it lets no later one have permits of a block. Permits last as a [Lock] does, until
// Release or until they are lost.
//
// Errors: those of [Coordinator.Lock] without [ErrHeld]; a [*SizeError]; and if n is less than 1 or
// more than the semaphore has.
func (s *Semaphore) Acquire(ctx context.Context, n int) (Permits, error) {
	return s.acquire(ctx, n, false)
}

// TryAcquire is Acquire for callers that do not want to wait for others: if so many permits are not
// free, or another caller waits, it returns [ErrLocked]. See [Coordinator.TryLock]. Permits that
// processes keep for their next callers are given back meanwhile, which may take some milliseconds.
func (s *Semaphore) TryAcquire(ctx context.Context, n int) (Permits, error) {
	return s.acquire(ctx, n, true)
}

// Do calls fn with n permits, and releases them when fn returns, panics or calls runtime.Goexit.
// fn's context has the values and the deadline of ctx and ends with it. It also ends when the
// permits are lost, with that as its cause; fn has to heed it.
//
// Do returns the error of Acquire or of fn. If the permits were lost before fn ended, the error Is
// [ErrLost] as well.
func (s *Semaphore) Do(ctx context.Context, n int, fn func(ctx context.Context) error) (err error) {
	p, err := s.Acquire(ctx, n)
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancelCause(before(ctx)) // it is ended with the pool's mutex held
	p.endsWith(cancel)
	defer func() {
		if released := p.Release(); errors.Is(released, ErrLost) && !errors.Is(err, ErrLost) {
			err = errors.Join(err, released)
		}
	}()
	return fn(&clocked{inner, p.b, ctx, cancel})
}

// Permits are some of a semaphore's that a caller has. Copies are the same permits. The zero
// Permits were released. Their methods are safe for concurrent use.
type Permits struct {
	b    *block // nil: they were released
	at   int32  // of the block's uses
	n    uint32
	turn uint64          // of the use
	ctx  context.Context // the one that Acquire was called with: for its values
}

// Key returns the semaphore's key; "" for the zero Permits.
func (p Permits) Key() string {
	if p.b == nil {
		return ""
	}
	return namedSemaphore(p.b.pool.key)
}

// N returns how many they are.
func (p Permits) N() int { return int(p.n) }

// Context returns a context that lasts as long as the permits: it ends when they are released (its
// cause is then [ErrUnlocked]) or lost (its cause Is [ErrLost], and is a [*LossError]). It has the
// values of the ctx that Acquire was called with, but does not end with that. It is made when it is
// first asked for. Its Err looks at the clock, as that of [Lock.Context] does.
func (p Permits) Context() context.Context {
	if p.b == nil {
		return endedContext(context.Background(), ErrUnlocked)
	}
	p.b.pool.mu.Lock()
	defer p.b.pool.mu.Unlock()
	f := p.follow()
	if f == nil {
		return endedContext(p.ctx, ErrUnlocked)
	}
	if f.live == nil {
		ctx, cancel := context.WithCancelCause(context.WithoutCancel(p.ctx))
		f.live = &clocked{Context: ctx, by: p.b}
		if p.b.end.cause != nil {
			cancel(p.b.loss())
		} else {
			f.ends = append(f.ends, cancel)
		}
	}
	return f.live
}

// Wanted returns a channel that is closed when others wait for permits that are not free, or when
// the permits end: see [Lock.Wanted]. It may be closed for nothing once: when another process takes
// permits that this process had, and none of its callers used.
func (p Permits) Wanted() <-chan struct{} {
	if p.b == nil {
		return canceled.Done()
	}
	pool := p.b.pool
	pool.mu.Lock()
	p.b.spell.watched = true
	l := p.b.lock
	pool.mu.Unlock()
	wanted := l.Wanted()
	pool.mu.Lock()
	defer pool.mu.Unlock()
	if f := p.follow(); f != nil {
		return f.watch(pool.c, wanted)
	}
	return canceled.Done()
}

// Release gives the permits back, to the process's block of them. It never blocks on the network.
// It returns [ErrUnlocked] if they were released before, and an error that Is [ErrLost] if they
// were lost. (Permits without a call of Context are as a rule not checked against the clock here: a
// process that was stopped for longer than the lease may be told nil before it has noticed.)
func (p Permits) Release() error {
	if p.b == nil {
		return ErrUnlocked
	}
	return p.b.leave(p)
}

// acquire tries a few times if there are permits of another number, which processes may have kept
// for their next callers: they are asked for them the first time, and give them back.
func (s *Semaphore) acquire(ctx context.Context, n int, try bool) (Permits, error) {
	for pause := firstRefusal; ; pause *= 2 {
		p, err := s.acquireOnce(ctx, n, try)
		if err == nil {
			return p, nil
		}
		if _, other := errors.AsType[*SizeError](err); !other || try || pause > lastRefusal {
			return p, s.c.waitFailed(try, err)
		}
		if !sleep(ctx, pause) {
			return Permits{}, s.c.waitFailed(try, &WaitError{Key: s.key, Reason: err, Ended: ended(ctx)})
		}
	}
}

// Pauses of a caller that says another number of permits than those in use.
const firstRefusal, lastRefusal = 10 * time.Millisecond, 160 * time.Millisecond

func (s *Semaphore) acquireOnce(ctx context.Context, n int, try bool) (Permits, error) {
	if s.err != nil {
		return Permits{}, s.err
	}
	if n < 1 || uint64(n) > uint64(s.of) {
		return Permits{}, fmt.Errorf("coord: %d permits of key %s; there are %d", n, quoted(s.key), s.of)
	}
	if ctx.Err() != nil {
		return Permits{}, ended(ctx)
	}
	label := ""
	if labelled.Load() {
		label = labelOf(ctx)
	}
	if p := s.pool.Load(); p != nil {
		if x, pledge := p.take(s.of, uint32(n)); x.b != nil {
			if pledge.Holds(s.c.moment()) || x.b.inForce() { // at this moment, which is the one that counts (rule 1)
				x.ctx = ctx
				x.keepLabel(label)
				return x, nil
			}
			_ = x.Release()
		}
	}
	p, err := s.enter()
	if err != nil {
		return Permits{}, err
	}
	x, err := p.acquire(ctx, uint32(n), try, label)
	if err != nil {
		return Permits{}, rekeyed(err, s.key)
	}
	x.keepLabel(label)
	return x, nil
}

// enter makes the caller one of the users of the process's pool.
func (s *Semaphore) enter() (*pool, error) {
	for {
		p := s.c.callers.pools.of(s.c, semaphorePrefix+s.key)
		p.mu.Lock()
		if p.gone {
			p.mu.Unlock()
			continue
		}
		if p.users > 0 && p.of != s.of {
			of := p.of
			p.mu.Unlock()
			return nil, &SizeError{s.key, int(s.of), int(of)}
		}
		p.users++
		var idle []Lock
		if p.of != s.of {
			for _, b := range slices.Clone(p.blocks) {
				idle = append(idle, b.lock)
				b.forget()
			}
		}
		p.of = s.of
		p.mu.Unlock()
		for _, l := range idle {
			_ = l.cede()
		}
		s.pool.Store(p)
		return p, nil
	}
}

// follow returns the follower of the permits; nil if they were released. The mutex is held.
func (p Permits) follow() *follower {
	u := &p.b.uses[p.at]
	if u.turn != p.turn || u.n == 0 {
		return nil
	}
	if u.f == nil {
		u.f = new(follower)
	}
	return u.f
}

// endsWith calls cancel when the permits end, or now if they have ended. Cancel must run no code of
// the user's.
func (p Permits) endsWith(cancel context.CancelCauseFunc) {
	p.b.pool.mu.Lock()
	defer p.b.pool.mu.Unlock()
	switch f := p.follow(); {
	case f == nil:
		cancel(ErrUnlocked)
	case p.b.end.cause != nil:
		cancel(p.b.loss())
	default:
		f.ends = append(f.ends, cancel)
	}
}

// keepLabel keeps the caller's label until it releases the permits.
func (p Permits) keepLabel(label string) {
	if label == "" {
		return
	}
	p.b.pool.mu.Lock()
	defer p.b.pool.mu.Unlock()
	if f := p.follow(); f != nil {
		f.label = label
	}
}
