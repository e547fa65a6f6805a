// Package rivals has the locks that are compared, Holdfast's among them, the servers that they
// need, and the floors beside them.
package rivals

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
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// Variant is one library's lock.
type Variant struct {
	Name   string
	module string
	How    string
	Fenced bool        // its tokens rise
	Fair   bool        // it serves in order of arrival
	Alone  bool        // it knows nothing of other processes: a floor, for one
	In     string      // the subjects that measure it; none: it breaks the rules
	More   string      // those that do with -rivals all
	Server *ServerKind // the server that it needs besides Redis
	Open   func(e Environment) (*Locker, error)
}

// Environment is the parameters for opening a variant in one process.
type Environment struct {
	harness.Order
	Client     *redis.Client
	Server     string // how to connect to the variant's own
	Goroutines int
	Count      *harness.Counter // of the client, and of others that the variant makes
}

// MeasuredIn tells whether a subject measures the variant, with all rivals or without.
func (v Variant) MeasuredIn(subject string, all bool) bool {
	return slices.Contains(strings.Fields(v.In), subject) || all && slices.Contains(strings.Fields(v.More), subject)
}

// Unsafe variants show that the measurement notices.
func (v Variant) Unsafe() bool { return v.In+v.More == "" }

// Unknown are the measures that the variant does not have.
func (v Variant) Unknown() []string {
	switch {
	case v.Alone:
		return []string{stats.MeasureCommands, stats.MeasureBytes, stats.MeasureServer}
	case v.Server != nil:
		return []string{stats.MeasureCommands}
	}
	return nil
}

// Locker is a variant in one process.
type Locker struct {
	// Section waits for key's lock until ctx ends, calls inside with the token, or 0, and unlocks.
	Section func(ctx context.Context, key string, inside func(fence uint64)) error
	Node    *coord.Coordinator              // Holdfast's; nil for the others
	ready   func(ctx context.Context) error // nil: it always is
	shut    func()                          // nil: it leaves nothing open
}

// Ready makes the variant as it was when it was opened: calls that were cancelled may have closed
// its connections.
func (l *Locker) Ready(ctx context.Context) error {
	if l.ready == nil {
		return nil
	}
	return l.ready(ctx)
}

// Close closes the connections and nodes that the variant has opened.
func (l *Locker) Close(ctx context.Context) error {
	if l.Node != nil {
		return l.Node.Close(ctx)
	}
	if l.shut != nil {
		l.shut()
	}
	return nil
}

// RW is a lock of one key for readers and writers, in one process. Each call waits, and returns
// the function that unlocks.
type RW struct {
	RLock, Lock func(ctx context.Context) (unlock func() error, err error)
	shut        func() // nil: it leaves nothing open
}

// Close closes the connections that the lock has opened.
func (l *RW) Close(context.Context) error {
	if l.shut != nil {
		l.shut()
	}
	return nil
}

// The variants that others are told from by name.
const (
	PlainVariant   = "Holdfast" // without a cluster
	ClusterVariant = "Holdfast cluster"
	Advisory       = "PostgreSQL advisory lock"
)

const (
	retryDelay = 5 * time.Millisecond // of the rivals that poll; more often makes them slower
	Expiry     = 8 * time.Second
	setExpiry  = Expiry + time.Millisecond // of whole seconds go-redis would make EX
)

