package coord

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/guard"
)

// A flight is callers that wait together for the shared name to be locked.
type flight struct {
	n      int       // callers that wait
	labels []*string // of those that have one, in order
	try    bool
	cancel context.CancelFunc
	name   string        // the one that is asked for: see lockShared
	done   chan struct{} // closed when it has ended
	ended  bool
	x      *reading // each of the n callers is one of its readers; nil: see err
	turn   uint64   // of these readers
	err    error
}

// seated gives the caller a seat if this process reads the key, and the lock is in force. Otherwise
// it returns none, as for a caller that may have a label, unless that was asked for. The checks
// that do not depend on the key come last: the processor does them while it looks up the key.
func (c *Coordinator) seated(ctx context.Context, key string, asked bool) (*seat, uint64) {
	h := readHash(key)
	x := c.callers.reads.find(h, key)
	if x == nil {
		return nil, 0
	}
	guard.Preempt()
	seat, turn := x.sit()
	if seat == nil {
		return nil, 0
	}
	if (asked || !labelled.Load()) && ctx.Err() == nil &&
		(x.pledge.Holds(c.moment()) || x.inForce()) { // at this moment, which is the one that counts (rule 1)
		return seat, turn
	}
	x.rise(seat, turn)
	return nil, 0
}

// rlock is RLock of a caller that has got no seat, perhaps as it has a label.
func (c *Coordinator) rlock(ctx context.Context, key string, try bool) (ReadLock, error) {
	if labelled.Load() || ctx.Err() != nil {
		if l, err := c.rlockLabelled(ctx, key, try); l.seat != nil || err != nil {
			return l, err
		}
		if seat, turn := c.seated(ctx, key, true); seat != nil {
			return ReadLock{seat, turn, ctx}, nil
		}
	}
	if err := validateOwn(key); err != nil {
		return ReadLock{}, err
	}
	h := readHash(key)
	return c.rlockSlowly(ctx, c.shardOf(h), h, key, try, nil)
}

// rlockLabelled is rlock with a label, for a locker, or with a context that has ended. Otherwise it
// returns nothing.
func (c *Coordinator) rlockLabelled(ctx context.Context, key string, try bool) (ReadLock, error) {
	if ctx.Err() != nil {
		return ReadLock{}, cmp.Or(validateOwn(key), ended(ctx))
	}
	label := labelOf(ctx)
	if label == "" && !isTask(ctx) {
		return ReadLock{}, nil
	}
	if err := validateOwn(key); err != nil {
		return ReadLock{}, err
	}
	h, told := readHash(key), &label
	if label == "" {
		told = nil
	}
	l, err := c.rlockSlowly(ctx, c.shardOf(h), h, key, try, told)
	if err != nil {
		return l, err
	}
	if label != "" {
		l.keepLabel(label)
	}
	took(ctx, carriedLock{read: l})
	return l, nil
}

// rlockSlowly is rlock with the shard's mutex. label is the caller's, nil: it has none.
func (c *Coordinator) rlockSlowly(ctx context.Context, s *readShard, hash uint64, key string, try bool, label *string) (ReadLock, error) {
	for {
		x, l, f := c.join(ctx, s, hash, key, try, label)
		turn := l.turn
		if l.seat != nil {
			if x.inForce() {
				return l, nil
			}
			x.rise(l.seat, turn)
			continue
		}
		if x == nil {
			held, stuck, done := c.consult(ctx, s, key, try, f, label)
			if held {
				s.quit(key, f, label)
				return ReadLock{}, &WaitError{Key: key, Reason: ErrHeld}
			}
			if f == nil {
				return ReadLock{}, &WaitError{Key: key, Reason: ErrLocked}
			}
			if stuck != nil && s.leave(key, f, label) {
				return ReadLock{}, c.waitFailed(try, c.sentAway(stuck))
			}
			if err := c.awaitFlight(ctx, done, s, key, f, label); err != nil {
				return ReadLock{}, c.waitFailed(try, err)
			}
			if x, turn = f.x, f.turn; x == nil && f.try && !try {
				continue
			}
			if x == nil {
				return ReadLock{}, c.waitFailed(try, rekeyed(f.err, key))
			}
		}
		if x.lock.holds() {
			return x.counted(ctx, turn), nil
		}
		x.leave(turn)
	}
}

