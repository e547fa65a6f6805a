package coord

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/held"
)

// A ReadLock is a granted lock for reading: callers of all processes may have the key for reading
// at the same time, and none of them beside a [Lock]. It is a small value: copies are the same
// lock. The zero ReadLock is one that was unlocked. Its methods are safe for concurrent use.
type ReadLock struct{ r *reader }

// RLock waits until the key can be read, until ctx ends at most, and returns with it locked for
// reading. A caller that comes after one that waits to write waits behind it, in this process and
// in others, so neither readers nor writers are starved; readers that wait together are let in
// together. While the process has the key for reading, and nobody waits to write, its callers are
// let in without a word to other nodes or the arbiter.
//
// A read lock cannot be made a write lock: two readers that want to write would wait for each
// other. With the context of a lock of the key, for reading or writing, Lock and RLock return
// [ErrHeld] where they would have to wait.
//
// All processes that use a key have to know of read locks: one of an older version of this module
// takes no notice of them. Errors and ctx are as for [Coordinator.Lock].
func (c *Coordinator) RLock(ctx context.Context, key string) (ReadLock, error) {
	return c.rlock(ctx, key, false)
}

// TryRLock is RLock for callers that do not want to wait for others: see [Coordinator.TryLock]. It
// returns [ErrLocked] also while another caller of this process waits for the key to read it.
func (c *Coordinator) TryRLock(ctx context.Context, key string) (ReadLock, error) {
	return c.rlock(ctx, key, true)
}

// RDo is [Coordinator.Do] with the key locked for reading.
func (c *Coordinator) RDo(ctx context.Context, key string, fn func(ctx context.Context, l ReadLock) error) (err error) {
	l, err := c.RLock(ctx, key)
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancelCause(&readValues{ctx, l.r})
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	l.r.endsWith(cancel)
	defer func() {
		stop()
		if unlocked := l.Unlock(); errors.Is(unlocked, ErrLost) && !errors.Is(err, ErrLost) {
			err = errors.Join(err, unlocked)
		}
	}()
	return fn(inner, l)
}

// Key returns the key.
func (l ReadLock) Key() string {
	if l.r == nil {
		return ""
	}
	return l.r.key
}

// Fence returns the lock's token. It is above that of every Lock of the key that was granted
// before, and below that of every one that is granted later. Readers may have the same.
func (l ReadLock) Fence() Fence {
	if l.r == nil {
		return 0
	}
	return l.r.x.lock.Fence()
}

// Wanted returns a channel that is closed when a caller of this process or of another one waits to
// write: see [Lock.Wanted].
func (l ReadLock) Wanted() <-chan struct{} {
	if l.r == nil {
		return canceled.Done()
	}
	return l.r.x.wanted
}

// Context returns a context that lasts as long as the lock: see [Lock.Context].
func (l ReadLock) Context() context.Context {
	if l.r == nil {
		return over(context.Background(), ErrUnlocked)
	}
	r := l.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live == nil {
		ctx, cancel := context.WithCancelCause(&readValues{r.ctx, r})
		r.live = ctx
		r.endsWith(cancel)
	}
	return r.live
}

// Unlock ends the lock. It never blocks on the network. It returns [ErrUnlocked] if the lock was
// unlocked before, and an error that Is [ErrLost] if it was lost.
func (l ReadLock) Unlock() error {
	if l.r == nil {
		return ErrUnlocked
	}
	return l.r.unlock()
}

// reads are the keys that callers of this process read.
type reads [64]readShard

// A readShard has some of the keys. Its mutex is one of the last in the order of mutexes: see
// rank.go.
type readShard struct {
	mu      sync.Mutex          // protects what follows, and the fields of readings and flights
	current map[string]*reading // by key
	flights map[string]*flight  // callers that wait for a key, together
}

// A reading is a lock of the shared name that this process has, and its readers.
type reading struct {
	c      *Coordinator
	s      *readShard
	key    string
	lock   Lock
	wanted <-chan struct{}
	n      int // readers, and callers that are about to be
	ends   map[*reader][]context.CancelCauseFunc
	cause  error // why it has ended; nil: it has not
}

// A flight is callers that wait together for the shared name to be locked.
type flight struct {
	n      int // callers that wait
	try    bool
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended
	ended  bool
	x      *reading // each of the n callers is one of its readers; nil: see err
	err    error
}

