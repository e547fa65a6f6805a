package coord

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// A Semaphore has permits, of which callers of all processes together have no more than there are.
// It is made by [Coordinator.Semaphore], and safe for concurrent use.
type Semaphore struct {
	c   *Coordinator
	key string // as it was given
	of  uint32
	err error // why it cannot be used; nil: it can
}

// A SizeError is why permits cannot be had: others of the same semaphore are in use, in this process
// or another one, where it has another number of them. It may be tried again once those are given
// back.
type SizeError struct {
	Key   string
	Size  int // how many permits the semaphore has, by the caller
	InUse int // and by those that have some
}

// Error returns the key and both numbers, for logs.
func (e *SizeError) Error() string {
	return fmt.Sprintf("coord: a semaphore of key %s with %d permits; it is in use with %d", show(e.Key), e.Size, e.InUse)
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
// A process keeps permits that were released for a moment, for its next callers (see
// Options.Handoff), unless others wait. Those of a process that crashed are free when its session
// is dead.
func (c *Coordinator) Semaphore(key string, n int) *Semaphore {
	s := &Semaphore{c: c, key: key, err: checkKey(key)}
	if s.err == nil && (n < 1 || uint64(n) > math.MaxUint32) {
		s.err = fmt.Errorf("coord: Semaphore: %d permits of key %s; there has to be 1 at least, and 4294967295 at most", n, show(key))
	}
	s.of = uint32(n)
	return s
}

// Acquire waits for n permits until ctx ends. Callers of all processes are served in the order in
// which they came: a large request is not starved by small ones. Permits last as a [Lock] does,
// until Release or until they are lost.
//
// Errors: those of [Coordinator.Lock] without [ErrHeld]; a [*SizeError]; and if n is less than 1 or
// more than the semaphore has.
func (s *Semaphore) Acquire(ctx context.Context, n int) (Permits, error) {
	return s.acquire(ctx, n, false)
}

// TryAcquire is Acquire for callers that do not want to wait for others: if so many permits are
// not free, or another caller waits, it returns [ErrLocked] at once. See [Coordinator.TryLock].
func (s *Semaphore) TryAcquire(ctx context.Context, n int) (Permits, error) {
	return s.acquire(ctx, n, true)
}

// Do calls fn with n permits, and releases them when fn returns, panics or calls runtime.Goexit.
// fn's context has the values of ctx and ends with it, and also when the permits are lost, with
// that as its cause; fn has to heed it.
//
// Do returns the error of Acquire or of fn. If the permits were lost before fn ended, the error Is
// [ErrLost] as well.
func (s *Semaphore) Do(ctx context.Context, n int, fn func(ctx context.Context) error) (err error) {
	p, err := s.Acquire(ctx, n)
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancelCause(ctx)
	p.lock.endsWith(cancel)
	defer func() {
		if released := p.Release(); errors.Is(released, ErrLost) && !errors.Is(err, ErrLost) {
			err = errors.Join(err, released)
		}
	}()
	return fn(inner)
}

// Permits are some of a semaphore's that a caller has. Copies are the same permits. The zero
// Permits were released. Their methods are safe for concurrent use.
type Permits struct {
	s    *Semaphore
	lock Lock
	slot int
	n    int
}

// N returns how many they are.
func (p Permits) N() int { return p.n }

// Context returns a context that lasts as long as the permits: see [Lock.Context].
func (p Permits) Context() context.Context { return p.lock.Context() }

// Wanted returns a channel that is closed when others wait for permits that are not free: see
// [Lock.Wanted].
func (p Permits) Wanted() <-chan struct{} { return p.lock.Wanted() }

// Release gives the permits back. It never blocks on the network. It returns [ErrUnlocked] if they
// were released before, and an error that Is [ErrLost] if they were lost.
func (p Permits) Release() error {
	if p.s == nil {
		return ErrUnlocked
	}
	err := p.lock.Unlock()
	if !errors.Is(err, ErrUnlocked) {
		p.s.c.callers.permits.free(p.s.slots(p.n), p.slot)
	}
	return err
}

// acquire tries a few times if there are permits of another number, which processes may have kept for
// their next callers: they are asked for them the first time, and give them back.
func (s *Semaphore) acquire(ctx context.Context, n int, try bool) (Permits, error) {
	for pause := firstRefusal; ; pause *= 2 {
		p, err := s.acquireOnce(ctx, n, try)
		if _, other := errors.AsType[*SizeError](err); !other || try || pause > lastRefusal {
			return p, err
		}
		if !sleep(ctx, pause) {
			return Permits{}, &WaitError{Key: s.key, Reason: err, Ended: ended(ctx)}
		}
	}
}

// Pauses of a caller that says another number of permits than those in use.
const firstRefusal, lastRefusal = 10 * time.Millisecond, 160 * time.Millisecond

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *Semaphore) acquireOnce(ctx context.Context, n int, try bool) (Permits, error) {
	if s.err != nil {
		return Permits{}, s.err
	}
	if n < 1 || uint64(n) > uint64(s.of) {
		return Permits{}, fmt.Errorf("coord: %d permits of key %s; there are %d", n, show(s.key), s.of)
	}
	if ctx.Err() != nil {
		return Permits{}, ended(ctx)
	}
	slot, err := s.c.callers.permits.take(s.slots(n))
	if err != nil {
		return Permits{}, err
	}
	key := semaphorePrefix + s.key
	name := fallback.PermitsName(key, uint32(n), s.of, s.c.callers.holder+"x"+strconv.Itoa(slot))
	label := ""
	if labelled.Load() {
		label = labelOf(ctx)
	}
	l, err := s.c.lockName(ctx, key, name, try, label)
	if err != nil {
		s.c.callers.permits.free(s.slots(n), slot)
		return Permits{}, rekeyed(err, s.key)
	}
	return Permits{s, l, slot, n}, nil
}

