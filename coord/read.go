package coord

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/held"
)

// A ReadLock is a granted lock for reading: callers of all processes may have the key for reading
// at the same time, and none of them beside a [Lock]. It is a small value: copies are the same
// lock. The zero ReadLock is one that was unlocked. Its methods are safe for concurrent use.
type ReadLock struct {
	seat *seat           // nil: it was unlocked
	turn uint64          // the seat's value as long as the lock is not unlocked, but for seatFollowed
	ctx  context.Context // the one that RLock was called with: for its values
}

// RLock waits until the key can be read, until ctx ends at most, and returns with it locked for
// reading. A caller that comes after one that waits to write waits behind it, so neither readers
// nor writers are starved. But a process that has the key, for reading or for writing, lets its own
// callers go on with that for Handoff.MaxHold. They may pass a caller of its own that
// waits for the other mode. Readers that wait together are let in together. While the process has the key for reading,
// and no caller waits to write, it lets its callers in by itself: as a rule without a mutex, and without a
// word to other nodes or the arbiter. The process keeps the key for its next readers for a moment:
// see Options.Handoff. Stats, Trace and the log tell of the lock that the process has for its
// readers, not of each reader.
//
// A read lock cannot be made a write lock: two readers that want to write would wait for each
// other. With the context of a lock of the key, for reading or writing, Lock and RLock return
// [ErrHeld] where they would have to wait.
//
// All processes that use a key have to know of read locks: one of an older version of this module
// takes no notice of them. Errors and ctx are as for [Coordinator.Lock].
func (c *Coordinator) RLock(ctx context.Context, key string) (ReadLock, error) {
	if seat, turn := c.seated(ctx, key, false); seat != nil {
		return ReadLock{seat, turn, ctx}, nil
	}
	return c.rlock(ctx, key, false)
}

// TryRLock is RLock for callers that do not want to wait for others: see [Coordinator.TryLock]. It
// returns [ErrLocked] also while another caller of this process waits for the key to read it.
func (c *Coordinator) TryRLock(ctx context.Context, key string) (ReadLock, error) {
	if seat, turn := c.seated(ctx, key, false); seat != nil {
		return ReadLock{seat, turn, ctx}, nil
	}
	return c.rlock(ctx, key, true)
}

// RDo is [Coordinator.Do] with the key locked for reading.
func (c *Coordinator) RDo(ctx context.Context, key string, fn func(ctx context.Context, l ReadLock) error) (err error) {
	l, err := c.RLock(ctx, key)
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancelCause(carry(ctx, &readValues{ctx, l}))
	l.endsWith(cancel)
	defer func() {
		if unlocked := l.Unlock(); errors.Is(unlocked, ErrLost) && !errors.Is(err, ErrLost) {
			err = errors.Join(err, unlocked)
		}
	}()
	return fn(&clocked{inner, l.seat.x, ctx, cancel}, l)
}

// Key returns the key.
func (l ReadLock) Key() string {
	if l.seat == nil {
		return ""
	}
	return l.seat.x.id.key
}

// Fence returns the lock's token. It is above that of every Lock of the key that was granted
// before, and below that of every one that is granted later. Readers may have the same.
func (l ReadLock) Fence() Fence {
	if l.seat == nil {
		return 0
	}
	return l.seat.x.lock.Fence()
}

// Wanted returns a channel that is closed when a caller of this process or of another one waits to
// write, or when the lock ends: see [Lock.Wanted].
func (l ReadLock) Wanted() <-chan struct{} {
	if l.seat == nil {
		return canceled.Done()
	}
	x := l.seat.x
	wanted := x.lock.Wanted()
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	if f := l.follow(); f != nil {
		return f.watch(x.c, wanted)
	}
	return canceled.Done()
}

