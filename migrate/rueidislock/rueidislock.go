// Package rueidislock has the names of github.com/redis/rueidis/rueidislock (v1.0), and locks with
// Holdfast. A service changes the import and the constructor first, and its calls later:
//
//	locker, err := rueidislock.NewLocker(locks) // locks: a *coord.Coordinator; it was a LockerOption
//
// Processes with this package and processes with the real library do not exclude each other, unless
// the locker is that of [NewBoth]: it is for the deployment in between.
//
// Differences:
//
//   - The context of a lock has a cause: one that Is [coord.ErrLost] if the lock was lost.
//   - A lock is renewed with its process's session, and not by itself. A crashed process blocks its keys until
//     its session lapses (3.1 s in a cluster, 10 s without), and not for KeyValidity.
//   - A CancelFunc does not wait until the key is free. Its process keeps the key for its next
//     callers, for 5 ms or until it is asked for it. So TryWithContext of another process may find
//     it locked. A negative Linger of [coord.Handoff] leaves only the time that the release takes.
//   - Waiting callers get the key in the order of arrival.
//   - Close does not end locks, nor the coordinator: close that after the locker. A caller that waits, or comes
//     later, gets [ErrLockerClosed].
//   - A key has 1 to [coord.MaxKey] bytes.
//   - A caller whose context is that of a lock of the key gets an error that Is [coord.ErrHeld], and
//     [ErrNotLocked] from TryWithContext. The real library waits for ever.
//   - ForceWithContext does not exist: no caller takes a lock from its holder. Nor do Client and the options.
//
// [Fence] returns the token of a lock's context.
package rueidislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/held"
	"github.com/holdfast-go/holdfast/migrate"
	"github.com/holdfast-go/holdfast/migrate/internal/patience"
)

var (
	// ErrNotLocked is returned from Locker.TryWithContext when it fails.
	ErrNotLocked = errors.New("not locked")

	// ErrLockerClosed is returned when the Locker is closed.
	ErrLockerClosed = errors.New("locker closed")
)

// Locker is the interface of rueidislock. Its methods are safe for concurrent use.
type Locker interface {
	// WithContext locks name, and waits for it until ctx ends. The lock lasts until the CancelFunc
	// is called, until ctx ends, or until it is lost. The context that is returned ends with it,
	// and has the values of ctx.
	//
	// Errors: ctx.Err(), [ErrLockerClosed], and those of [coord.Coordinator.Lock] that waiting does
	// not mend.
	WithContext(ctx context.Context, name string) (context.Context, context.CancelFunc, error)

	// TryWithContext is WithContext without waiting. If name is locked, its error Is
	// [ErrNotLocked]. If the arbiter cannot be asked, it Is [coord.ErrUnavailable].
	TryWithContext(ctx context.Context, name string) (context.Context, context.CancelFunc, error)

	// Close ends the waits.
	Close()
}

// NewLocker returns a Locker.
func NewLocker(locks *coord.Coordinator) (Locker, error) {
	if locks == nil {
		return nil, errors.New("rueidislock: the coordinator is nil")
	}
	return &locker{locks: patience.New(locks), closed: make(chan struct{})}, nil
}

// NewBoth returns a Locker for the deployment in between: its locks exclude processes with the real
// library. The Both has the OldKeys of [migrate.RueidislockKeys]; others are an error. A CancelFunc
// waits for the network, as [migrate.Lock.Unlock] does.
func NewBoth(both *migrate.Both) (Locker, error) {
	if both == nil {
		return nil, errors.New("rueidislock: the Both is nil")
	}
	keys := both.OldKeys("key")
	for i, key := range keys {
		if len(keys)%2 == 0 || !strings.HasSuffix(key, ":"+strconv.Itoa(i)+":key") {
			return nil, fmt.Errorf("rueidislock: the Both has the old keys %q of \"key\", which are not those of the real library: set Options.OldKeys to migrate.RueidislockKeys", keys)
		}
	}
	return &locker{locks: patience.Both(both), closed: make(chan struct{})}, nil
}

type locker struct {
	locks  patience.Locks
	close  sync.Once
	closed chan struct{}
}

func (m *locker) Close() { m.close.Do(func() { close(m.closed) }) }

func (m *locker) WithContext(ctx context.Context, name string) (context.Context, context.CancelFunc, error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-m.closed:
			cancel()
		case <-waiting.Done():
		}
	}()
	l, err := m.locks.Lock(waiting, name)
	switch {
	case err == nil && !m.isClosed():
		return section(ctx, l)
	case err == nil:
		_ = l.Unlock()
		return nil, nil, ErrLockerClosed
	case ctx.Err() != nil:
		return nil, nil, ctx.Err()
	case m.isClosed(), errors.Is(err, coord.ErrClosed):
		return nil, nil, ErrLockerClosed
	}
	return nil, nil, err
}

func (m *locker) TryWithContext(ctx context.Context, name string) (context.Context, context.CancelFunc, error) {
	if m.isClosed() {
		return nil, nil, ErrLockerClosed
	}
	l, err := m.locks.TryLock(ctx, name)
	if err == nil {
		return section(ctx, l)
	}
	over, cancel := context.WithCancel(ctx) // the real library returns both with the error
	cancel()
	switch {
	case errors.Is(err, coord.ErrClosed):
		return nil, nil, ErrLockerClosed
	case errors.Is(err, coord.ErrHeld), errors.Is(err, coord.ErrLocked):
		err = fmt.Errorf("%w: key %.64q is held by others: %w", ErrNotLocked, name, err)
	}
	return over, cancel, err
}

func (m *locker) isClosed() bool {
	select {
	case <-m.closed:
		return true
	default:
		return false
	}
}

// section returns the context of a lock, and the function that unlocks it. The lock ends with ctx,
// too.
func section(ctx context.Context, l migrate.Held) (context.Context, context.CancelFunc, error) {
	own := context.WithValue(l.Context(), lockKey{}, l) // which has the values of ctx
	timed, end := own, func() {}
	if deadline, ok := ctx.Deadline(); ok {
		timed, end = context.WithDeadline(own, deadline)
	}
	inside, cancel := held.Under(timed, own)
	outer := context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) { // which ends timed
			cancel(context.Cause(ctx))
		}
	})
	free := context.AfterFunc(inside, func() { _ = l.Unlock() })
	return inside, func() {
		outer()
		free()
		_ = l.Unlock()
		cancel(coord.ErrUnlocked)
		end()
	}, nil
}

type lockKey struct{}

// Fence returns the token of the lock whose context ctx is, or derives from. It is 0 for any other
// context.
func Fence(ctx context.Context) coord.Fence {
	l, _ := ctx.Value(lockKey{}).(migrate.Held)
	if l == nil {
		return 0
	}
	return l.Fence()
}
