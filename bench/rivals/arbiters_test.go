package rivals

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	pools "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/fallback/redisquorum"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/storetest/owners"
)

// Both sides are a Redis here: the ratios tell how far two of the same are apart.
func TestRedis_Row(t *testing.T) {
	owners.Row(t, owners.Store{
		Name:  "Redis",
		Serve: func() string { return redistest.Start(t).Addr },
		Open: func(addr string) fallback.Arbiter {
			return redisarbiter.New(clients(t, addr)[0], &redisarbiter.Options{ColdStart: true})
		},
		Usual: func(addr string) func(context.Context, string) (func() error, error) {
			locks := redislock.New(clients(t, addr)[0])
			return func(ctx context.Context, key string) (func() error, error) {
				l, err := locks.Obtain(ctx, key, 8*time.Second, nil)
				return func() error { return l.Release(ctx) }, err
			}
		},
	})
}

// At several Redis servers users lock with Redlock: redsync over a pool of each.
func TestQuorum_Row(t *testing.T) {
	owners.Row(t, owners.Store{
		Name: "three Redis servers",
		Serve: func() string {
			var addrs []string
			for range 3 {
				addrs = append(addrs, redistest.Start(t).Addr)
			}
			return strings.Join(addrs, " ")
		},
		Open: func(addrs string) fallback.Arbiter {
			return redisquorum.New(clients(t, addrs), &redisquorum.Options{ColdStart: true})
		},
		Usual: func(addrs string) func(context.Context, string) (func() error, error) {
			var all []pools.Pool
			for _, c := range clients(t, addrs) {
				all = append(all, goredis.NewPool(c))
			}
			locks := redsync.New(all...)
			return func(ctx context.Context, key string) (func() error, error) {
				m := locks.NewMutex(key)
				return func() error {
					_, err := m.UnlockContext(ctx)
					return err
				}, m.LockContext(ctx)
			}
		},
	})
}

// clients returns one for each address, until the test ends.
func clients(t *testing.T, addrs string) (all []*redis.Client) {
	for _, addr := range strings.Fields(addrs) {
		c := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = c.Close() })
		all = append(all, c)
	}
	return all
}
