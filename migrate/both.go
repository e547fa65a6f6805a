// Package migrate is for the days on which a service changes from github.com/bsm/redislock, or from
// github.com/go-redsync/redsync with one server, to Holdfast.
//
// A rolling deployment runs old and new processes at the same time, and each kind has locks of its own.
// So the first deployment locks with [Both]: Holdfast's lock, and the key that the old library would
// set. When no old process is left, the next deployment locks with Holdfast alone. The way back is the
// same, in the other order.
package migrate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
)

// Options are the options of [New]. The zero value of each field means its default, and a nil *Options
// means all defaults.
type Options struct {
	// OldKey returns the old library's key. Default: the key itself, as redislock and redsync have it.
	OldKey func(key string) string

	// TTL is how long the old key lasts without renewal, which is every third of that: what a process
	// that crashed holds is free for old processes after that. Default 10 s; at least 100 ms.
	TTL time.Duration

	// Retry is how long to wait before another attempt at the old key, on average. Default 20 ms.
	// Negative values are refused.
	Retry time.Duration
}

// Both locks with Holdfast and with the key of the old library.
type Both struct {
	locks  *coord.Coordinator
	client redis.UniversalClient
	opts   Options
}

// New returns a Both. client is for the server on which the old library has its keys.
func New(locks *coord.Coordinator, client redis.UniversalClient, opts *Options) (*Both, error) {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	if o.OldKey == nil {
		o.OldKey = func(key string) string { return key }
	}
	if o.TTL == 0 {
		o.TTL = 10 * time.Second
	}
	if o.Retry == 0 {
		o.Retry = 20 * time.Millisecond
	}
	switch {
	case locks == nil || client == nil:
		return nil, errors.New("migrate: the coordinator or the client is nil")
	case o.TTL < 100*time.Millisecond:
		return nil, fmt.Errorf("migrate: Options.TTL is %v, must be at least 100ms", o.TTL)
	case o.Retry < 0:
		return nil, fmt.Errorf("migrate: Options.Retry is %v, must not be negative", o.Retry)
	}
	return &Both{locks, client, o}, nil
}

// ErrOldLost: the old library's key expired, or another process has it. It Is [coord.ErrLost].
var ErrOldLost = fmt.Errorf("migrate: %w: the key of the old library", coord.ErrLost)

var (
	renewScript = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) end return 0`)
	freeScript  = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`)
)

// A Lock is both locks. Its methods are safe for concurrent use.
type Lock struct {
	coord.Lock
	b      *Both
	old    string // the key
	token  string
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the goroutine of the lock has ended
	once   sync.Once
	err    error
}

// Lock waits for both locks, Holdfast's first, until ctx ends. So one caller of all new processes waits
// for the old key, which is polled, as the old library does.
//
// Errors: those of [coord.Coordinator.Lock], and, matching ctx.Err() as well, [coord.ErrLocked] while an
// old process has the key or [coord.ErrUnavailable] while its server does not answer.
func (b *Both) Lock(ctx context.Context, key string) (*Lock, error) {
	l, err := b.locks.Lock(ctx, key)
	if err != nil {
		return nil, err
	}
	x := &Lock{Lock: l, b: b, old: b.opts.OldKey(key), token: rand.Text(), done: make(chan struct{})}
	held := l.Context()
	x.ctx, x.cancel = context.WithCancelCause(held)
	sent, err := x.take(ctx)
	if err != nil {
		x.cancel(err)
		close(x.done)
		x.free() // the last answer may have been lost
		return nil, errors.Join(err, l.Unlock())
	}
	go x.keep(sent)
	return x, nil
}

// take sets the old key, and returns when the request that did was sent.
func (l *Lock) take(ctx context.Context) (sent time.Time, err error) {
	reason := coord.ErrUnavailable // until the server has answered
	for {
		sent = time.Now()
		call, cancel := context.WithTimeout(ctx, l.b.opts.TTL/3)
		ok, err := l.b.client.SetNX(call, l.old, l.token, l.b.opts.TTL).Result()
		cancel()
		switch {
		case err == nil:
			reason = coord.ErrLocked
		case ctx.Err() == nil: // else it says nothing about the server
			reason = fmt.Errorf("%w: %w", coord.ErrUnavailable, err)
			// An answer that was lost may have been yes.
			if got, e := l.b.client.Get(ctx, l.old).Result(); e == nil && got == l.token {
				ok = true
			}
		}
		if ok && time.Since(sent) < l.b.opts.TTL/2 {
			return sent, nil
		}
		wait := time.NewTimer(time.Duration((0.5 + mathrand.Float64()) * float64(l.b.opts.Retry)))
		select {
		case <-wait.C:
		case <-l.ctx.Done():
			wait.Stop()
			return sent, context.Cause(l.ctx)
		case <-ctx.Done():
			wait.Stop()
			return sent, fmt.Errorf("migrate: lock %.64q: %w while waiting: %w", l.old, ctx.Err(), reason)
		}
	}
}

// keep renews the old key until the lock is over. The lock ends a tenth of TTL before the key may.
func (l *Lock) keep(sent time.Time) {
	defer close(l.done)
	ttl := l.b.opts.TTL
	pause := ttl / 3
	for {
		deadline := sent.Add(ttl - ttl/10)
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
		n, err := renewScript.Run(call, l.b.client, []string{l.old}, l.token, ttl.Milliseconds()).Int()
		cancel()
		switch {
		case err == nil && n == 1 && time.Now().Before(deadline):
			sent, pause = began, ttl/3
		case err != nil:
			pause = ttl / 20 // it did not answer: again, soon
		default:
			l.cancel(ErrOldLost)
			return
		}
	}
}

// Context returns a context that ends when either lock ends, with the reason as its cause. It carries
// Holdfast's lock.
func (l *Lock) Context() context.Context { return l.ctx }

// Unlock frees the old key, and then Holdfast's lock. Unlike [coord.Lock.Unlock] it waits for the old key's
// server, for a third of TTL at most; a key that could not be freed expires. Its error Is [coord.ErrLost] if
// either lock was lost.
func (l *Lock) Unlock() error {
	l.once.Do(func() {
		lost := context.Cause(l.ctx)
		l.cancel(coord.ErrUnlocked)
		<-l.done
		l.free()
		l.err = l.Lock.Unlock()
		if l.err == nil && errors.Is(lost, coord.ErrLost) {
			l.err = lost
		}
	})
	return l.err
}

func (l *Lock) free() {
	ctx, cancel := context.WithTimeout(context.Background(), l.b.opts.TTL/3)
	defer cancel()
	_ = freeScript.Run(ctx, l.b.client, []string{l.old}, l.token).Err() // else it expires
}

// Do calls fn with both locks, as [coord.Coordinator.Do] does with one.
func (b *Both) Do(ctx context.Context, key string, fn func(ctx context.Context, l *Lock) error) (err error) {
	l, err := b.Lock(ctx, key)
	if err != nil {
		return err
	}
	both, cancel := context.WithCancelCause(l.ctx)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer func() {
		stop()
		lost := l.Unlock()
		cancel(nil)
		if errors.Is(lost, coord.ErrLost) && !errors.Is(err, coord.ErrLost) {
			err = errors.Join(err, lost)
		}
	}()
	return fn(both, l)
}
