package subjects

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/coord"
)

// modesSizes: read locks and permits, in rounds of each way to have them by turns.
type modesSizes struct {
	blocks int           // of pairs of calls, by one goroutine and by two
	block  time.Duration // how long one is
	ratios int           // comparisons in slices: see pairSlice
}

// modesAllocs is how many allocations a read lock of a key that the process reads takes, at most:
// none, but those of the cluster meanwhile.
const modesAllocs = 0.01

// permitsLoss is how much of the throughput a limit that does not bind may take: the sections
// without a limit per second to those with one.
const permitsLoss = 1.02

// rivalBatch is how many pairs of calls are timed at a time if each needs round trips: a whole
// batch counts for the round in which it begins.
const rivalBatch = 1

// jobs returns the jobs under locks of each kind. A section waits as for a database: then the
// concurrency that the lock allows shows, not the number of processors.
func (s modesSizes) jobs() (list []*job) {
	crowd := func(processes, goroutines int) Crowd {
		return Crowd{Processes: processes, Goroutines: goroutines, Rounds: s.blocks, Round: s.block}
	}
	for _, n := range []int{1, 2} {
		list = append(list, &job{
			Name: fmt.Sprintf("read-%d", n), Title: fmt.Sprintf("pairs of calls, no writer, GOMAXPROCS %d with as many goroutines", n),
			Crowd: crowd(2, n), Active: 1, Procs: n,
		})
	}
	return append(list, &job{
		Name: "mixed", Title: "sections of two round trips to Redis under a lock of one key, one in 1,000 for writing", Crowd: crowd(4, 8),
		Batch: rivalBatch, Writes: 1000,
	}, &job{
		Name: "permits", Title: "sections of two round trips to Redis, a limit of ten times the callers", Crowd: crowd(8, 8),
		Batch: rivalBatch, Ratios: s.ratios,
	})
}

// kind returns the kind of the ways to do the job.
func (j job) kind() string {
	kind, _, _ := strings.Cut(j.Name, "-")
	return kind
}

// modeWays has ours first, of each job. Those of "read mixed" are a user's choices elsewhere.
var modeWays = []way{
	{Variant: mode("read", "Holdfast RLock, own key", "RLock and Unlock of a key that the node owns"), reads: true, open: openPairs(true, readPair)},
	{Variant: mode("read", "Holdfast RLock, another's key", "the same on a node that does not own the key"), reads: true, open: openPairs(false, readPair)},
	{Variant: mode("read", "Holdfast Lock, own key", "Lock and Unlock by as many goroutines: they exclude each other"), open: openPairs(true, pair)},
	{Variant: modeAlone("read", "sync.RWMutex", "RLock and RUnlock"), open: openRWMutex},
	{Variant: modeAlone("read", "the clock", "time.Since: processors share nothing in it"), open: openClock},

	{Variant: mode("mixed", "Holdfast RLock and Lock", "of one key, by the nodes of a cluster"), open: openRW(openHoldfastRW)},
	{Variant: mode("mixed", "no lock", "the same sections by as many processes"), floor: true, open: openRW(openNoRW)},
	{
		Variant: modeAt(nil, "Redisson's read-write lock",
			"its algorithm as Lua by go-redis: a script to lock, one to unlock, a channel for those who wait; without the renewal"),
		open: openRW(rival(rivals.OpenRedissonRW)),
	},
	{
		Variant: modeAt(rivals.PostgresKind, "PostgreSQL shared advisory lock",
			"pg_advisory_lock_shared and pg_advisory_lock by pgx, a connection for each goroutine"),
		open: openRW(rival(rivals.OpenAdvisoryRW)),
	},
	{
		Variant: modeAt(rivals.EtcdKind, "etcd RWMutex",
			"RWMutex of client/v3/experimental/recipes, a session for each process; one server, which writes to its disk"),
		open: openRW(rival(rivals.OpenEtcdRW)),
	},
	{
		Variant: modeAt(rivals.ZookeeperKind, "ZooKeeper read-write lock",
			"ZooKeeper's recipe, which is Curator's InterProcessReadWriteLock, by go-zookeeper: an ephemeral node in sequence for each caller, and the list of all "+
				"of them; a connection for each process; one server, which writes to its disk"),
		open: openRW(rival(rivals.OpenZookeeperRW)),
	},

	{Variant: mode("permits", "Holdfast Semaphore", "Acquire and Release of one permit of a semaphore of all processes"), open: openSemaphore},
	{
		Variant: mode("permits", "Redisson's semaphore",
			"its algorithm as Lua by go-redis: a number at the server; permits of a process that has crashed are lost"),
		open: openRedissonSemaphore,
	},
	{Variant: mode("permits", "no limit", "the same sections by as many processes"), floor: true, open: unlimited},
	{Variant: modeAlone("permits", "x/sync/semaphore", "golang.org/x/sync/semaphore in one process, with as many callers"), open: openWeighted},
	{Variant: modeAlone("permits", "no limit, one process", "the same sections by one process, with as many callers"), floor: true, open: unlimited},
}

