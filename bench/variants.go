package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"path"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// variant is one library's lock.
type variant struct {
	name   string
	module string
	how    string
	fenced bool        // its tokens rise
	fair   bool        // it serves in order of arrival
	alone  bool        // it knows nothing of other processes: a floor, for one
	in     string      // the subjects that measure it; none: it breaks the rules
	more   string      // those that do with -rivals all
	server *serverKind // what it needs besides Redis
	open   func(e environment) (locker, error)
}

// environment is what a variant is opened with in one process.
type environment struct {
	client     *redis.Client
	redis      string // address
	namespace  string
	server     string // how to connect to the variant's own
	goroutines int
	count      *counter // of the client, and of others that the variant makes
}

// measuredIn tells whether a subject measures the variant, with all rivals or without.
func (v variant) measuredIn(subject string, all bool) bool {
	return slices.Contains(strings.Fields(v.in), subject) || all && slices.Contains(strings.Fields(v.more), subject)
}

// unsafe variants show that the measurement notices.
func (v variant) unsafe() bool { return v.in+v.more == "" }

// unknown are the measures that the variant does not have.
func (v variant) unknown() []string {
	switch {
	case v.alone:
		return []string{measureCommands, measureBytes, measureServer}
	case v.server != nil:
		return []string{measureCommands}
	}
	return nil
}

// locker is a variant in one process.
type locker interface {
	// section waits for key's lock until ctx ends, calls inside with the token, or 0, and unlocks.
	section(ctx context.Context, key string, inside func(fence uint64)) error
	close(ctx context.Context) error
}

const advisory = "PostgreSQL advisory lock"

const (
	retryDelay = 5 * time.Millisecond // of the rivals that poll; more often makes them slower
	expiry     = 8 * time.Second
	setExpiry  = expiry + time.Millisecond // of whole seconds go-redis would make EX
)

var variants = []variant{
	{
		name:   "Holdfast",
		module: "github.com/holdfast-go/holdfast",
		how:    "coord over redisarbiter.New, defaults",
		fenced: true,
		in:     "hot",
		open: func(e environment) (locker, error) {
			c, err := newCoordinator(e.client, &coord.Options{Namespace: e.namespace})
			if err != nil {
				return nil, err
			}
			return &holdfast{c}, nil
		},
	},
	{
		name:   clusterVariant,
		module: "github.com/holdfast-go/holdfast",
		how:    "coord with Options.Cluster over redisarbiter.New, defaults",
		fenced: true,
		fair:   true,
		in:     "shared zipf idle",
		open: func(e environment) (locker, error) {
			c, err := newCoordinator(e.client, clusterOptions(e.namespace))
			if err != nil {
				return nil, err
			}
			return &holdfast{c}, nil
		},
	},
	{
		name: "SET NX PX, 100 ms",
		how:  "SET key random NX PX 8001, again after 100 ms, and a script that deletes it, as most write it",
		in:   "shared zipf latency",
		more: "hot",
		open: func(e environment) (locker, error) {
			return &setLock{e.client, e.namespace, 100 * time.Millisecond}, nil
		},
	},
	{
		name: "SET NX PX, 5 ms",
		how:  "the same, again after 5 ms",
		more: "hot shared zipf",
		open: func(e environment) (locker, error) { return &setLock{e.client, e.namespace, retryDelay}, nil },
	},
	{
		name:   "redsync",
		module: "github.com/go-redsync/redsync/v4",
		how:    "go-redis pool, retry delay 5 ms, unlimited tries, expiry 8 s",
		in:     "hot shared zipf latency",
		open: func(e environment) (locker, error) {
			return newRedsync(e, redsync.WithRetryDelay(retryDelay)), nil
		},
	},
	{
		name:   "redislock",
		module: "github.com/bsm/redislock",
		how:    "LinearBackoff(5 ms), TTL 8 s",
		in:     "hot shared zipf latency",
		open: func(e environment) (locker, error) {
			return &redislockLock{redislock.New(e.client), e.namespace, retryDelay}, nil
		},
	},
	{
		name:   "redsync, default delay",
		module: "github.com/go-redsync/redsync/v4",
		how:    "go-redis pool, the library's retry delay of 50 to 250 ms, unlimited tries, expiry 8 s",
		in:     "shared zipf",
		more:   "hot",
		open: func(e environment) (locker, error) {
			return newRedsync(e), nil
		},
	},
	{
		name:   "redislock, 100 ms",
		module: "github.com/bsm/redislock",
		how:    "LinearBackoff(100 ms), as in its examples, TTL 8 s",
		in:     "shared zipf",
		more:   "hot",
		open: func(e environment) (locker, error) {
			return &redislockLock{redislock.New(e.client), e.namespace, 100 * time.Millisecond}, nil
		},
	},
	{
		name:   "rueidislock, 1 key",
		module: "github.com/redis/rueidis",
		how:    "KeyMajority 1 and NoLoopTracking, as its README advises for one Redis from 7.0.5 on; a call that takes longer than 20 ms is given up",
		in:     "hot shared zipf latency",
		open:   openRueidis(true),
	},
	{
		name:   "rueidislock, defaults",
		module: "github.com/redis/rueidis",
		how:    "two of three keys",
		in:     "latency",
		more:   "hot shared zipf",
		open:   openRueidis(false),
	},
	{
		name:   advisory,
		module: "github.com/jackc/pgx/v5",
		how:    "pgx pool with a connection per goroutine, pg_advisory_lock and pg_advisory_unlock",
		fair:   true,
		in:     "shared zipf latency",
		more:   "hot",
		server: postgresKind,
		open:   openAdvisory,
	},
	{
		name:   "MariaDB GET_LOCK, tuned",
		module: "github.com/go-sql-driver/mysql",
		how:    "InterpolateParams, and as many idle connections as open ones, as the driver's README advises: one per goroutine",
		more:   "hot shared zipf latency",
		server: mariadbKind,
		open:   openGetLock(true),
	},
	{
		name:   "MariaDB GET_LOCK, defaults",
		module: "github.com/go-sql-driver/mysql",
		how:    "the settings of database/sql, which keeps two idle connections, and of the driver",
		more:   "hot shared zipf latency",
		server: mariadbKind,
		open:   openGetLock(false),
	},
	{
		name:   "etcd concurrency",
		module: "go.etcd.io/etcd/client/v3",
		how:    "concurrency.Mutex, one client per process, a session per goroutine; etcd's tuning guide is about disks and networks only",
		fair:   true,
		more:   "hot shared zipf latency",
		server: etcdKind,
		open:   openEtcd,
	},
	{
		name:   "ZooKeeper",
		module: "github.com/go-zookeeper/zk",
		how:    "zk.Lock, one connection per process; its administrator's guide advises a disk for the log alone",
		fair:   true,
		more:   "hot shared zipf latency",
		server: zookeeperKind,
		open:   openZookeeper,
	},
	{
		name:  "a mutex per key, all in one process",
		how:   "no lock that others know: all goroutines are one process's, with a map of sync.Mutex",
		in:    "hot zipf",
		alone: true,
		open: func(environment) (locker, error) {
			return &keyedLock{keyedMutex{keys: make(map[string]*countedMutex)}}, nil
		},
	},
	{
		name:  "none",
		alone: true,
		open:  func(environment) (locker, error) { return unlocked{}, nil },
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

// kind is how it is drawn.
func (v variant) kind() chart.Kind {
	if v.alone {
		return chart.Floor
	}
	return kindOf(v.name)
}

// title is the name with the version that is measured.
func (v variant) title() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == v.module && m.Version != "(devel)" && m.Replace == nil {
				if v.server != nil { // the version is the client's
					return fmt.Sprintf("%s (%s %s)", v.name, clientName(v.module), m.Version)
				}
				name, what, _ := strings.Cut(v.name, ",")
				if what != "" {
					what = "," + what
				}
				return name + " " + m.Version + what
			}
		}
	}
	return v.name
}

