package redsync

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/migrate"
	"github.com/holdfast-go/holdfast/migrate/internal/patience"
)

// A Mutex is a lock of one key.
type Mutex struct {
	locks    patience.Locks
	name     string
	expiry   time.Duration
	tries    int
	delay    DelayFunc
	genValue func() (string, error)

	mu    sync.Mutex
	value string
	lock  migrate.Held // at first a coord.Lock that is over
	since time.Time    // when it was locked
}

// Name returns the key.
func (m *Mutex) Name() string { return m.name }

// Value returns the value of the last Lock that succeeded. It is no fencing token: that is
// Held().Fence().
func (m *Mutex) Value() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.value
}

// Held returns the lock of the last Lock that succeeded.
func (m *Mutex) Held() migrate.Held {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lock
}

// inForce reports whether the mutex is locked, and when it was locked last.
func (m *Mutex) inForce() (locked bool, since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lock.Context().Err() == nil, m.since
}

// Until returns the time that is one expiry away if the mutex is locked. If it is not, Until
// returns when it was locked last, or the zero time.
func (m *Mutex) Until() time.Time {
	locked, since := m.inForce()
	if locked {
		return time.Now().Add(m.expiry)
	}
	return since
}

// TryLock is TryLockContext with context.Background().
func (m *Mutex) TryLock() error { return m.TryLockContext(context.Background()) }

// TryLockContext tries once. Its errors are those of LockContext.
func (m *Mutex) TryLockContext(ctx context.Context) error { return m.acquire(ctx, 1) }

// Lock is LockContext with context.Background().
func (m *Mutex) Lock() error { return m.LockContext(context.Background()) }

// LockContext locks the key. It waits as long as tries and delays would take.
//
// Errors: [*ErrTaken] if the key is locked; [ErrFailed] if ctx ended meanwhile; [*RedisError] if
// the arbiter cannot be asked; and those of [coord.Coordinator.Lock] where the key is not valid.
func (m *Mutex) LockContext(ctx context.Context) error { return m.acquire(ctx, m.tries) }

func (m *Mutex) acquire(ctx context.Context, tries int) error {
	if ctx == nil {
		ctx = context.Background()
	}
	value, err := m.genValue()
	if err != nil {
		return err
	}
	if tries < 1 {
		return ErrFailed
	}
	made := 0
	l, err := patience.Lock(ctx, m.locks, m.name, func() time.Duration {
		if made++; made >= tries {
			return 0
		}
		return max(m.delay(made), 1) // a delay of nothing is another try at once
	})
	if err != nil {
		return failure(ctx, err, tries)
	}
	_ = l.Context() // so that Unlock notices a loss by the clock
	m.mu.Lock()
	defer m.mu.Unlock()
	m.value, m.lock, m.since = value, l, time.Now()
	return nil
}

// failure returns the error that the real library has in the place of err.
func failure(ctx context.Context, err error, tries int) error {
	switch {
	case ctx.Err() != nil && tries > 1:
		return ErrFailed
	case ctx.Err() != nil, errors.Is(err, coord.ErrUnavailable), errors.Is(err, coord.ErrClosed):
		return &RedisError{Err: err}
	case errors.Is(err, coord.ErrLocked), errors.Is(err, coord.ErrHeld):
		return taken()
	}
	return err
}

// Unlock is UnlockContext with context.Background().
func (m *Mutex) Unlock() (bool, error) { return m.UnlockContext(context.Background()) }

// UnlockContext unlocks the key, without waiting for the network, and reports whether the lock was
// in force. With a Redsync of [NewBoth] it waits for the old key's server, for a third of
// [migrate.Options].TTL at most. The context is not used.
func (m *Mutex) UnlockContext(context.Context) (bool, error) {
	err := m.Held().Unlock()
	switch {
	case errors.Is(err, coord.ErrLost):
		return false, errors.Join(ErrLockAlreadyExpired, err)
	case err != nil:
		return false, ErrLockAlreadyExpired
	}
	return true, nil
}

// Extend is ExtendContext with context.Background().
func (m *Mutex) Extend() (bool, error) { return m.ExtendContext(context.Background()) }

// ExtendContext extends nothing. It reports whether the mutex is locked; if not, the error is
// [*ErrTaken]. The context is not used.
func (m *Mutex) ExtendContext(ctx context.Context) (bool, error) { return m.ValidContext(ctx) }

// Valid is ValidContext with context.Background().
func (m *Mutex) Valid() (bool, error) { return m.ValidContext(context.Background()) }

// ValidContext reports whether the mutex is locked. If not, the error is [*ErrTaken]. The context
// is not used.
func (m *Mutex) ValidContext(context.Context) (bool, error) {
	if locked, _ := m.inForce(); !locked {
		return false, taken()
	}
	return true, nil
}