// mode is a way to do a kind of job, modeAlone one of a single process, and modeAt one for readers
// and writers elsewhere: nil is Redis.
func mode(kind, name, how string) rivals.Variant {
	return rivals.Variant{Name: name, How: how, In: kind}
}

func modeAlone(kind, name, how string) rivals.Variant {
	return rivals.Variant{Name: name, How: how, In: kind, Alone: true}
}

func modeAt(server *rivals.ServerKind, name, how string) rivals.Variant {
	return rivals.Variant{Name: name, How: how, In: "read mixed", Server: server}
}

func openRWMutex(*place) (*opened, error) {
	var mu sync.RWMutex
	return &opened{loop: func(_ context.Context, n int) error {
		for range n {
			mu.RLock()
			mu.RUnlock() //nolint:staticcheck // the pair is what is measured
		}
		return nil
	}}, nil
}

func openClock(*place) (*opened, error) {
	began := time.Now()
	return &opened{loop: func(_ context.Context, n int) error {
		for range n {
			_ = time.Since(began)
		}
		return nil
	}}, nil
}

func openHoldfastRW(p *place, key string) (*rivals.RW, error) {
	v, err := p.cluster()
	if err != nil {
		return nil, err
	}
	return &rivals.RW{
		RLock: func(ctx context.Context) (func() error, error) {
			l, err := v.Node.RLock(ctx, key)
			return l.Unlock, err
		},
		Lock: func(ctx context.Context) (func() error, error) {
			l, err := v.Node.Lock(ctx, key)
			return l.Unlock, err
		},
	}, nil
}

func openNoRW(*place, string) (*rivals.RW, error) {
	in := func(context.Context) (func() error, error) { return func() error { return nil }, nil }
	return &rivals.RW{RLock: in, Lock: in}, nil
}

func openSemaphore(p *place) (*opened, error) {
	v, err := p.cluster()
	if err != nil {
		return nil, err
	}
	s := v.Node.Semaphore("renderers", permitsOf(p.t.Job))
	return limited(p, func(ctx context.Context) (coord.Permits, error) { return s.Acquire(ctx, 1) }, coord.Permits.Release), nil
}

func openRedissonSemaphore(p *place) (*opened, error) {
	p.client()
	acquire, err := rivals.OpenRedissonSemaphore(p.Environment, "renderers", permitsOf(p.t.Job))
	if err != nil {
		return nil, err
	}
	one := func(ctx context.Context) (func() error, error) { return acquire(ctx, 1) }
	return limited(p, one, func(release func() error) error { return release() }), nil
}

func openWeighted(p *place) (*opened, error) {
	s := semaphore.NewWeighted(int64(permitsOf(p.t.Job)))
	return limited(p, func(ctx context.Context) (none, error) { return none{}, s.Acquire(ctx, 1) }, func(none) error {
		s.Release(1)
		return nil
	}), nil
}