var Variants = []Variant{
	{
		Name: PlainVariant, module: "github.com/holdfast-go/holdfast",
		How:    "coord over redisarbiter.New, defaults",
		Fenced: true, In: "hot",
		Open: openHoldfast(func(o harness.Order) *coord.Options {
			return &coord.Options{Namespace: o.Namespace, SessionTTL: o.SessionTTL}
		}),
	},
	{
		Name: ClusterVariant, module: "github.com/holdfast-go/holdfast",
		How:    "coord with Options.Cluster over redisarbiter.New, defaults",
		Fenced: true, Fair: true, In: "shared zipf idle stalls", Open: openHoldfast(ClusterOptions),
	},
	{
		Name: "SET NX PX, 100 ms",
		How:  "SET key random NX PX 8001, again after 100 ms, and a script that deletes it, as most write it",
		In:   "shared zipf latency", More: "hot", Open: openSet(100 * time.Millisecond),
	},
	{
		Name: "SET NX PX, 5 ms",
		How:  "the same, again after 5 ms",
		More: "hot shared zipf", Open: openSet(retryDelay),
	},
	{
		Name: "redsync", module: "github.com/go-redsync/redsync/v4",
		How: "go-redis pool, retry delay 5 ms, unlimited tries, expiry 8 s",
		In:  "hot shared zipf latency", More: "stalls", Open: openRedsync(redsync.WithRetryDelay(retryDelay)),
	},
	{
		Name: "redislock", module: "github.com/bsm/redislock",
		How: "LinearBackoff(5 ms), TTL 8 s",
		In:  "hot shared zipf latency stalls", Open: openRedislock(retryDelay),
	},
	{
		Name: "redsync, default delay", module: "github.com/go-redsync/redsync/v4",
		How: "go-redis pool, the library's retry delay of 50 to 250 ms, unlimited tries, expiry 8 s",
		In:  "shared zipf", More: "hot", Open: openRedsync(),
	},
	{
		Name: "redislock, 100 ms", module: "github.com/bsm/redislock",
		How: "LinearBackoff(100 ms), as in its examples, TTL 8 s",
		In:  "shared zipf", More: "hot", Open: openRedislock(100 * time.Millisecond),
	},
	{
		Name: "rueidislock, 1 key", module: "github.com/redis/rueidis",
		How: "KeyMajority 1 and NoLoopTracking, as its README advises for one Redis from 7.0.5 on; a call that takes longer than 20 ms is given up",
		In:  "hot shared zipf latency", More: "stalls", Open: openRueidis(true),
	},
	{
		Name: "rueidislock, defaults", module: "github.com/redis/rueidis",
		How: "two of three keys",
		In:  "latency", More: "hot shared zipf", Open: openRueidis(false),
	},
	{
		Name: Advisory, module: "github.com/jackc/pgx/v5",
		How:  "pgx pool with a connection per goroutine, pg_advisory_lock and pg_advisory_unlock",
		Fair: true, In: "shared zipf latency", More: "hot stalls", Server: PostgresKind, Open: openAdvisory,
	},
	{
		Name: "etcd concurrency", module: "go.etcd.io/etcd/client/v3",
		How:  "concurrency.Mutex, one client per process, a session per goroutine; etcd's tuning guide is about disks and networks only",
		Fair: true, More: "hot shared zipf latency stalls", Server: EtcdKind, Open: openEtcd,
	},
	{
		Name: "ZooKeeper", module: "github.com/go-zookeeper/zk",
		How:  "zk.Lock, one connection per process; its administrator's guide advises a disk for the log alone",
		Fair: true, More: "hot shared zipf latency stalls", Server: ZookeeperKind, Open: openZookeeper,
	},
	{
		Name:  "a mutex per key, all in one process",
		How:   "no lock that others know: all goroutines are one process's, with a map of sync.Mutex",
		Alone: true, In: "hot zipf", Open: func(Environment) (*Locker, error) { return inProcess(new(KeyedMutex)), nil },
	},
	{
		Name:  "none",
		Alone: true, Open: func(Environment) (*Locker, error) { return inProcess(nil), nil },
	},
}

// FindVariant returns a variant and its place in the list.
func FindVariant(name string) (Variant, int, error) {
	for i, v := range Variants {
		if v.Name == name {
			return v, i, nil
		}
	}
	return Variant{}, 0, fmt.Errorf("no variant %q", name)
}

// Kind is how it is drawn.
func (v Variant) Kind() chart.Kind {
	if v.Alone {
		return chart.Floor
	}
	return report.KindOf(v.Name)
}

// Title is the name with the version that is measured.
func (v Variant) Title() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == v.module && m.Version != "(devel)" && m.Replace == nil {
				if v.Server != nil { // the version is the client's
					return fmt.Sprintf("%s (%s %s)", v.Name, clientName(v.module), m.Version)
				}
				name, what, _ := strings.Cut(v.Name, ",")
				if what != "" {
					what = "," + what
				}
				return name + " " + m.Version + what
			}
		}
	}
	return v.Name
}

