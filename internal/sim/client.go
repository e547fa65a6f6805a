package sim

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/circle"
	"github.com/holdfast-go/holdfast/internal/history"
)

// lockAndUnlock is a client. It ends with the process.
func (s *start) lockAndUnlock(number int, rng *rand.Rand) {
	w := s.n.w
	up := func(d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(w.t(d)))) }
	step := w.t(20 * time.Millisecond) // clients do things at the same moments, which costs less; see latency
	for {
		think := up(w.cfg.Think).Truncate(step)
		if w.resting.Load() {
			think *= 8 // nothing new happens any more, and no node is away: two thirds of all locks would be taken now
		}
		time.Sleep(step - w.now()%step + think)
		if s.ctx.Err() != nil {
			return
		}
		if rng.IntN(2) == 0 { // else Lock may be called while the process stands still, which then happens within it
			s.h.clock.wait()
		}
		key := w.keys[rng.IntN(w.cfg.Keys)]
		ctx, cancel := s.ctx, func() {}
		if rng.IntN(2) == 0 {
			ctx, cancel = context.WithTimeout(ctx, up(20*time.Second))
		}
		switch kind := rng.IntN(7); {
		case w.cfg.hasty && kind < 6:
			s.entangle(ctx, number, rng)
			cancel()
			continue
		case kind < 3:
			s.share(ctx, number, key, kind == 0, rng, up)
			cancel()
			continue
		case kind == 3 && rng.IntN(3) == 0:
			s.entangle(ctx, number, rng)
			cancel()
			continue
		case kind == 3:
			s.several(ctx, number, rng, up)
			cancel()
			continue
		}
		var call *history.Call
		var l coord.Lock
		var err error
		called := time.Now()
		switch rng.IntN(16) {
		case 0, 1:
			call = s.rec.TryLock(number, key)
			done := w.h.wants(s, key, true)
			l, err = s.c.TryLock(ctx, key)
			done()
		case 2:
			call = s.rec.Lock(number, key)
			done := w.h.wants(s, key, false)
			l, err = s.c.LockFor(ctx, key, step+up(8*time.Second))
			done()
		default:
			call = s.rec.Lock(number, key)
			done := w.h.wants(s, key, false)
			l, err = s.c.Lock(ctx, key)
			done()
		}
		cancel()
		s.h.clock.wait()
		switch {
		case s.dead.Load():
			return
		case err != nil:
			call.Refused()
			continue
		}
		work, heed, down := s.manner(rng, up)
		s.use(key, l, called, call.Granted(uint64(l.Fence())), work, down, heed)
	}
}

// manner draws how a holder works: for how long, whether it stops when it is told that the lock is
// lost, and for how long it reads afterwards. A negative down means that it does not read.
func (s *start) manner(rng *rand.Rand, up func(time.Duration) time.Duration) (work time.Duration, heed bool, down time.Duration) {
	step := s.n.w.t(20 * time.Millisecond)
	work, down = step*time.Duration(rng.IntN(2)), -1
	switch n := rng.IntN(20); {
	case s.n.w.resting.Load():
	case n == 0: // it works for long
		work = up(40 * time.Second)
	case n <= 2:
		work, heed = up(8*time.Second), true
	}
	if rng.IntN(4) == 0 {
		down = step * time.Duration(rng.IntN(2))
	}
	return work, heed, down
}

// use works with a lock, and unlocks it, or makes it one for reading first, for the time down,
// unless that is negative.
func (s *start) use(key string, l coord.Lock, called time.Time, hold *history.Hold, work, down time.Duration, heed bool) {
	w := s.n.w
	g := w.h.granted(s, key, l, called)
	w.rests(key)
	stop := s.watch(g, hold)
	switch {
	case heed:
		_ = pause(g.ctx, work)
	case work <= w.t(20*time.Millisecond):
		time.Sleep(work)
	default:
		_ = pause(s.ctx, work)
	}
	s.h.clock.wait()
	if s.dead.Load() {
		return
	}
	hold.See(func() bool { return g.ctx.Err() == nil })
	w.h.write(key, g)
	stop() // an end from now on is the unlock's doing
	if down >= 0 && s.downgrade(key, l, g, hold, down) {
		return
	}
	s.unlock(key, g, hold, l.Unlock)
}