// consult is attempt.consult for a caller that is one of a flight's; f is nil if there is none.
func (c *Coordinator) consult(
	ctx context.Context, s *readShard, key string, try bool, f *flight, label *string,
) (held bool, stuck *stuckWait, done <-chan struct{}) {
	returned := false
	defer func() {
		if !returned {
			s.quit(key, f, label)
		}
	}()
	held, holds := c.carries(ctx, key)
	if f != nil && holds && !held && !try {
		asks := func() string {
			s.mu.Lock()
			defer s.mu.Unlock()
			return f.name
		}
		stuck = c.endure(ctx, c.sharedName(key, 0), asks, f.done)
	}
	done = ctx.Done()
	returned = true
	return held, stuck, done
}

// awaitFlight waits for a flight to end. done is ctx's.
func (c *Coordinator) awaitFlight(ctx context.Context, done <-chan struct{}, s *readShard, key string, f *flight, label *string) error {
	select {
	case <-f.done:
		return nil
	case <-done:
	}
	reason := c.whyNot(s, key, f)
	s.quit(key, f, label)
	return &WaitError{Key: key, Reason: reason, Ended: ended(ctx)}
}

// warmAfter is how many callers find the mutex of a reading locked by themselves before it has
// seats.
const warmAfter = 2

// join makes the caller one of the key's readers, if it can be. It returns a lock with a seat, or a
// lock with the turn of a counted reader. Otherwise it makes the caller one of those that wait. It
// returns nothing for a caller that only tries while others wait.
func (c *Coordinator) join(
	ctx context.Context, s *readShard, hash uint64, key string, try bool, label *string,
) (*reading, ReadLock, *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.current[key]; x != nil {
		if x.count.joins++; x.count.joins >= warmAfter && x.ending.stays {
			if x.seats == nil {
				x.seats = x.newSeats()
			}
			x.list()
			if seat, turn := x.sit(); seat != nil {
				return x, ReadLock{seat, turn, ctx}, nil
			}
		}
		x.count.n++
		return x, ReadLock{turn: x.count.turn()}, nil
	}
	f := s.flights[key]
	switch {
	case f == nil:
		var ctx context.Context
		ctx, f = s.begin(key, try)
		c.fly(s, hash, key, f, func() (Lock, error) { return c.lockShared(ctx, s, key, f) })
	case try && !f.try:
		return nil, ReadLock{}, nil
	}
	f.n++
	if label != nil {
		f.labels = append(f.labels, label)
	}
	return nil, ReadLock{}, f
}

// begin adds a flight. The mutex is held.
func (s *readShard) begin(key string, try bool) (context.Context, *flight) {
	ctx, cancel := context.WithCancel(context.Background())
	f := &flight{try: try, cancel: cancel, done: make(chan struct{})}
	if s.flights == nil {
		s.flights = make(map[string]*flight)
	}
	s.flights[key] = f
	return ctx, f
}

// flyAhead begins a flight that tries, for a caller that joins it at once. The request stays in a.
// That caller calls land when it has the lock, or has not got it. There is no land, and no flight
// of its own, if callers of this process have the key or wait for it.
func (c *Coordinator) flyAhead(key string, a *after) (land func()) {
	h := readHash(key)
	s := c.shardOf(h)
	s.mu.Lock()
	if s.current[key] != nil || s.flights[key] != nil {
		s.mu.Unlock()
		return nil
	}
	ctx, f := s.begin(key, true)
	f.n, f.name = 1, c.sharedName(key, 0) // until land the flight has a caller
	s.mu.Unlock()
	x := &asking{attempt: &attempt{c: c, p: c.partitionOf(key), ctx: ctx, key: f.name, try: true}}
	if x.k, x.w = x.send(a); x.w != nil {
		c.fly(s, h, key, f, x.answer)
	} else {
		c.fly(s, h, key, f, func() (Lock, error) { return c.lockShared(ctx, s, key, f) })
	}
	return func() { s.quit(key, f, nil) }
}

