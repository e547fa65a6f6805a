package migrate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/held"
)

// ErrOldLost: the old library's keys expired, or another process has them. It Is [coord.ErrLost].
var ErrOldLost = fmt.Errorf("migrate: %w: the key of the old library", coord.ErrLost)

// Held is a lock that is held: a [coord.Lock] or a [*Lock].
type Held interface {
	Key() string
	Fence() coord.Fence
	Context() context.Context
	Unlock() error
}

// A Lock is both locks. Its methods are safe for concurrent use.
type Lock struct {
	coord.Lock
	old    oldKeys
	opts   *Options
	ctx    context.Context
	cancel context.CancelCauseFunc
	until  atomic.Pointer[time.Time] // when the lock ends if the old keys are not renewed; nil: they are not set yet
	done   chan struct{}             // closed when the goroutine of the lock has ended
	free   sync.Once
	err    error
}

// clocked is the context of a lock. Its Err looks whether the old keys may have expired: a process
// that stood still may ask before keep does.
type clocked struct {
	context.Context
	l *Lock
}

func (x clocked) Err() error {
	if x.Context.Err() == nil && x.l.lapsed() {
		x.l.cancel(ErrOldLost)
	}
	return x.Context.Err()
}

// lapsed reports whether the old keys may have expired, or may soon.
func (l *Lock) lapsed() bool {
	until := l.until.Load()
	return until != nil && !time.Now().Before(*until)
}

// extend notes when the old keys were set, or renewed: the lock ends a tenth of TTL before they may
// expire.
func (l *Lock) extend(sent time.Time) (until time.Time) {
	until = sent.Add(l.opts.TTL - l.opts.TTL/10)
	l.until.Store(&until)
	return until
}

func newLock(b *Both, own coord.Lock) *Lock {
	l := &Lock{
		Lock: own, opts: &b.opts, done: make(chan struct{}),
		old: oldKeys{client: b.client, keys: b.opts.OldKeys(own.Key()), token: rand.Text(), ttl: b.opts.TTL},
	}
	ctx, cancel := held.Under(own.Context())
	l.ctx, l.cancel = clocked{ctx, l}, cancel
	return l
}

// once tries to set the old keys, and returns when the requests that did were sent.
func (l *Lock) once(ctx context.Context) (sent time.Time, err error) {
	sent = time.Now()
	switch ok, err := l.old.set(ctx); {
	case err != nil && ctx.Err() != nil: // else it says nothing about the server
		return sent, fmt.Errorf("migrate: lock %.64q: %w", l.Key(), ended(ctx))
	case err != nil:
		return sent, fmt.Errorf("migrate: lock %.64q: %w: %w", l.Key(), coord.ErrUnavailable, err)
	case !ok:
		return sent, fmt.Errorf("migrate: %.64q: %w by an old process", l.Key(), coord.ErrLocked)
	}
	return sent, nil
}

// wait is once, again and again until ctx ends.
func (l *Lock) wait(ctx context.Context) (sent time.Time, err error) {
	reason := coord.ErrUnavailable // until the server has answered
	for {
		if sent, err = l.once(ctx); err == nil {
			return sent, nil
		}
		if ctx.Err() == nil {
			reason = err
		}
		pause := time.NewTimer(time.Duration((0.5 + mathrand.Float64()) * float64(l.opts.Retry)))
		select {
		case <-pause.C:
		case <-l.ctx.Done():
			pause.Stop()
			return sent, context.Cause(l.ctx)
		case <-ctx.Done():
			pause.Stop()
			return sent, fmt.Errorf("migrate: lock %.64q: %w while waiting: %w", l.Key(), ended(ctx), reason)
		}
	}
}

// ended returns an error that matches the ctx's Err and its cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// keep renews the old keys, which last until deadline, until the lock is over.
func (l *Lock) keep(deadline time.Time) {
	defer close(l.done)
	ttl := l.opts.TTL
	pause := ttl / 3
	for {
		wait := time.NewTimer(min(pause, max(time.Until(deadline), 0)))
		select {
		case <-l.ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
		if !time.Now().Before(deadline) {
			l.cancel(ErrOldLost)
			return
		}
		began := time.Now()
		call, cancel := context.WithDeadline(l.ctx, deadline)
		renewed, err := l.old.renew(call)
		cancel()
		switch {
		case renewed && time.Now().Before(deadline):
			deadline, pause = l.extend(began), ttl/3
		case err != nil:
			pause = ttl / 20 // it did not answer: again, soon
		default:
			l.cancel(ErrOldLost)
			return
		}
	}
}

// Context returns a context that ends when either lock ends, with the reason as its cause. It
// carries Holdfast's lock.
func (l *Lock) Context() context.Context { return l.ctx }

// Unlock frees the old keys, and then Holdfast's lock. Unlike [coord.Lock.Unlock] it waits for the
// old keys' server, for a third of TTL at most; a key that could not be freed expires. Its error Is
// [coord.ErrLost] if either lock was lost, and [coord.ErrUnlocked] if the lock was unlocked before.
func (l *Lock) Unlock() error {
	first := false
	l.free.Do(func() {
		first = true
		lost := context.Cause(l.ctx)
		l.cancel(coord.ErrUnlocked)
		<-l.done
		lapsed := l.lapsed()
		// Where the answer is not sure, they were the lock as long as they were renewed.
		if gone, sure := l.old.free(); gone && (sure || lapsed) && !errors.Is(lost, coord.ErrLost) {
			lost = ErrOldLost
		}
		l.err = l.Lock.Unlock()
		if l.err == nil && errors.Is(lost, coord.ErrLost) {
			l.err = lost
		}
	})
	if !first && l.err == nil {
		return coord.ErrUnlocked
	}
	return l.err
}