// permitsOf is a limit that does not bind.
func permitsOf(j job) int { return 10 * j.Processes * j.Goroutines }

// client opens a client for the way, unless it has one.
func (p *place) client() {
	if p.Client == nil {
		p.Client, p.Count = harness.NewClient(p.h.Redis, p.Goroutines)
		p.h.AtEnd(p.Client.Close)
	}
}

// cluster returns the process's node, which all ways share. The node's usage is the way's.
func (p *place) cluster() (*openVariant, error) {
	v, err := variantOf(p.h, rivals.ClusterVariant, "", p.Goroutines)
	if err == nil {
		p.client()
		p.Count = v.count
	}
	return v, err
}

// none is the lock of a way that gives nothing to release.
type none struct{}

func unlimited(p *place) (*opened, error) {
	return limited(p, func(context.Context) (none, error) { return none{}, nil }, func(none) error { return nil }), nil
}

// limited makes sections of two round trips to Redis, each between acquire and release.
func limited[T any](p *place, acquire func(context.Context) (T, error), release func(T) error) *opened {
	p.client()
	return &opened{counters: []*harness.Counter{p.Count}, loop: func(ctx context.Context, n int) error {
		return times(n, func(int) error {
			permit, err := acquire(ctx)
			if err != nil {
				return err
			}
			return errors.Join(p.trips(ctx), release(permit))
		})
	}}
}

// trips are two round trips to Redis.
func (p *place) trips(ctx context.Context) error {
	err := p.Client.Incr(ctx, "{bench}:sections").Err()
	if err == nil {
		err = p.Client.Incr(ctx, "{bench}:sections").Err()
	}
	return err
}

// openPairs finds a key that the node owns, or one that it does not.
func openPairs(own bool, pair func(context.Context, *coord.Coordinator, string) error) func(*place) (*opened, error) {
	return func(p *place) (*opened, error) {
		v, err := p.cluster()
		if err != nil {
			return nil, err
		}
		keys, err := keysOf(v.Node, own, "catalogue-", 1)
		if err != nil {
			return nil, err
		}
		return &opened{counters: []*harness.Counter{p.Count}, loop: func(ctx context.Context, n int) error {
			return times(n, func(int) error { return pair(ctx, v.Node, keys[0]) })
		}}, nil
	}
}

func readPair(ctx context.Context, c *coord.Coordinator, key string) error {
	l, err := c.RLock(ctx, key)
	if err != nil {
		return err
	}
	return l.Unlock()
}

// rival is a lock that needs no more than the place.
func rival(open func(rivals.Environment, string) (*rivals.RW, error)) func(*place, string) (*rivals.RW, error) {
	return func(p *place, key string) (*rivals.RW, error) { return open(p.Environment, key) }
}

// openRW opens a way that locks for readers and writers: for pairs of calls, or for sections of two
// round trips to Redis, some by a writer. The referee sees whether a writer is alone.
func openRW(open func(p *place, key string) (*rivals.RW, error)) func(*place) (*opened, error) {
	return func(p *place) (*opened, error) {
		p.client()
		l, err := open(p, "catalogue")
		if err != nil {
			return nil, err
		}
		p.h.AtEndWithin(l.Close)
		referee, err := p.referee()
		if err != nil {
			return nil, err
		}
		writes := p.t.Job.Writes
		return &opened{counters: []*harness.Counter{p.Count}, batch: rivalBatch, loop: func(ctx context.Context, n int) error {
			return times(n, func(int) error {
				lock, one := l.RLock, uint64(1)
				if writes > 0 && rand.IntN(writes) == 0 {
					lock, one = l.Lock, harness.Writer
				}
				unlock, err := lock(ctx)
				if err != nil {
					return err
				}
				if writes > 0 {
					referee.Join(one)
					err = p.trips(ctx)
					referee.Part(one)
				}
				return errors.Join(err, unlock())
			})
		}}, nil
	}
}