// A reader is a caller that has the key.
type reader struct {
	x    *reading
	key  string
	ctx  context.Context // the caller's, for its values
	over bool            // unlocked; protected by the shard's mutex

	mu   sync.Mutex // protects live; locked before the shard's
	live context.Context
}

func (c *Coordinator) shardOf(key string) *readShard {
	return &c.reads[hash(key)>>32%uint64(len(c.reads))]
}

func (c *Coordinator) rlock(ctx context.Context, key string, try bool) (ReadLock, error) {
	if err := checkKey(key); err != nil {
		return ReadLock{}, err
	}
	if ctx.Err() != nil {
		return ReadLock{}, ended(ctx)
	}
	s := c.shardOf(key)
	for {
		x, f := c.join(s, key, try)
		if x == nil {
			if c.heldBy(ctx, key) {
				s.leave(key, f)
				return ReadLock{}, &WaitError{Key: key, Reason: ErrHeld}
			}
			if f == nil {
				return ReadLock{}, &WaitError{Key: key, Reason: ErrLocked}
			}
			select {
			case <-f.done:
			case <-ctx.Done():
				reason := c.whyNot(key)
				if s.leave(key, f) {
					return ReadLock{}, &WaitError{Key: key, Reason: reason, Ended: ended(ctx)}
				}
				<-f.done
				if f.x != nil { // the caller is not there to use it
					f.x.leave()
				}
				return ReadLock{}, &WaitError{Key: key, Reason: reason, Ended: ended(ctx)}
			}
			if x = f.x; x == nil && f.try && !try {
				continue
			}
			if x == nil {
				return ReadLock{}, rekeyed(f.err, key)
			}
		}
		if x.lock.holds() { // at this moment, which is the one that counts (rule 1)
			return ReadLock{&reader{x: x, key: key, ctx: ctx}}, nil
		}
		x.shut()
		x.leave()
	}
}

// join makes the caller one of the key's readers, if it can be, or one of those that wait. It
// returns neither for a caller that only tries while others wait.
func (c *Coordinator) join(s *readShard, key string, try bool) (*reading, *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.current[key]; x != nil && x.open() {
		x.n++
		return x, nil
	}
	f := s.flights[key]
	switch {
	case f == nil:
		ctx, cancel := context.WithCancel(context.Background())
		f = &flight{try: try, cancel: cancel, done: make(chan struct{})}
		if s.flights == nil {
			s.flights = make(map[string]*flight)
		}
		s.flights[key] = f
		c.fly(ctx, s, key, f)
	case try && !f.try:
		return nil, nil
	}
	f.n++
	return nil, f
}

// open reports whether callers may join. The shard's mutex is held.
func (x *reading) open() bool {
	if x.cause != nil || x.n == 0 {
		return false
	}
	select {
	case <-x.wanted:
		return false
	default:
		return true
	}
}

// fly locks the shared name for the callers of a flight.
func (c *Coordinator) fly(ctx context.Context, s *readShard, key string, f *flight) {
	c.pool.Go(func() {
		defer f.cancel()
		l, err := c.lockName(ctx, key, fallback.SharedName(key, c.holder), f.try)
		var x *reading
		if err == nil {
			x = &reading{c: c, s: s, key: key, lock: l, wanted: l.Wanted()}
			l.endsWith(x.end)
		}
		s.mu.Lock()
		if s.flights[key] == f {
			delete(s.flights, key)
		}
		f.ended, f.err = true, err
		unused := x != nil && f.n == 0
		if x != nil && !unused {
			f.x, x.n = x, f.n
			if s.current == nil {
				s.current = make(map[string]*reading)
			}
			s.current[key] = x
		}
		s.mu.Unlock()
		close(f.done)
		if unused {
			l.pass()
		}
	})
}

// leave is for a caller that waits no more. It reports false if the flight has ended: then the
// caller is one of the readers, if there are any. f may be nil.
func (s *readShard) leave(key string, f *flight) bool {
	if f == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.ended {
		return false
	}
	if f.n--; f.n == 0 {
		f.cancel()
		if s.flights[key] == f {
			delete(s.flights, key)
		}
	}
	return true
}