// Context returns a context that lasts as long as the lock: see [Lock.Context].
func (l ReadLock) Context() context.Context {
	if l.seat == nil {
		return endedContext(context.Background(), ErrUnlocked)
	}
	x := l.seat.x
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	f := l.follow()
	if f == nil {
		return endedContext(l.ctx, ErrUnlocked)
	}
	if f.live == nil {
		ctx, cancel := context.WithCancelCause(&readValues{l.ctx, l})
		f.live = &clocked{Context: ctx, by: x}
		if x.ending.cause != nil {
			cancel(x.loss())
		} else {
			f.ends = append(f.ends, cancel)
		}
	}
	return f.live
}

// Unlock ends the lock. It never blocks on the network. It returns [ErrUnlocked] if the lock was
// unlocked before, and an error that Is [ErrLost] if it was lost. (A lock without a call of Context
// is as a rule not checked against the clock here: a process that was stopped for longer than the
// lease may be told nil before it has noticed.)
func (l ReadLock) Unlock() error {
	s := l.seat
	left := s != nil && l.turn&seatCounted == 0 && s.CompareAndSwap(l.turn, l.turn+seatLeft)
	if left && s.x.pledge.Given() { // as a rule
		return nil
	}
	return l.unlockSlowly(left)
}

// endsWith calls cancel when the lock ends, or now if it has ended. Cancel must run no code of the
// user's.
func (l ReadLock) endsWith(cancel context.CancelCauseFunc) {
	x := l.seat.x
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	switch f := l.follow(); {
	case f == nil:
		cancel(ErrUnlocked)
	case x.ending.cause != nil:
		cancel(x.loss())
	default:
		f.ends = append(f.ends, cancel)
	}
}

// endIfLapsed ends the reading if it is not in force by the clock.
func (x *reading) endIfLapsed() { x.lock.holds() }

// holds reports whether the lock was not unlocked, and is in force.
func (l ReadLock) holds() bool { return l.inside() && l.seat.x.lock.holds() }

// readValues is the parent of a reader's contexts: the values of the caller's, and the lock.
type readValues struct {
	outer context.Context
	l     ReadLock
}

func (*readValues) Deadline() (time.Time, bool) { return time.Time{}, false }
func (*readValues) Done() <-chan struct{}       { return nil }
func (*readValues) Err() error                  { return nil }

// Held returns no lock once the reader has unlocked.
func (v *readValues) Held() (Lock, context.Context) {
	if !v.l.holds() {
		return Lock{}, v.outer
	}
	return v.l.seat.x.lock, v.outer
}

func (v *readValues) Value(key any) any {
	if key == (held.Key{}) {
		return v
	}
	return v.outer.Value(key)
}

// lockName locks a name of the key that is not the key itself. label is the caller's, if it has
// one.
func (c *Coordinator) lockName(ctx context.Context, key, name string, try bool, label string) (Lock, error) {
	l, err := c.enterName(ctx, key, name, try, label)
	if err == nil && label != "" {
		l.keepLabel(label)
	}
	return l, err
}

func (c *Coordinator) enterName(ctx context.Context, key, name string, try bool, label string) (Lock, error) {
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
	return c.enter(&attempt{c: c, p: p, ctx: ctx, key: name, try: try, start: c.moment(), label: label}, k)
}

// whyNot returns the reason why the key cannot be read yet.
func (c *Coordinator) whyNot(s *readShard, key string, f *flight) error {
	s.mu.Lock()
	name := f.name
	s.mu.Unlock()
	p := c.partitionOf(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	return orLocked(p.Reason(p.Find(name)))
}

// rekeyed is the error of a lock of a name as one of its key.
func rekeyed(err error, key string) error {
	if wait := new(WaitError); errors.As(err, &wait) {
		return &WaitError{Key: key, Reason: wait.Reason, Ended: wait.Ended}
	}
	if err == errGoexit {
		return &WaitError{Key: key, Reason: err}
	}
	return fmt.Errorf("coord: lock %s: %w", quoted(key), err)
}

// namedKey returns the key of a name, as it is shown to users.
func namedKey(name string) string {
	if !fallback.IsName(name) {
		return name
	}
	key, m := fallback.Split(name)
	if m.Kind == fallback.Permits {
		return namedSemaphore(key)
	}
	return key
}