func measureModes(ctx context.Context, b *Run) (report.Result, error) {
	var list []rivals.Variant
	for _, j := range b.Sizes.modes.jobs() {
		_, some := (&contest{kind: "modes"}).chosen(b.in(j.kind()))
		list = append(list, some...)
	}
	servers, err := b.startServers(ctx, -1, list)
	if err != nil {
		return report.Result{}, err
	}
	r := report.Result{
		Title: "MODES: locks that several may have at the same time, and of several keys; all ways by turns",
		Table: [][]string{headOf(modesColumns(nil))},
	}
	for _, j := range b.Sizes.modes.jobs() {
		c := contest{b: b, kind: "modes", subject: "modes-" + j.Name, servers: servers, job: j}
		if err := b.Part(func() error { return c.mode(ctx, &r) }); err != nil {
			return report.Result{}, fmt.Errorf("%s: %w", j.Name, err)
		}
	}
	r.Notes = slices.Concat(r.Notes, describe(list), []string{
		"ratio: the first line's operations per second to this line's, in each round; median of the rounds",
		"CPU (nanoseconds), allocations, commands and bytes: of the processes that lock, the cluster's work included, per operation",
		"pairs of calls that ask no server are timed 1,000 at a time, so their waits are means; a judge is in what is mixed",
		"nothing is pinned: the kernel decides what runs where",
	})
	describeServers(&r, servers, list)
	return r, nil
}

func modesColumns(first *total) []column {
	wait := func(d time.Duration) string { return stats.Format(float64(d), stats.Nanoseconds) }
	return []column{
		rates("per second", first),
		{"p50 wait,p99,max", func(t *total) []string {
			return []string{wait(t.Waits.Quantile(0.5)), wait(t.Waits.Quantile(0.99)), wait(t.Waits.Longest)}
		}},
		per("CPU of the servers", func(t *total) float64 { return float64(t.Serving) }), number("violations", two),
		{strings.Join(stats.UsedHead, ","), func(t *total) []string { return stats.UsedPer(t.Rounds) }},
	}
}

// mode runs all rounds of a job's ways, ours first, and adds the results.
func (c *contest) mode(ctx context.Context, r *report.Result) error {
	j := c.job
	if err := errors.Join(c.withReferees(), c.start(ctx, j.Processes, anywhere, nil)); err != nil {
		return err
	}
	if _, _, err := c.cluster(ctx, j.Goroutines); err != nil {
		return err
	}
	ways, _ := c.chosen(c.b.in(j.kind()))
	if err := c.play(ctx, ways); err != nil {
		return err
	}
	first := c.totals[0]
	r.Table = append(r.Table, []string{fmt.Sprintf("%s; %d rounds of %v", j.Title, j.Rounds, j.Round)})
	name := func(t *total) string { return t.Name + ", " + j.Name }
	for _, t := range c.totals {
		r.Table = append(r.Table, t.row("  ", modesColumns(first)))
		t.noteFailed(r, name(t), "sections")
		if t.kind() == chart.Ours {
			r.Claims = append(r.Claims, report.AtMost(0, float64(t.failed), name(t)+": sections that failed"))
			if j.Writes > 0 {
				r.Claims = append(r.Claims, report.AtMost(0, float64(t.wrong), name(t)+": times that a writer was not alone"))
			}
		}
		if t == first && j.Ratios > 0 {
			if err := c.inSlices(r, name(t)); err != nil {
				return err
			}
		}
		if t.reads {
			r.Claims = append(r.Claims, report.AtMost(modesAllocs, t.Per(float64(t.All.Allocs)), name(t)+": allocations per pair of calls"))
		}
	}
	r.Contest("modes-"+j.Name, j.Title, contestants(c.totals, name))
	return nil
}

// Two ways whose difference is small are compared in slices of time that are shorter than a
// machine's disturbances. The same goroutines of the same processes change ways, A B B A A B B A
// ..., all at the same moments. Four slices, A B B A, are one comparison: a steady change of speed
// meanwhile is the same for both.
