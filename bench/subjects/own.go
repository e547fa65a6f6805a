package subjects

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// ownSizes: each block measures everything once, in an order that changes.
type ownSizes struct {
	Blocks    int
	Pairs     int // of Lock and Unlock per block
	HandOvers int // per block
	Calls     int // pairs of Redis calls per block
}

// Limits for keys that a node owns.
const (
	ownMutex    = 8    // times a pair of sync.Mutex's, at most
	ownRedis    = 1000 // times as fast as SET NX PX and EVALSHA, at least
	ownHandOver = 1.5  // times a ping-pong of two goroutines by channels, there and back, at most
	ownAllocs   = 0.01 // allocations per pair of the whole process, gossip and renewal included, at most
)

// ownWaiters is how many goroutines want the same key.
const ownWaiters = 64

// Lanes of own, and the suffix of the names of those with one processor.
const (
	ownMutexLane = "sync.Mutex, Lock and Unlock"
	ownLockLane  = "Lock and Unlock, one key"
	ownRedisLane = "SET NX PX and EVALSHA"
	ownClockLane = "the clock"
	ownPingPong  = "ping-pong"
	ownTurn      = "hand-over of a lock"
	ownOne       = ", one processor"
)

type ownTask struct {
	ownSizes
	Core int // to call Redis from; negative: any
}

var ownTasks = newLanes("own", openOwn)

// openOwn makes the worker the only node of a cluster.
func openOwn(ctx context.Context, h *harness.Host, t ownTask, r *laneRun) error {
	bare, simple := bareClient(h)
	c, count, err := r.onlyNode(ctx, h)
	if err != nil {
		return err
	}
	keys := makeKeys("order", 1000)
	r.blocks, r.counters = t.Blocks, []*harness.Counter{count, simple}
	pairs := func(keys []string) runner {
		return timed(func(ctx context.Context, _, n int) error {
			return times(n, func(i int) error { return pair(ctx, c, keys[i%len(keys)]) })
		})
	}
	of := func(name, title, base string, n int, run runner) *lane {
		return r.add(&lane{laneResult: laneResult{Name: name, Title: title, Base: base}, path: coord.PathOwn, batch: n, run: run})
	}
	of(ownMutexLane, "", ownMutexLane, 5*t.Pairs, timed(mutexPairs))
	of(ownLockLane, "", ownMutexLane, t.Pairs, pairs(keys[:1]))
	of("the same, 1,000 keys in turn", "", ownMutexLane, t.Pairs, pairs(keys))
	of(ownRedisLane, "", ownMutexLane, t.Calls, timed(func(ctx context.Context, _, n int) error {
		return times(n, func(int) error { return rivals.SetPair(ctx, bare, h.Namespace+":set") })
	})).around = func(f func() error) error {
		if t.Core < 0 {
			return f()
		}
		undo, err := harness.Pin(os.Getpid(), t.Core)
		if err != nil {
			return err
		}
		return errors.Join(f(), undo())
	}
	of(ownClockLane, "", "", t.Pairs, timed(clock))
	for _, one := range []string{"", ownOne} {
		title := "ping-pong by channels, there and back"
		if one != "" {
			title = "with one processor: ping-pong"
		}
		for _, l := range []*lane{
			of(ownPingPong+one, title, ownPingPong+one, t.HandOvers, timed(pingPong)),
			of("token"+one, fmt.Sprintf("  hand-over of a token in a channel, %d", ownWaiters), ownPingPong+one, t.HandOvers, token(ownWaiters)),
			of(ownTurn+one, fmt.Sprintf("  hand-over of a lock, %d", ownWaiters), ownPingPong+one, t.HandOvers, handOver(c, keys[0], ownWaiters)),
		} {
			if one != "" {
				l.around = func(f func() error) error {
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
					return f()
				}
			}
		}
	}
	commands, trips, begun := count.Commands.Load(), count.Trips.Load(), time.Now()
	r.done = func(res *lanesResult) {
		res.Facts["commands"], res.Facts["trips"] = float64(count.Commands.Load()-commands), float64(count.Trips.Load()-trips)
		res.Facts["took"] = time.Since(begun).Seconds()
	}
	return nil
}

