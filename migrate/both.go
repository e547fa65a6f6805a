// Package migrate is for services that change to Holdfast from github.com/bsm/redislock, from
// github.com/go-redsync/redsync with one server, or from github.com/redis/rueidis/rueidislock.
//
// A rolling deployment runs old and new processes at the same time, and each kind has locks of its
// own. So the first deployment locks with [Both]: Holdfast's lock, and the keys that the old
// library would set. When no old process is left, the next deployment locks with Holdfast alone.
// The way back is the same, in the other order.
package migrate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/held"
	"github.com/holdfast-go/holdfast/internal/unit"
)

// Options are the options of [New]. The zero value of each field means its default, and a nil
// *Options means all defaults.
type Options struct {
	// OldKeys returns the old library's keys, always as many. A lock needs more than half of them.
	// Default: the key itself, as redislock and redsync have it. [RueidislockKeys] has those of
	// rueidislock.
	OldKeys func(key string) []string

	// TTL is how long an old key lasts without renewal, which is every third of that: the keys of a
	// process that crashed are free for old processes after that. Default 10 s; at least 100 ms.
	TTL time.Duration

	// Retry is how long to wait before another attempt at the old keys, on average. Default 20 ms;
	// at least 1 ms. Negative values are refused.
	Retry time.Duration
}

// RueidislockKeys returns the OldKeys of rueidislock, with its KeyPrefix and KeyMajority. "" and 0
// mean its defaults, "rueidislock" and 2.
func RueidislockKeys(prefix string, majority int) func(key string) []string {
	if prefix == "" {
		prefix = "rueidislock"
	}
	if majority <= 0 {
		majority = 2
	}
	return func(key string) []string {
		keys := make([]string, 2*majority-1)
		for i := range keys {
			keys[i] = prefix + ":" + strconv.Itoa(i) + ":" + key
		}
		return keys
	}
}

// Both locks with Holdfast and with the keys of the old library.
type Both struct {
	locks  *coord.Coordinator
	client redis.UniversalClient
	opts   Options
}

// New returns a Both. client is for the server of the old library's keys.
func New(locks *coord.Coordinator, client redis.UniversalClient, opts *Options) (*Both, error) {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	if o.OldKeys == nil {
		o.OldKeys = func(key string) []string { return []string{key} }
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
	case len(o.OldKeys("key")) == 0:
		return nil, errors.New("migrate: Options.OldKeys returns no keys")
	case o.TTL < 100*time.Millisecond:
		return nil, fmt.Errorf("migrate: Options.TTL is %v, must be at least 100ms", o.TTL)
	case o.Retry < 0:
		return nil, fmt.Errorf("migrate: Options.Retry is %v, must not be negative", o.Retry)
	}
	if err := unit.Check("migrate: Options.Retry", o.Retry, time.Millisecond, "20 * time.Millisecond"); err != nil {
		return nil, err
	}
	return &Both{locks, client, o}, nil
}

// OldKeys returns the old library's keys of a lock, as Options.OldKeys does.
func (b *Both) OldKeys(key string) []string { return b.opts.OldKeys(key) }

// Lock waits for both locks, Holdfast's first, until ctx ends. So one caller of all new processes
// waits for the old keys, which are polled, as the old library does.
//
// Errors: those of [coord.Coordinator.Lock]; [coord.ErrLocked] while an old process has the keys,
// and [coord.ErrUnavailable] while their server does not answer. These two match ctx.Err() and
// context.Cause(ctx) as well.
func (b *Both) Lock(ctx context.Context, key string) (*Lock, error) {
	l, err := b.locks.Lock(ctx, key)
	if err != nil {
		return nil, err
	}
	return b.with(ctx, l, (*Lock).wait)
}

// TryLock tries each of the two locks once.
//
// Errors: those of [coord.Coordinator.TryLock]; [coord.ErrLocked] if an old process has the keys,
// and [coord.ErrUnavailable] if their server does not answer.
func (b *Both) TryLock(ctx context.Context, key string) (*Lock, error) {
	l, err := b.locks.TryLock(ctx, key)
	if err != nil {
		return nil, err
	}
	return b.with(ctx, l, (*Lock).once)
}

// with adds the old keys to Holdfast's lock. get gets them, and returns when they were asked for.
func (b *Both) with(ctx context.Context, own coord.Lock, get func(*Lock, context.Context) (time.Time, error)) (*Lock, error) {
	l := newLock(b, own)
	sent, err := get(l, ctx)
	if err != nil {
		l.cancel(err)
		close(l.done)
		return nil, errors.Join(err, own.Unlock())
	}
	go l.keep(l.extend(sent))
	return l, nil
}

// Do calls fn with both locks, as [coord.Coordinator.Do] does with one.
func (b *Both) Do(ctx context.Context, key string, fn func(ctx context.Context, l *Lock) error) (err error) {
	l, err := b.Lock(ctx, key)
	if err != nil {
		return err
	}
	both, end := held.Inside(ctx, l.ctx)
	defer func() {
		lost := l.Unlock()
		end(nil)
		if errors.Is(lost, coord.ErrLost) && !errors.Is(err, coord.ErrLost) {
			err = errors.Join(err, lost)
		}
	}()
	return fn(both, l)
}