var majorVersion = regexp.MustCompile(`/v[0-9]+$`)

// clientName is the last part of a module's path, without its major version.
func clientName(module string) string { return path.Base(majorVersion.ReplaceAllString(module, "")) }

// NewCoordinator returns a coordinator on a namespace of this run. The namespace is new, so there
// is nothing that an empty server could have lost: without ColdStart a server that was just started
// would first have to be up for Options.Grace.
func NewCoordinator(client *redis.Client, o *coord.Options) (*coord.Coordinator, error) {
	a := redisarbiter.New(client, &redisarbiter.Options{ColdStart: true, Background: harness.Background(client)})
	return coord.New(context.Background(), a, o)
}

// ClusterOptions are the defaults, on the loopback interface.
func ClusterOptions(o harness.Order) *coord.Options {
	return &coord.Options{
		Namespace: o.Namespace, SessionTTL: o.SessionTTL,
		Cluster: &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0", Debounce: o.Debounce},
	}
}

// FailedNote says how many calls of the arbiter there were. A machine that stands still for a
// second makes them.
func FailedNote(n int64) string {
	if n == 0 {
		return "no call failed"
	}
	return figures.Thousands(n) + " calls failed and were made again, which does not count"
}

func openHoldfast(options func(harness.Order) *coord.Options) func(Environment) (*Locker, error) {
	return func(e Environment) (*Locker, error) {
		c, err := NewCoordinator(e.Client, options(e.Order))
		if err != nil {
			return nil, err
		}
		return &Locker{Node: c, Section: func(ctx context.Context, key string, inside func(uint64)) error {
			l, err := c.Lock(ctx, key)
			if err != nil {
				return err
			}
			inside(uint64(l.Fence()))
			return l.Unlock()
		}}, nil
	}
}

func openRedsync(more ...redsync.Option) func(Environment) (*Locker, error) {
	options := append([]redsync.Option{redsync.WithExpiry(Expiry), redsync.WithTries(math.MaxInt)}, more...)
	return func(e Environment) (*Locker, error) {
		rs := redsync.New(goredis.NewPool(e.Client))
		return &Locker{Section: func(ctx context.Context, key string, inside func(uint64)) error {
			m := rs.NewMutex(e.Namespace+":"+key, options...)
			if err := m.LockContext(ctx); err != nil {
				return err
			}
			inside(0)
			_, err := m.UnlockContext(context.WithoutCancel(ctx))
			return err
		}}, nil
	}
}

func openRedislock(delay time.Duration) func(Environment) (*Locker, error) {
	return func(e Environment) (*Locker, error) {
		client := redislock.New(e.Client)
		return &Locker{Section: func(ctx context.Context, key string, inside func(uint64)) error {
			l, err := client.Obtain(ctx, e.Namespace+":"+key, Expiry, &redislock.Options{RetryStrategy: redislock.LinearBackoff(delay)})
			if err != nil {
				return err
			}
			inside(0)
			return l.Release(context.WithoutCancel(ctx))
		}}, nil
	}
}

// openSet opens the lock that most users write themselves.
func openSet(delay time.Duration) func(Environment) (*Locker, error) {
	return func(e Environment) (*Locker, error) {
		return &Locker{Section: func(ctx context.Context, key string, inside func(uint64)) error {
			key, me := e.Namespace+":"+key, rand.Text()
			for {
				ok, err := e.Client.SetNX(ctx, key, me, setExpiry).Result()
				if err != nil {
					return err
				}
				if ok {
					break
				}
				select {
				case <-time.After(delay):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			inside(0)
			return deleteIfMine.Run(context.WithoutCancel(ctx), e.Client, []string{key}, me).Err()
		}}, nil
	}
}

// inProcess is a lock of this process alone, or none.
func inProcess(k *KeyedMutex) *Locker {
	return &Locker{Section: func(ctx context.Context, key string, inside func(uint64)) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if k != nil {
			k.Lock(key)
			defer k.Unlock(key)
		}
		inside(0)
		return nil
	}}
}
