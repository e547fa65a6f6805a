// Package redislock has the names of github.com/bsm/redislock (v0.10), and locks with Holdfast. A
// service changes the import and the constructor first, and its calls later:
//
//	client := redislock.New(locks) // locks: a *coord.Coordinator; it was a Redis client
//
// Processes with this package and processes with the real library do not exclude each other, unless
// the client is that of [NewBoth]: it is for the deployment in between.
//
// Differences:
//
//   - The ttl does not limit a lock, which lasts until Release or until it is lost. A lock that is never
//     released blocks its key as long as its process lives: code that lets locks expire, to limit
//     a rate for example, needs [coord.Coordinator.LockFor].
//   - [Lock.TTL] is the whole ttl as long as the lock is in force, and [Lock.Refresh] extends nothing. It
//     returns ErrNotObtained if the lock is over. Neither asks the arbiter.
//   - A caller waits in a queue for as long as its retry strategy has pauses, and does not poll. So the lock
//     may come in the middle of a pause, and NextBackoff is called in another goroutine.
//   - Without retries, Obtain may find a key locked that another process has just released: that process keeps it
//     for its next callers, for 5 ms or until it is asked for it. A negative Linger of [coord.Handoff] leaves only
//     the time that the release takes.
//   - A crashed process blocks its keys until its session lapses (3.1 s in a cluster, 10 s without), and not for the ttl.
//   - A second Obtain with the same Options.Token does not get the key. Token and metadata are known to
//     this process only.
//   - While Redis is away, a caller waits as for a locked key. Its error matches [coord.ErrUnavailable].
//   - ttl has to be positive.
//   - ObtainMulti and Lock.Keys do not exist: [coord.Coordinator.LockAll] locks several keys.
//
// A [Lock] has a token for the resource as well (Fence), and a context that ends when the lock is
// lost (Context).
package redislock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/migrate"
	"github.com/holdfast-go/holdfast/migrate/internal/patience"
)

var (
	// ErrNotObtained is returned when a lock cannot be obtained.
	ErrNotObtained = errors.New("redislock: not obtained")

	// ErrLockNotHeld is returned by a Release of a lock that is over. If the lock was lost, the
	// error matches [coord.ErrLost] as well.
	ErrLockNotHeld = errors.New("redislock: lock not held")
)

// Options describe the options for the lock. A nil *Options means all defaults.
type Options struct {
	// RetryStrategy sets how long to wait for a key that is locked: for the sum of its pauses.
	// Default: not at all.
	RetryStrategy RetryStrategy

	// Metadata is the value of Lock.Metadata. Default: empty.
	Metadata string

	// Token is the value of Lock.Token. Default: a random text.
	Token string
}

// A Client obtains locks.
type Client struct{ locks patience.Locks }

// New returns a Client. The coordinator must not be nil.
func New(locks *coord.Coordinator) *Client { return &Client{patience.New(locks)} }

// NewBoth returns a Client for the deployment in between: its locks exclude processes with the real
// library. It panics if the Both has several OldKeys for a lock. Release waits for the network, as
// [migrate.Lock.Unlock] does.
func NewBoth(both *migrate.Both) *Client {
	patience.OneKey(both, "redislock")
	return &Client{patience.Both(both)}
}

// Obtain is a short-cut for New(...).Obtain(...).
func Obtain(ctx context.Context, locks *coord.Coordinator, key string, ttl time.Duration, opt *Options) (*Lock, error) {
	return New(locks).Obtain(ctx, key, ttl, opt)
}

// Obtain locks the key. It waits as long as opt.RetryStrategy says, and if ctx has no deadline no
// longer than ttl, which limits nothing else.
//
// Errors: [ErrNotObtained] if the key is locked, joined with ctx.Err() if ctx has ended meanwhile;
// and those of [coord.Coordinator.Lock] where the arbiter cannot be asked or the key is not valid.
func (c *Client) Obtain(ctx context.Context, key string, ttl time.Duration, opt *Options) (*Lock, error) {
	if ttl <= 0 {
		return nil, fmt.Errorf("redislock: ttl is %v, must be positive", ttl)
	}
	if opt == nil {
		opt = &Options{}
	}
	l, err := c.lock(ctx, key, ttl, opt.RetryStrategy)
	if err != nil {
		return nil, err
	}
	x := &Lock{Held: l, token: opt.Token, metadata: opt.Metadata}
	if x.token == "" {
		x.token = rand.Text()
	}
	x.ttl.Store(int64(ttl))
	_ = l.Context() // so that Release notices a loss by the clock
	return x, nil
}

func (c *Client) lock(ctx context.Context, key string, ttl time.Duration, s RetryStrategy) (migrate.Held, error) {
	if s == nil {
		s = NoRetry()
	}
	if _, ok := ctx.Deadline(); !ok {
		limited, cancel := context.WithTimeout(ctx, ttl)
		defer cancel()
		ctx = limited
	}
	l, err := patience.Lock(ctx, c.locks, key, s.NextBackoff)
	switch {
	case errors.Is(err, coord.ErrHeld):
		err = errors.Join(ErrNotObtained, err)
	case errors.Is(err, coord.ErrLocked) && ctx.Err() != nil:
		err = errors.Join(ErrNotObtained, ctx.Err())
	case errors.Is(err, coord.ErrLocked):
		err = ErrNotObtained
	}
	return l, err
}

// A Lock is a lock that was obtained. Its methods are safe for concurrent use.
type Lock struct {
	migrate.Held
	token, metadata string
	ttl             atomic.Int64 // the value of TTL as long as the lock is in force
}

// Token returns the token of the options, or a random one. It is no fencing token: that is Fence.
func (l *Lock) Token() string { return l.token }

// Metadata returns the metadata of the options.
func (l *Lock) Metadata() string { return l.metadata }

// TTL returns the ttl of Obtain or of the last Refresh if the lock is in force, and 0 if it is
// over. No time passes away from it. The context is not used.
func (l *Lock) TTL(context.Context) (time.Duration, error) {
	if l == nil {
		return 0, ErrLockNotHeld
	}
	if l.Context().Err() != nil {
		return 0, nil
	}
	return time.Duration(l.ttl.Load()), nil
}

// Refresh returns nil if the lock is in force, and ErrNotObtained if it is over. It extends
// nothing, and TTL returns ttl from now on. Neither the context nor the options are used.
func (l *Lock) Refresh(_ context.Context, ttl time.Duration, _ *Options) error {
	if l == nil || l.Context().Err() != nil {
		return ErrNotObtained
	}
	l.ttl.Store(int64(ttl))
	return nil
}

// Release unlocks the key, without waiting for the network; with a client of [NewBoth] it waits for
// the old key's server, for a third of [migrate.Options].TTL at most. The context is not used.
func (l *Lock) Release(context.Context) error {
	if l == nil {
		return ErrLockNotHeld
	}
	err := l.Unlock()
	switch {
	case errors.Is(err, coord.ErrLost):
		return errors.Join(ErrLockNotHeld, err)
	case err != nil:
		return ErrLockNotHeld
	}
	return nil
}