// slotsOf are requests of a process for so many permits of a key.
type slotsOf struct {
	key string
	n   int
	of  uint32
}

func (s *Semaphore) slots(n int) slotsOf { return slotsOf{s.key, n, s.of} }

// permits are the numbers by which the holds of one process for as many permits of a key are told
// apart. The lowest ones are used, so that a hold which was kept for the next caller finds it.
type permits struct {
	mu   sync.Mutex // protects what follows
	used map[slotsOf][]uint64
	of   map[string]inUse // by key
}

// inUse is how many permits a semaphore has by which it is used, and how many slots of it are.
type inUse struct {
	of    uint32
	slots int
}

// take returns the lowest number that is not in use.
func (p *permits) take(of slotsOf) (slot int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used == nil {
		p.used, p.of = make(map[slotsOf][]uint64), make(map[string]inUse)
	}
	now := p.of[of.key]
	if now.slots > 0 && now.of != of.of {
		return 0, &SizeError{of.key, int(of.of), int(now.of)}
	}
	p.of[of.key] = inUse{of.of, now.slots + 1}
	set := p.used[of]
	for i, word := range set {
		if free := bits.TrailingZeros64(^word); free < 64 {
			set[i] |= 1 << free
			return 64*i + free, nil
		}
	}
	p.used[of] = append(set, 1)
	return 64 * len(set), nil
}

func (p *permits) free(of slotsOf, slot int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	set := p.used[of]
	set[slot/64] &^= 1 << (slot % 64)
	for len(set) > 0 && set[len(set)-1] == 0 {
		set = set[:len(set)-1]
	}
	if p.used[of] = set; len(set) == 0 {
		delete(p.used, of)
	}
	now := p.of[of.key]
	if now.slots--; now.slots == 0 {
		delete(p.of, of.key)
	} else {
		p.of[of.key] = now
	}
}
