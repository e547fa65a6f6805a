package subjects

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// ownSizes: each block measures everything once, in an order that changes.
type ownSizes struct {
	blocks    int
	pairs     int // of Lock and Unlock per block
	handOvers int // per block
	calls     int // pairs of Redis calls per block
}

// What must hold of keys that a node owns.
const (
	ownMutex    = 8    // times a pair of sync.Mutex's, at most
	ownRedis    = 1000 // times as fast as SET NX PX and EVALSHA, at least
	ownHandOver = 1.5  // times a ping-pong of two goroutines by channels, there and back, at most
	ownAllocs   = 0.01 // allocations per pair of the whole process, gossip and renewal included, at most
)

// ownWaiters is how many goroutines want the same key.
const ownWaiters = 64

// measureOwn lets the only node of a cluster lock keys.
func measureOwn(ctx context.Context, b *Run) (_ report.Result, err error) {
	s := b.Sizes.own
	t := ownTask{Blocks: s.blocks, Pairs: s.pairs, HandOvers: s.handOvers, Calls: s.calls, Core: -1}
	// The worker has all cores, but while it calls Redis: from another core than the server's, as from
	// another machine.
	mine, its, pinned := b.TwoCores()
	switch {
	case pinned != "":
	case b.PID == 0:
		pinned = "nothing is pinned: the server is not ours"
	default:
		undo, err := harness.Pin(b.PID, its)
		if err != nil {
			return report.Result{}, err
		}
		defer func() { err = errors.Join(err, undo()) }()
		t.Core = mine
		pinned = fmt.Sprintf("pinned: redis-server to core %d, and the caller to core %d while it calls Redis", its, mine)
	}
	r, err := harness.Alone(ctx, b.Bench, "own", ownTasks, t)
	if err != nil {
		return report.Result{}, err
	}
	return r.result(s, pinned), nil
}

func (r *ownResult) result(s ownSizes, pinned string) report.Result {
	row := func(name string, part int, sample, base []float64) []string {
		return stats.Cells(name, sample, base, stats.Number, r.Used[part])
	}
	times := func(a, b []float64) float64 { return stats.Median(stats.PerRound(a, b)) }
	return report.Result{
		Rungs: []chart.Bar{
			report.Bar("sync.Mutex, Lock and Unlock", chart.Floor, r.Mutex),
			report.TimesFloor(report.Bar("Lock and Unlock, the owner's own key", chart.Ours, r.Lock), r.Lock, r.Mutex, "the mutex"),
			report.Bar("hand-over between 2 goroutines by channels", chart.Floor, r.PingPong),
			report.TimesFloor(report.Bar(fmt.Sprintf("hand-over of a lock among %d goroutines", ownWaiters), chart.Ours, r.HandOver), r.HandOver, r.PingPong, "the channels"),
			report.Bar("SET NX PX and the script to delete it", chart.Rival, r.Redis),
		},
		Versus: []chart.Ratio{report.Against("own key, time of a lock vs. SET NX PX and EVALSHA", stats.PerRound(r.Redis, r.Lock))},
		Title:  fmt.Sprintf("OWN: the only node of a cluster, keys of its own; %d blocks, by turns", s.blocks),
		Table: [][]string{
			append([]string{"nanoseconds", "median", "(min..max)", "ratio", "(min..max)"}, stats.UsedHead...),
			row("sync.Mutex, Lock and Unlock", 0, r.Mutex, r.Mutex),
			row("Lock and Unlock, one key", 1, r.Lock, r.Mutex),
			row("the same, 1,000 keys in turn", 2, r.Many, r.Mutex),
			row("SET NX PX and EVALSHA", 3, r.Redis, r.Mutex),
			row("ping-pong by channels, there and back", 5, r.PingPong, r.PingPong),
			row(fmt.Sprintf("  hand-over of a token in a channel, %d", ownWaiters), 6, r.Token, r.PingPong),
			row(fmt.Sprintf("  hand-over of a lock, %d", ownWaiters), 7, r.HandOver, r.PingPong),
			row("with one processor: ping-pong", 8, r.PingPong1, r.PingPong1),
			row(fmt.Sprintf("  hand-over of a token in a channel, %d", ownWaiters), 9, r.Token1, r.PingPong1),
			row(fmt.Sprintf("  hand-over of a lock, %d", ownWaiters), 10, r.HandOver1, r.PingPong1),
		},
		Notes: []string{
			pinned,
			"ratio: to the mutex's pair, and of hand-overs to the ping-pong, in each block; median of the blocks",
			"CPU (nanoseconds), allocations, commands and bytes to Redis: of the whole process, renewal and gossip included, per operation; the times of",
			"less than a microsecond are means of a block, which have no p99: latency measures 100 at a time",
			"a ping-pong is two wake-ups, a hand-over one: at 0.5 a hand-over costs what the scheduler takes for it",
			fmt.Sprintf("GOMAXPROCS is %d, but where it says one; the clock is read in %s ns", r.Procs, stats.Number(stats.Median(r.Clock))),
			fmt.Sprintf("locks by path: own %s, others %s; meanwhile the node sent %s commands in %s round trips to Redis, in %v",
				figures.Thousands(r.Own), figures.Thousands(r.Other), figures.Thousands(r.Commands), figures.Thousands(r.Trips), r.Took.Round(time.Millisecond)),
		},
		Claims: []report.Claim{
			report.AtMost(ownMutex, times(r.Lock, r.Mutex), "Lock and Unlock, times a pair of sync.Mutex's"),
			report.AtMost(ownAllocs, stats.Median(r.Allocs), "allocations per Lock and Unlock"),
			report.AtLeast(ownRedis, times(r.Redis, r.Lock), "SET NX PX and EVALSHA, times Lock and Unlock"),
			report.AtMost(ownHandOver, times(r.HandOver, r.PingPong), fmt.Sprintf("hand-over among %d, times a ping-pong of two by channels", ownWaiters)),
			report.AtMost(ownHandOver, times(r.HandOver1, r.PingPong1), "the same with one processor"),
			report.AtMost(0, float64(r.Other), "locks that were not from memory"),
		},
	}
}
