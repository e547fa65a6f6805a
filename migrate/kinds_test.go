package migrate_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/migrate"
	redislockshim "github.com/holdfast-go/holdfast/migrate/redislock"
	redsyncshim "github.com/holdfast-go/holdfast/migrate/redsync"
	rueidislockshim "github.com/holdfast-go/holdfast/migrate/rueidislock"
)

// locker runs a section under the lock of a key, as a process of one kind does.
type locker func(ctx context.Context, key string, section func()) error

// An old library, and the shim with its names.
type library struct {
	opts *migrate.Options // of the Both
	old  func(client *redis.Client) (lock locker, end func(), err error)
	shim func(c *coord.Coordinator, b *migrate.Both) locker // over b if it is not nil
}

var libraries = map[string]library{
	"redislock": {
		opts: &migrate.Options{Retry: 2 * time.Millisecond},
		old: func(client *redis.Client) (locker, func(), error) {
			c := redislock.New(client)
			return func(ctx context.Context, key string, section func()) error {
				l, err := c.Obtain(ctx, key, 10*time.Second, &redislock.Options{RetryStrategy: redislock.LinearBackoff(2 * time.Millisecond)})
				if err != nil {
					return err
				}
				section()
				return l.Release(context.WithoutCancel(ctx))
			}, func() {}, nil
		},
		shim: func(c *coord.Coordinator, b *migrate.Both) locker {
			client := redislockshim.New(c)
			if b != nil {
				client = redislockshim.NewBoth(b)
			}
			return func(ctx context.Context, key string, section func()) error {
				l, err := client.Obtain(ctx, key, 10*time.Second, &redislockshim.Options{RetryStrategy: redislockshim.LinearBackoff(2 * time.Millisecond)})
				if err != nil {
					return err
				}
				section()
				return l.Release(ctx)
			}
		},
	},
	"redsync": {
		opts: &migrate.Options{Retry: 2 * time.Millisecond},
		old: func(client *redis.Client) (locker, func(), error) {
			c := redsync.New(goredis.NewPool(client))
			return func(ctx context.Context, key string, section func()) error {
				return mutex(ctx, c.NewMutex(key, redsync.WithExpiry(10*time.Second), redsync.WithTries(100000), redsync.WithRetryDelay(2*time.Millisecond)), section)
			}, func() {}, nil
		},
		shim: func(c *coord.Coordinator, b *migrate.Both) locker {
			rs := redsyncshim.New(c)
			if b != nil {
				rs = redsyncshim.NewBoth(b)
			}
			return func(ctx context.Context, key string, section func()) error {
				return mutex(ctx, rs.NewMutex(key, redsyncshim.WithTries(100000), redsyncshim.WithRetryDelay(2*time.Millisecond)), section)
			}
		},
	},
	"rueidislock": {
		opts: &migrate.Options{Retry: 2 * time.Millisecond, OldKeys: migrate.RueidislockKeys("", 0)},
		old: func(client *redis.Client) (locker, func(), error) {
			l, err := rueidislock.NewLocker(rueidislock.LockerOption{ClientOption: rueidis.ClientOption{InitAddress: []string{client.Options().Addr}}, TryNextAfter: 5 * time.Second})
			if err != nil {
				return nil, nil, err
			}
			return func(ctx context.Context, key string, section func()) error { return with(ctx, l, key, section) }, l.Close, nil
		},
		shim: func(c *coord.Coordinator, b *migrate.Both) locker {
			return func(ctx context.Context, key string, section func()) error {
				l, err := rueidislockshim.NewLocker(c)
				if b != nil {
					l, err = rueidislockshim.NewBoth(b)
				}
				if err != nil {
					return err
				}
				return with(ctx, l, key, section)
			}
		},
	},
}

// mutex runs a section under a mutex of redsync.
func mutex(ctx context.Context, m interface {
	LockContext(ctx context.Context) error
	UnlockContext(ctx context.Context) (bool, error)
}, section func()) error {
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	section()
	_, err := m.UnlockContext(context.WithoutCancel(ctx))
	return err
}

// with runs a section under a lock of rueidislock. The end of ctx ends the wait only.
func with(ctx context.Context, l rueidislockshim.Locker, key string, section func()) error {
	held, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	waits := context.AfterFunc(ctx, end)
	_, unlock, err := l.WithContext(held, key)
	if err != nil {
		return err
	}
	defer unlock()
	if waits() {
		section()
	}
	return nil
}

// open returns the lock function of a process of the kind, and the function that ends it.
func (x library) open(ctx context.Context, kind, addr string, arbiter func(*redis.Client) fallback.Arbiter) (lock locker, end func(), err error) {
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	ends := []func(){func() { client.Close() }}
	end = func() {
		for _, f := range slices.Backward(ends) {
			f()
		}
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	if kind == "old" {
		lock, closed, err := x.old(client)
		if err == nil {
			ends = append(ends, closed)
		}
		return lock, end, err
	}
	c, err := coord.New(ctx, arbiter(client), nil)
	if err != nil {
		return nil, end, err
	}
	ends = append(ends, func() { c.Close(context.WithoutCancel(ctx)) })
	var both *migrate.Both
	if strings.HasSuffix(kind, "both") {
		if both, err = migrate.New(c, client, x.opts); err != nil {
			return nil, end, err
		}
	}
	switch kind {
	case "both":
		return func(ctx context.Context, key string, section func()) error {
			return both.Do(ctx, key, func(context.Context, *migrate.Lock) error { section(); return nil })
		}, end, nil
	case "new":
		return func(ctx context.Context, key string, section func()) error {
			return c.Do(ctx, key, func(context.Context, coord.Lock) error { section(); return nil })
		}, end, nil
	case "shim", "shim over both":
		return x.shim(c, both), end, nil
	}
	return nil, end, fmt.Errorf("no kind %q", kind)
}