// watch notes when the context ends, until stop is called.
func (s *start) watch(g *grant, hold *history.Hold) (stop func() bool) {
	if !s.n.w.cfg.History {
		return func() bool { return true }
	}
	return context.AfterFunc(g.ctx, hold.Lost)
}

// unlock ends a grant.
func (s *start) unlock(key string, g *grant, hold *history.Hold, end func() error) {
	call := hold.Unlock()
	s.n.w.h.releasing(g)
	err := end()
	s.h.clock.wait()
	switch {
	case s.dead.Load():
	case err == nil:
		call.Done()
	case errors.Is(err, coord.ErrLost):
		s.n.w.h.lost(s, key, err)
		call.Refused()
	default:
		s.n.w.h.say("%v: Unlock of %q: %v", s, key, err)
	}
}

// downgrade makes a lock one for reading, and reads for a time. It reports false if the lock is
// unchanged.
func (s *start) downgrade(key string, l coord.Lock, g *grant, hold *history.Hold, work time.Duration) bool {
	w := s.n.w
	ctx, cancel := context.WithTimeout(s.ctx, w.t(5*time.Second))
	defer cancel()
	call := hold.Downgrade()
	w.h.downgrading(g)
	r, err := l.Downgrade(ctx)
	s.h.clock.wait()
	if s.dead.Load() {
		return true
	}
	if err != nil {
		call.Refused()
		w.h.notDowngraded(key, g)
		if errors.Is(err, coord.ErrLost) {
			hold.Lost()
			return true
		}
		return false
	}
	reads := call.Granted(uint64(r.Fence()))
	u := &use{grant: &grant{by: s, called: g.called, at: time.Now(), ctx: endOf(r), token: uint64(r.Fence())}}
	w.h.downgraded(key, g, u)
	s.have(key, u, reads, s.ctx, work, r.Unlock)
	return true
}

// have uses a share until heed ends, for some time at most.
func (s *start) have(key string, u *use, hold *history.Hold, heed context.Context, work time.Duration, end func() error) {
	stop := s.watch(u.grant, hold)
	_ = pause(heed, work)
	s.h.clock.wait()
	if s.dead.Load() {
		return
	}
	hold.See(func() bool { return u.ctx.Err() == nil })
	stop()
	s.unlock(key, u.grant, hold, end)
}

// share reads the key, or uses permits of it.
func (s *start) share(ctx context.Context, number int, key string, permits bool, rng *rand.Rand, up func(time.Duration) time.Duration) {
	if permits && rng.IntN(2) == 0 {
		s.inParts(ctx, number, key, rng, up)
		return
	}
	n := 0
	if permits {
		n = 1 + rng.IntN(semaphore)
	}
	try := rng.IntN(8) == 0
	work, heed, _ := s.manner(rng, up)
	s.shareFor(ctx, number, key, n, try, heed, work)
}

// inParts uses permits, and then parts of the block that the process has kept of them, at the same
// time.
func (s *start) inParts(ctx context.Context, number int, key string, rng *rand.Rand, up func(time.Duration) time.Duration) {
	s.shareFor(ctx, number, key, 2+rng.IntN(semaphore-1), false, false, 0)
	var parts sync.WaitGroup
	for range 1 + rng.IntN(2) {
		n, try := 1+rng.IntN(2), rng.IntN(8) == 0
		work, heed, _ := s.manner(rng, up)
		parts.Go(func() { s.shareFor(ctx, number, key, n, try, heed, work) })
	}
	parts.Wait()
}

// shareFor reads the key for some time, or uses n permits of it, if that is not 0.
func (s *start) shareFor(ctx context.Context, number int, key string, n int, try, stops bool, work time.Duration) {
	w := s.n.w
	u := &use{grant: &grant{by: s, called: time.Now()}, n: n}
	var call *history.Call
	var end func() error
	var err error
	if n > 0 {
		call, end, err = s.acquire(ctx, number, key, u, try)
	} else {
		call, end, err = s.read(ctx, number, key, u, try)
	}
	s.h.clock.wait()
	switch {
	case s.dead.Load():
		return
	case err != nil:
		call.Refused()
		return
	}
	u.at = time.Now()
	hold := call.Granted(u.token)
	w.h.shares(key, u)
	heed := s.ctx
	if stops {
		heed = u.ctx
	}
	s.have(key, u, hold, heed, work, end)
}

