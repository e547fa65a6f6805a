// Package redsync has the names of github.com/go-redsync/redsync/v4 (v4.18), and locks with
// Holdfast. A service changes the import and the constructor first, and its calls later:
//
//	rs := redsync.New(locks) // locks: a *coord.Coordinator; it was pools of Redis clients
//
// Processes with this package and processes with the real library do not exclude each other, unless
// the Redsync is that of [NewBoth]: it is for the deployment in between.
//
// Differences:
//
//   - The expiry does not limit a lock, which lasts until Unlock or until it is lost. A lock that is never
//     unlocked blocks its key as long as its process lives: code that lets locks expire, to limit
//     a rate for example, needs [coord.Coordinator.LockFor].
//   - [Mutex.Extend] extends nothing. It and [Mutex.Valid] say whether the lock is in force, without asking the
//     arbiter. [Mutex.Until] is always one expiry away as long as the lock is in force, and in the past when
//     it is over.
//   - A caller waits in a queue for as long as its tries and their delays would take, and does not poll. So
//     the lock may come in the middle of a delay, and a DelayFunc is called in another goroutine.
//   - TryLock may find a key locked that another process has just unlocked: that process keeps it for its next
//     callers, for 5 ms or until it is asked for it. A negative Linger of [coord.Handoff] leaves only the time that
//     the release takes.
//   - A crashed process blocks its keys until its session lapses (3.1 s in a cluster, 10 s without), and not for the expiry.
//   - There is one node, with the number 0. An arbiter that cannot be asked is a [*RedisError] that
//     matches [coord.ErrUnavailable].
//   - Only the Mutex that was locked can be unlocked: WithValue does not exist. Another one's Unlock
//     returns [ErrLockAlreadyExpired], also where the key is locked.
//   - WithDriftFactor, WithTimeoutFactor, WithFailFast, WithShufflePools and WithSetNXOnExtend do nothing.
//   - A Mutex is safe for concurrent use.
//
// [Mutex.Held] is the lock, with a token for the resource (Fence) and a context that
// ends when the lock is lost (Context).
package redsync

import (
	"crypto/rand"
	mathrand "math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/migrate"
	"github.com/holdfast-go/holdfast/migrate/internal/patience"
)

// Redsync makes mutexes.
type Redsync struct{ locks patience.Locks }

// New returns a Redsync. The coordinator must not be nil.
func New(locks *coord.Coordinator) *Redsync { return &Redsync{patience.New(locks)} }

// NewBoth returns a Redsync for the deployment in between: its locks exclude processes with the
// real library. It panics if the Both has several OldKeys for a lock. Unlock waits for the network,
// as [migrate.Lock.Unlock] does.
func NewBoth(both *migrate.Both) *Redsync {
	patience.OneKey(both, "redsync")
	return &Redsync{patience.Both(both)}
}

// NewMutex returns a mutex of the key that is its name.
func (r *Redsync) NewMutex(name string, options ...Option) *Mutex {
	m := &Mutex{
		locks:  r.locks,
		lock:   coord.Lock{},
		name:   name,
		expiry: 8 * time.Second,
		tries:  32,
		delay: func(int) time.Duration {
			return 50*time.Millisecond + mathrand.N(200*time.Millisecond)
		},
		genValue: func() (string, error) { return rand.Text(), nil },
	}
	for _, o := range options {
		o.Apply(m)
	}
	return m
}

// An Option configures a mutex.
type Option interface {
	Apply(*Mutex)
}

// OptionFunc is a function that configures a mutex.
type OptionFunc func(*Mutex)

// Apply calls f.
func (f OptionFunc) Apply(mutex *Mutex) { f(mutex) }

// A DelayFunc returns the time between two tries. tries is the number of those that were made.
type DelayFunc func(tries int) time.Duration

// WithExpiry sets how far ahead the time of Until is. Default: 8 s.
func WithExpiry(expiry time.Duration) Option {
	return OptionFunc(func(m *Mutex) { m.expiry = expiry })
}

// WithTries sets the number of tries. Lock waits for all delays between them. Default: 32.
func WithTries(tries int) Option { return OptionFunc(func(m *Mutex) { m.tries = tries }) }

// WithRetryDelay sets the delay between tries. Default: 50 to 250 ms.
func WithRetryDelay(delay time.Duration) Option {
	return WithRetryDelayFunc(func(int) time.Duration { return delay })
}

// WithRetryDelayFunc sets the function that returns the delay between tries.
func WithRetryDelayFunc(delayFunc DelayFunc) Option {
	return OptionFunc(func(m *Mutex) { m.delay = delayFunc })
}

// WithGenValueFunc sets the function that makes the value of Value. Default: a random text.
func WithGenValueFunc(genValueFunc func() (string, error)) Option {
	return OptionFunc(func(m *Mutex) { m.genValue = genValueFunc })
}

// WithDriftFactor does nothing.
func WithDriftFactor(float64) Option { return OptionFunc(func(*Mutex) {}) }

// WithTimeoutFactor does nothing.
func WithTimeoutFactor(float64) Option { return OptionFunc(func(*Mutex) {}) }

// WithFailFast does nothing.
func WithFailFast(bool) Option { return OptionFunc(func(*Mutex) {}) }

// WithShufflePools does nothing.
func WithShufflePools(bool) Option { return OptionFunc(func(*Mutex) {}) }

// WithSetNXOnExtend does nothing.
func WithSetNXOnExtend() Option { return OptionFunc(func(*Mutex) {}) }