// measureOwn lets the only node of a cluster lock keys.
func measureOwn(ctx context.Context, b *Run) (report.Result, error) {
	t := ownTask{b.Sizes.own, -1}
	// The worker has all cores, but while it calls Redis: from another core than the server's, as
	// from another machine.
	mine, its, pinned := b.TwoCores()
	switch {
	case pinned != "":
	case b.PID == 0:
		pinned = "nothing is pinned: the server is not ours"
	default:
		if err := b.PinServer(its); err != nil {
			return report.Result{}, err
		}
		t.Core = mine
		pinned = fmt.Sprintf("pinned: redis-server to core %d, and the caller to core %d while it calls Redis", its, mine)
	}
	r, err := harness.Alone(ctx, b.Bench, "own", ownTasks, t)
	if err != nil {
		return report.Result{}, err
	}
	mutex, lock, redis := r.lane(ownMutexLane), r.lane(ownLockLane), r.lane(ownRedisLane)
	pong, turn := r.lane(ownPingPong), r.lane(ownTurn)
	var allocs []float64
	for _, x := range lock.Rounds {
		allocs = append(allocs, stats.Ratio(float64(x.Allocs), float64(x.Sections)))
	}
	return report.Result{
		Rungs: []chart.Bar{
			report.Bar(ownMutexLane, chart.Floor, mutex.P50),
			report.TimesFloor(report.Bar("Lock and Unlock, the owner's own key", chart.Ours, lock.P50), lock.P50, mutex.P50, "the mutex"),
			report.Bar("hand-over between 2 goroutines by channels", chart.Floor, pong.P50),
			report.TimesFloor(report.Bar(fmt.Sprintf("hand-over of a lock among %d goroutines", ownWaiters), chart.Ours, turn.P50), turn.P50, pong.P50, "the channels"),
			report.Bar("SET NX PX and the script to delete it", chart.Rival, redis.P50),
		},
		Title: fmt.Sprintf("OWN: the only node of a cluster, keys of its own; %d blocks, by turns", t.Blocks),
		Table: append([][]string{besideHead("nanoseconds", "median")}, r.beside(stats.Number)...),
		Notes: []string{
			pinned,
			"ratio: to the mutex's pair, and of hand-overs to the ping-pong, in each block; median of the blocks",
			"CPU (nanoseconds), allocations, commands and bytes to Redis: of the whole process, renewal and gossip included, per operation; the times of",
			"less than a microsecond are means of a block, which have no p99: latency measures 100 at a time",
			"a ping-pong is two wake-ups, a hand-over one: at 0.5 a hand-over costs what the scheduler takes for it",
			fmt.Sprintf("GOMAXPROCS is %d, but where it says one; the clock is read in %s ns", r.Procs, stats.Number(stats.Median(r.lane(ownClockLane).P50))),
			fmt.Sprintf("locks by path: own %s, others %s; meanwhile the node sent %s commands in %s round trips to Redis, in %.3fs",
				figures.Thousands(r.By["own"]), figures.Thousands(r.By["other"]), stats.Number(r.Facts["commands"]), stats.Number(r.Facts["trips"]), r.Facts["took"]),
		},
		Claims: []report.Claim{
			report.AtMost(ownMutex, lock.times(mutex), "Lock and Unlock, times a pair of sync.Mutex's"),
			report.AtMost(ownAllocs, stats.Median(allocs), "allocations per Lock and Unlock"),
			report.AtLeast(ownRedis, redis.times(lock), "SET NX PX and EVALSHA, times Lock and Unlock"),
			report.AtMost(ownHandOver, turn.times(pong), fmt.Sprintf("hand-over among %d, times a ping-pong of two by channels", ownWaiters)),
			report.AtMost(ownHandOver, r.lane(ownTurn+ownOne).times(r.lane(ownPingPong+ownOne)), "the same with one processor"),
			report.AtMost(0, float64(r.By["other"]), "locks that were not from memory"),
		},
	}, nil
}

// times calls f so often, or until it fails.
func times(n int, f func(i int) error) error {
	for i := range n {
		if err := f(i); err != nil {
			return err
		}
	}
	return nil
}

func mutexPairs(_ context.Context, _, n int) error {
	var mu sync.Mutex
	for range n {
		mu.Lock()
		mu.Unlock() //nolint:staticcheck // the pair is what is measured
	}
	return nil
}

func pair(ctx context.Context, c *coord.Coordinator, key string) error {
	l, err := c.Lock(ctx, key)
	if err != nil {
		return err
	}
	return l.Unlock()
}

func clock(_ context.Context, _, n int) error {
	for range n {
		_ = time.Now()
	}
	return nil
}

// pingPong lets two goroutines wake each other in turn: n times there and back.
func pingPong(_ context.Context, _, n int) error {
	ping, pong := make(chan struct{}), make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		for range ping {
			pong <- struct{}{}
		}
	})
	for range n {
		ping <- struct{}{}
		<-pong
	}
	close(ping)
	work.Wait()
	return nil
}

// token lets goroutines pass a token on, in order of arrival. The clock runs from when all of them
// wait, so none gets the token twice in a row.
func token(goroutines int) runner {
	return func(_ context.Context, _, n int) (span, error) {
		c := make(chan struct{}, 1)
		var work sync.WaitGroup
		for range goroutines {
			work.Go(func() {
				for range n / goroutines {
					<-c
					c <- struct{}{}
				}
			})
		}
		time.Sleep(2 * time.Millisecond)
		begin := time.Now()
		c <- struct{}{}
		work.Wait()
		return span{n, time.Since(begin)}, nil
	}
}

// handOver lets goroutines lock the same key. The clock runs from when all of them wait.
func handOver(c *coord.Coordinator, key string, goroutines int) runner {
	return func(ctx context.Context, _, n int) (span, error) {
		first, err := c.Lock(ctx, key)
		if err != nil {
			return span{}, err
		}
		var work errgroup.Group
		for range goroutines {
			work.Go(func() error { return times(n/goroutines, func(int) error { return pair(ctx, c, key) }) })
		}
		for c.Stats().Waiting < goroutines && ctx.Err() == nil {
			time.Sleep(100 * time.Microsecond)
		}
		begin := time.Now()
		err = errors.Join(first.Unlock(), work.Wait())
		return span{n, time.Since(begin)}, err
	}
}