var majorVersion = regexp.MustCompile(`/v[0-9]+$`)

// clientName is the last part of a module's path, without its major version.
func clientName(module string) string { return path.Base(majorVersion.ReplaceAllString(module, "")) }

// newCoordinator returns a coordinator on a namespace of this run. The namespace is new, so there is nothing that an empty
// server could have lost: without ColdStart a server that was just started would first have to be up for Options.Grace.
func newCoordinator(client *redis.Client, o *coord.Options) (*coord.Coordinator, error) {
	a := redisarbiter.New(client, &redisarbiter.Options{ColdStart: true, Background: background(client)})
	return coord.New(context.Background(), a, o)
}

// debounce is that of the clusters of this process: as the order says, and then for good.
var debounce time.Duration

// clusterOptions are the defaults, on the loopback interface.
func clusterOptions(namespace string) *coord.Options {
	return &coord.Options{Namespace: namespace, Cluster: &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0", Debounce: debounce}}
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
	return fmt.Sprintf("%s calls failed and were made again, which does not count; one: %s", figures.Thousands(n), first)
}

type holdfast struct{ c *coord.Coordinator }

func (h *holdfast) section(ctx context.Context, key string, inside func(uint64)) error {
	l, err := h.c.Lock(ctx, key)
	if err != nil {
		return err
	}
	inside(uint64(l.Fence()))
	return l.Unlock()
}

func (h *holdfast) close(ctx context.Context) error { return h.c.Close(ctx) }

type redsyncLock struct {
	rs        *redsync.Redsync
	namespace string
	options   []redsync.Option
}

func newRedsync(e environment, more ...redsync.Option) *redsyncLock {
	options := append([]redsync.Option{redsync.WithExpiry(expiry), redsync.WithTries(math.MaxInt)}, more...)
	return &redsyncLock{redsync.New(goredis.NewPool(e.client)), e.namespace, options}
}

func (r *redsyncLock) section(ctx context.Context, key string, inside func(uint64)) error {
	m := r.rs.NewMutex(r.namespace+":"+key, r.options...)
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
	delay     time.Duration
}

func (r *redislockLock) section(ctx context.Context, key string, inside func(uint64)) error {
	l, err := r.client.Obtain(ctx, r.namespace+":"+key, expiry,
		&redislock.Options{RetryStrategy: redislock.LinearBackoff(r.delay)})
	if err != nil {
		return err
	}
	inside(0)
	return l.Release(context.WithoutCancel(ctx))
}

func (r *redislockLock) close(context.Context) error { return nil }

// setLock is what most write themselves.
type setLock struct {
	client    *redis.Client
	namespace string
	delay     time.Duration
}

func (s *setLock) section(ctx context.Context, key string, inside func(uint64)) error {
	key, me := s.namespace+":"+key, rand.Text()
	for {
		ok, err := s.client.SetNX(ctx, key, me, setExpiry).Result()
		if err != nil {
			return err
		}
		if ok {
			break
		}
		select {
		case <-time.After(s.delay):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	inside(0)
	return deleteIfMine.Run(context.WithoutCancel(ctx), s.client, []string{key}, me).Err()
}

func (s *setLock) close(context.Context) error { return nil }

// keyedLock is a lock of this process alone.
type keyedLock struct{ keyedMutex }

func (k *keyedLock) section(ctx context.Context, key string, inside func(uint64)) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	k.lock(key)
	defer k.unlock(key)
	inside(0)
	return nil
}

func (k *keyedLock) close(context.Context) error { return nil }

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