// fly locks a shared name for the callers of a flight.
func (c *Coordinator) fly(s *readShard, hash uint64, key string, f *flight, lock func() (Lock, error)) {
	c.life.pool.Go(func() {
		defer f.cancel()
		var x *reading
		err := errGoexit
		defer func() { s.land(key, f, x, err) }() // also if a trace function ends the goroutine
		var a after
		l, failed := lock()
		if err = failed; err == nil {
			x = c.newReading(l, hash, key, &a)
		}
		a.do(c)
	})
}

// land ends a flight. x is the lock, nil: see err.
func (s *readShard) land(key string, f *flight, x *reading, err error) {
	s.mu.Lock()
	if s.flights[key] == f {
		delete(s.flights, key)
	}
	f.ended, f.err = true, err
	used := x != nil && f.n > 0
	if used {
		f.x = x
		f.turn = x.open(f.n)
	} else if x != nil {
		x.close()
	}
	s.mu.Unlock()
	close(f.done)
	if used {
		x.linger()
	} else if x != nil {
		x.lock.pass()
	}
}

// mostShared is how many shared names of a key a process has.
const mostShared = 16

// sharedName returns one of the shared names of a key that this process has: see lockShared.
func (c *Coordinator) sharedName(key string, i int) string {
	if i == 0 { // as a rule
		return fallback.SharedName(key, c.callers.holder)
	}
	return fallback.SharedName(key, c.callers.holder+"/"+strconv.Itoa(i))
}

// lockShared locks a shared name for the callers of a flight. The first name may have a reading
// that is shut, with readers inside. The callers wait for those until the quantum is over. Then
// they ask the grantor for another name, and wait there behind a writer that waits. One that has
// given up has told the grantor, and not this process.
func (c *Coordinator) lockShared(ctx context.Context, s *readShard, key string, f *flight) (Lock, error) {
	p := c.partitionOf(key)
	for i := 0; ; i++ {
		name := c.sharedName(key, i)
		now := p.lock()
		left, busy := p.QuantumLeft(p.Find(name), now)
		p.mu.Unlock()
		if busy && left <= 0 && i < mostShared-1 {
			continue
		}
		s.mu.Lock()
		f.name = name
		s.mu.Unlock()
		if !busy || f.try || i == mostShared-1 {
			return c.lockName(ctx, key, name, f.try, "")
		}
		patient, cancel := context.WithTimeout(ctx, left)
		l, err := c.lockName(patient, key, name, false, "")
		over := patient.Err() != nil
		cancel()
		if err == nil || !over || ctx.Err() != nil {
			return l, err
		}
	}
}

// leave is for a caller that waits no more. It reports false if the flight has ended: then the
// caller is one of the readers, if there are any. f and label may be nil.
func (s *readShard) leave(key string, f *flight, label *string) bool {
	if f == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.ended {
		return false
	}
	if label != nil {
		f.labels = slices.DeleteFunc(f.labels, func(other *string) bool { return other == label })
	}
	if f.n--; f.n == 0 {
		f.cancel()
		if s.flights[key] == f {
			delete(s.flights, key)
		}
	}
	return true
}

// quit is leave for a caller that is not there to read, also if it is one of the readers by now.
func (s *readShard) quit(key string, f *flight, label *string) {
	if s.leave(key, f, label) {
		return
	}
	<-f.done
	if f.x != nil {
		f.x.leave(f.turn)
	}
}