// leave is when a reader is one no more. The last one unlocks.
func (x *reading) leave() {
	x.s.mu.Lock()
	x.n--
	last := x.n == 0
	if last && x.s.current[x.key] == x {
		delete(x.s.current, x.key)
	}
	x.s.mu.Unlock()
	if last {
		_ = x.lock.Unlock()
	}
}

// shut lets no more readers in.
func (x *reading) shut() {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	if x.s.current[x.key] == x {
		delete(x.s.current, x.key)
	}
}

// end is when the lock of the shared name has ended. It runs no code of the user's, as the
// partition's mutex is held.
func (x *reading) end(cause error) {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	x.cause = cause
	for _, all := range x.ends {
		for _, cancel := range all {
			cancel(x.loss())
		}
	}
	x.ends = nil
}

// loss returns why the readers' locks have ended, as the shared one has.
func (x *reading) loss() error {
	if loss := new(LossError); errors.As(x.cause, &loss) {
		told := *loss
		told.Key = x.key
		return &told
	}
	return x.cause
}

// endsWith calls cancel when the reader's lock ends, or now if it has ended. Cancel must run no
// code of the user's.
func (r *reader) endsWith(cancel context.CancelCauseFunc) {
	x := r.x
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	switch {
	case r.over:
		cancel(ErrUnlocked)
	case x.cause != nil:
		cancel(x.loss())
	default:
		if x.ends == nil {
			x.ends = make(map[*reader][]context.CancelCauseFunc)
		}
		x.ends[r] = append(x.ends[r], cancel)
	}
}

func (r *reader) unlock() error {
	x := r.x
	inForce := x.lock.holds()
	x.s.mu.Lock()
	if r.over {
		x.s.mu.Unlock()
		return ErrUnlocked
	}
	r.over = true
	ends, cause := x.ends[r], x.loss()
	delete(x.ends, r)
	x.s.mu.Unlock()
	for _, cancel := range ends {
		cancel(ErrUnlocked)
	}
	x.leave()
	if inForce {
		return nil
	}
	return cause
}

// holds reports whether the reader has not unlocked, and the lock is in force.
func (r *reader) holds() bool {
	r.x.s.mu.Lock()
	over := r.over
	r.x.s.mu.Unlock()
	return !over && r.x.lock.holds()
}

// readValues is the parent of a reader's contexts: the values of the caller's, and the lock.
type readValues struct {
	outer context.Context
	r     *reader
}

func (*readValues) Deadline() (time.Time, bool) { return time.Time{}, false }
func (*readValues) Done() <-chan struct{}       { return nil }
func (*readValues) Err() error                  { return nil }

// Held returns no lock once the reader has unlocked.
func (v *readValues) Held() (Lock, context.Context) {
	if !v.r.holds() {
		return Lock{}, v.outer
	}
	return v.r.x.lock, v.outer
}

func (v *readValues) Value(key any) any {
	if key == (held.Key{}) {
		return v
	}
	return v.outer.Value(key)
}

// lockName locks a name of the key that is not the key itself.
func (c *Coordinator) lockName(ctx context.Context, key, name string, try bool) (Lock, error) {
	p := c.partitionOf(key)
	p.mu.Lock()
	k := p.Find(name)
	if p.Lingers(k) {
		if t, fence, path := p.Reenter(k, p.now()); t != nil {
			p.mu.Unlock()
			l := Lock{p, t, fence, name, ctx}
			c.noteGranted(p, l, Path(path), 0)
			return l, nil
		}
	}
	return c.enter(&attempt{c: c, p: p, ctx: ctx, key: name, try: try, start: c.moment()}, k)
}

// whyNot returns the reason why the key cannot be read yet.
func (c *Coordinator) whyNot(key string) error {
	p := c.partitionOf(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	return orLocked(p.Reason(p.Find(fallback.SharedName(key, c.holder))))
}

// rekeyed is the error of a lock of a name as one of its key.
func rekeyed(err error, key string) error {
	if wait := new(WaitError); errors.As(err, &wait) {
		return &WaitError{Key: key, Reason: wait.Reason, Ended: wait.Ended}
	}
	return fmt.Errorf("coord: lock %s: %w", show(key), err)
}

// namedKey returns the key of a name, as it is shown to users.
func namedKey(name string) string {
	if !fallback.IsName(name) {
		return name
	}
	key, m := fallback.Split(name)
	if m.Kind == fallback.Permits {
		return key[min(len(key), len(semaphorePrefix)):]
	}
	return key
}
