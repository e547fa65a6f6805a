package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/coord"
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
		if kind := rng.IntN(6); kind < 3 {
			s.share(ctx, key, kind == 0, rng, up)
			cancel()
			continue
		}
		var call *history.Call
		var l coord.Lock
		var err error
		called := time.Now()
		if rng.IntN(8) == 0 {
			call = s.rec.TryLock(number, key)
			l, err = s.c.TryLock(ctx, key)
		} else {
			call = s.rec.Lock(number, key)
			l, err = s.c.Lock(ctx, key)
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
		work, heed := step*time.Duration(rng.IntN(2)), false
		switch n := rng.IntN(20); {
		case w.resting.Load():
		case n == 0: // it works for long
			work = up(40 * time.Second)
		case n <= 2: // it stops when it is told that the lock is lost
			work, heed = up(8*time.Second), true
		}
		s.use(key, l, called, call.Granted(uint64(l.Fence())), work, heed)
	}
}

// use works with a lock, and unlocks it.
func (s *start) use(key string, l coord.Lock, called time.Time, hold *history.Hold, work time.Duration, heed bool) {
	w := s.n.w
	g := w.h.granted(s, key, l, called)
	w.rests(key)
	stop := func() bool { return true }
	if w.cfg.History {
		stop = context.AfterFunc(g.ctx, hold.Lost)
	}
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
	w.h.releasing(g)
	stop() // what comes now is the unlock's doing
	call := hold.Unlock()
	err := l.Unlock()
	s.h.clock.wait()
	switch {
	case s.dead.Load():
	case err == nil:
		call.Done()
	case errors.Is(err, coord.ErrLost):
		call.Refused()
	default:
		w.h.say("%v: Unlock of %q: %v", s, key, err)
	}
}

// share reads the key, or uses permits of it.
func (s *start) share(ctx context.Context, key string, permits bool, rng *rand.Rand, up func(time.Duration) time.Duration) {
	w := s.n.w
	u := &use{grant: &grant{by: s, called: time.Now()}}
	try := rng.IntN(8) == 0
	var end func() error
	var err error
	if permits {
		u.n = 1 + rng.IntN(semaphore)
		end, err = s.acquire(ctx, key, u, try)
	} else {
		end, err = s.read(ctx, key, u, try)
	}
	s.h.clock.wait()
	if s.dead.Load() || err != nil {
		return
	}
	u.at = time.Now()
	w.h.shares(key, u)
	work, heed := w.t(20*time.Millisecond)*time.Duration(rng.IntN(2)), s.ctx
	switch n := rng.IntN(20); {
	case w.resting.Load():
	case n == 0:
		work = up(40 * time.Second)
	case n <= 2:
		work, heed = up(8*time.Second), u.ctx
	}
	_ = pause(heed, work)
	s.h.clock.wait()
	if s.dead.Load() {
		return
	}
	w.h.releasing(u.grant)
	err = end()
	s.h.clock.wait()
	if err != nil && !errors.Is(err, coord.ErrLost) && !s.dead.Load() {
		w.h.say("%v: the end of a share of %q: %v", s, key, err)
	}
}

func (s *start) acquire(ctx context.Context, key string, u *use, try bool) (end func() error, err error) {
	sem := s.c.Semaphore(key, semaphore)
	acquire := sem.Acquire
	if try {
		acquire = sem.TryAcquire
	}
	p, err := acquire(ctx, u.n)
	if err == nil {
		u.ctx = p.Context()
	}
	return p.Release, err
}

func (s *start) read(ctx context.Context, key string, u *use, try bool) (end func() error, err error) {
	lock := s.c.RLock
	if try {
		lock = s.c.TryRLock
	}
	l, err := lock(ctx, key)
	if err == nil {
		u.ctx, u.token = l.Context(), uint64(l.Fence())
	}
	return l.Unlock, err
}