// semaphore returns the process's semaphore of a key.
func (s *start) semaphore(key string) *coord.Semaphore {
	if x, ok := s.semaphores.Load(key); ok {
		return x.(*coord.Semaphore)
	}
	x, _ := s.semaphores.LoadOrStore(key, s.c.Semaphore(key, semaphore))
	return x.(*coord.Semaphore)
}

func (s *start) acquire(ctx context.Context, number int, key string, u *use, try bool) (call *history.Call, end func() error, err error) {
	sem := s.semaphore(key)
	acquire, record := sem.Acquire, s.rec.Acquire
	if try {
		acquire, record = sem.TryAcquire, s.rec.TryAcquire
	}
	call = record(number, key, u.n, semaphore)
	p, err := acquire(ctx, u.n)
	if err == nil {
		u.ctx = endOf(p)
	}
	return call, p.Release, err
}

func (s *start) read(ctx context.Context, number int, key string, u *use, try bool) (call *history.Call, end func() error, err error) {
	lock, record := s.c.RLock, s.rec.RLock
	if try {
		lock, record = s.c.TryRLock, s.rec.TryRLock
	}
	call = record(number, key)
	l, err := lock(ctx, key)
	if err == nil {
		u.ctx, u.token = endOf(l), uint64(l.Fence())
	}
	return call, l.Unlock, err
}

// several locks some keys together, some of them for reading, and unlocks each when it has worked
// with it.
func (s *start) several(ctx context.Context, number int, rng *rand.Rand, up func(time.Duration) time.Duration) {
	w := s.n.w
	var claims []coord.Claim
	var calls []*history.Call
	called := time.Now()
	for _, i := range rng.Perm(w.cfg.Keys)[:min(2+rng.IntN(2), w.cfg.Keys)] {
		x := coord.Claim{Key: w.keys[i], Read: rng.IntN(2) == 0}
		record := s.rec.Lock
		if x.Read {
			record = s.rec.RLock
		}
		claims, calls = append(claims, x), append(calls, record(number, x.Key))
	}
	lock := s.c.LockClaims
	if rng.IntN(8) == 0 {
		lock = s.c.TryLockClaims
	}
	x := w.h.begins(s)
	x.all = inOrder(claims)
	if ctx = coord.WithLabel(ctx, x.label); w.cfg.blind || rng.IntN(2) == 0 {
		ctx = coord.WithLocker(ctx)
		x.ctx = ctx
	}
	done := w.h.waits(x, circle.Claim{})
	all, err := lock(ctx, claims...)
	done()
	s.h.clock.wait()
	if s.dead.Load() {
		return
	}
	var work sync.WaitGroup
	if err != nil {
		w.h.toldOf(x, err)
	}
	for i, x := range claims {
		if err != nil {
			calls[i].Refused()
			continue
		}
		hold := calls[i].Granted(uint64(all.Fence(x.Key)))
		length, heed, down := s.manner(rng, up)
		if l := all.ReadOf(x.Key); x.Read {
			u := &use{grant: &grant{by: s, called: called, at: time.Now(), ctx: endOf(l), token: uint64(l.Fence())}}
			w.h.shares(x.Key, u)
			work.Go(func() { s.have(x.Key, u, hold, s.ctx, length, l.Unlock) })
		} else {
			work.Go(func() { s.use(x.Key, all.Of(x.Key), called, hold, length, down, heed) })
		}
	}
	work.Wait()
}

// inOrder returns the claims in the order of their waits: see coord.Coordinator.LockAll.
func inOrder(claims []coord.Claim) []circle.Claim {
	all := make([]circle.Claim, len(claims))
	for i, c := range claims {
		all[i] = circle.Claim{Key: c.Key, Read: c.Read}
	}
	slices.SortFunc(all, func(a, b circle.Claim) int {
		return cmp.Or(cmp.Compare(xxhash.Sum64String(a.Key)%partitions, xxhash.Sum64String(b.Key)%partitions), cmp.Compare(a.Key, b.Key))
	})
	return all
}
