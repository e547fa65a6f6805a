package main

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// variant is one library's lock.
type variant struct {
	name   string
	module string
	how    string
	fenced bool // its tokens rise
	hidden bool // for tests: it breaks the rules
	open   func(client *redis.Client, namespace string) (locker, error)
}

// locker is a variant in one process.
type locker interface {
	// section waits for key's lock until ctx ends, calls inside with the token, or 0, and unlocks.
	section(ctx context.Context, key string, inside func(fence uint64)) error
	close(ctx context.Context) error
}

const (
	retryDelay = 5 * time.Millisecond // of the rivals that poll; more often makes them slower
	expiry     = 8 * time.Second
)

var variants = []variant{
	{
		name:   "Holdfast",
		module: "github.com/holdfast-go/holdfast",
		how:    "coord over fallback.NewRedis, defaults",
		fenced: true,
		open: func(client *redis.Client, namespace string) (locker, error) {
			c, err := newCoordinator(client, &coord.Options{Namespace: namespace})
			if err != nil {
				return nil, err
			}
			return &holdfast{c}, nil
		},
	},
	{
		name:   "redsync",
		module: "github.com/go-redsync/redsync/v4",
		how:    "go-redis pool, retry delay 5 ms, unlimited tries, expiry 8 s",
		open: func(client *redis.Client, namespace string) (locker, error) {
			return &redsyncLock{redsync.New(goredis.NewPool(client)), namespace}, nil
		},
	},
	{
		name:   "redislock",
		module: "github.com/bsm/redislock",
		how:    "LinearBackoff(5 ms), TTL 8 s",
		open: func(client *redis.Client, namespace string) (locker, error) {
			return &redislockLock{redislock.New(client), namespace}, nil
		},
	},
	{
		name:   "none",
		hidden: true,
		open:   func(*redis.Client, string) (locker, error) { return unlocked{}, nil },
	},
}

// findVariant returns a variant and its place in the list.
func findVariant(name string) (variant, int, error) {
	for i, v := range variants {
		if v.name == name {
			return v, i, nil
		}
	}
	return variant{}, 0, fmt.Errorf("no variant %q", name)
}

// title is the name with the version that is measured.
func (v variant) title() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == v.module && m.Version != "(devel)" && m.Replace == nil {
				return v.name + " " + m.Version
			}
		}
	}
	return v.name
}

// newCoordinator returns a coordinator on a namespace of this run. The namespace is new, so there is nothing that an empty
// server could have lost: without ColdStart a server that was just started would first have to be up for Options.Grace.
func newCoordinator(client *redis.Client, o *coord.Options) (*coord.Coordinator, error) {
	return coord.New(fallback.NewRedis(client, &fallback.RedisOptions{ColdStart: true}), o)
}

// failures keeps the first error of the arbiter's calls, and for how long that call took.
type failures struct {
	mu    sync.Mutex // protects first
	first string
}

// trace costs a look at the clock per call.
func (f *failures) trace() *coord.Trace {
	return &coord.Trace{Call: func(i coord.CallInfo) {
		if i.Err == nil {
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.first == "" {
			f.first = fmt.Sprintf("%v after %v: %v", i.Op, i.Duration.Round(time.Microsecond), i.Err)
		}
	}}
}

func (f *failures) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.first
}

// failedNote says how many calls there were. A machine that stands still for a second makes them.
func failedNote(n int64, first string) string {
	if n == 0 {
		return "no call failed"
	}
	return fmt.Sprintf("%s calls failed and were made again, which does not count; one: %s", thousands(n), first)
}

type holdfast struct{ c *coord.Coordinator }

func (h *holdfast) section(ctx context.Context, key string, inside func(uint64)) error {
	l, err := h.c.Lock(ctx, key)
	if err != nil {
		return err
	}
	inside(l.Fence())
	return l.Unlock()
}

func (h *holdfast) close(ctx context.Context) error { return h.c.Close(ctx) }

type redsyncLock struct {
	rs        *redsync.Redsync
	namespace string
}

func (r *redsyncLock) section(ctx context.Context, key string, inside func(uint64)) error {
	m := r.rs.NewMutex(r.namespace+":"+key, redsync.WithExpiry(expiry), redsync.WithRetryDelay(retryDelay),
		redsync.WithTries(math.MaxInt))
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	inside(0)
	_, err := m.UnlockContext(context.WithoutCancel(ctx))
	return err
}

func (r *redsyncLock) close(context.Context) error { return nil }

type redislockLock struct {
	client    *redislock.Client
	namespace string
}

func (r *redislockLock) section(ctx context.Context, key string, inside func(uint64)) error {
	l, err := r.client.Obtain(ctx, r.namespace+":"+key, expiry,
		&redislock.Options{RetryStrategy: redislock.LinearBackoff(retryDelay)})
	if err != nil {
		return err
	}
	inside(0)
	return l.Release(context.WithoutCancel(ctx))
}

func (r *redislockLock) close(context.Context) error { return nil }

// unlocked lets everybody in.
type unlocked struct{}

func (unlocked) section(ctx context.Context, _ string, inside func(uint64)) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	inside(0)
	return nil
}
func (unlocked) close(context.Context) error { return nil }

func describe(vs []variant) string {
	var parts []string
	for _, v := range vs {
		parts = append(parts, v.title()+": "+v.how)
	}
	return strings.Join(parts, "\n")
}
