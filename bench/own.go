package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/bench/chart"
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
func measureOwn(ctx context.Context, b *bench) (_ result, err error) {
	s := b.sizes.own
	t := ownTask{Blocks: s.blocks, Pairs: s.pairs, HandOvers: s.handOvers, Calls: s.calls, Core: -1}
	// The worker has all cores, but while it calls Redis: from another core than the server's, as from another machine.
	mine, its, pinned := b.twoCores()
	switch {
	case pinned != "":
	case b.pid == 0:
		pinned = "nothing is pinned: the server is not ours"
	default:
		undo, err := pin(b.pid, its)
		if err != nil {
			return result{}, err
		}
		defer func() { err = errors.Join(err, undo()) }()
		t.Core = mine
		pinned = fmt.Sprintf("pinned: redis-server to core %d, and the caller to core %d while it calls Redis", its, mine)
	}
	a, err := b.alone(ctx, "own", task{Own: &t})
	if err != nil {
		return result{}, err
	}
	return a.Own.result(s, pinned), nil
}

func (r *ownResult) result(s ownSizes, pinned string) result {
	row := func(name string, part int, sample, base []float64) []string {
		t, x := spreadOf(sample), spreadOf(perRound(sample, base))
		return append([]string{
			name, number(t.median), number(t.least) + ".." + number(t.most), number(x.median), number(x.least) + ".." + number(x.most),
		}, usedPer(r.Used[part])...)
	}
	times := func(a, b []float64) float64 { return median(perRound(a, b)) }
	return result{
		rungs: []chart.Bar{
			bar("sync.Mutex, Lock and Unlock", chart.Floor, r.Mutex),
			timesFloor(bar("Lock and Unlock, the owner's own key", chart.Ours, r.Lock), r.Lock, r.Mutex, "the mutex"),
			bar("hand-over between 2 goroutines by channels", chart.Floor, r.PingPong),
			timesFloor(bar(fmt.Sprintf("hand-over of a lock among %d goroutines", ownWaiters), chart.Ours, r.HandOver), r.HandOver, r.PingPong, "the channels"),
			bar("SET NX PX and the script to delete it", chart.Rival, r.Redis),
		},
		versus: []chart.Ratio{against("own key, time of a lock vs. SET NX PX and EVALSHA", perRound(r.Redis, r.Lock))},
		title:  fmt.Sprintf("OWN: the only node of a cluster, keys of its own; %d blocks, by turns", s.blocks),
		table: [][]string{
			append([]string{"nanoseconds", "median", "(min..max)", "ratio", "(min..max)"}, usedHead...),
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
		notes: []string{
			pinned,
			"ratio: to the mutex's pair, and of hand-overs to the ping-pong, in each block; median of the blocks",
			"CPU (nanoseconds), allocations, commands and bytes to Redis: of the whole process, renewal and gossip included, per operation; the times of",
			"less than a microsecond are means of a block, which have no p99: latency measures 100 at a time",
			"a ping-pong is two wake-ups, a hand-over one: at 0.5 a hand-over costs what the scheduler takes for it",
			fmt.Sprintf("GOMAXPROCS is %d, but where it says one; the clock is read in %s ns", r.Procs, number(median(r.Clock))),
			fmt.Sprintf("locks by path: own %s, others %s; meanwhile the node sent %s commands in %s round trips to Redis, in %v",
				figures.Thousands(r.Own), figures.Thousands(r.Other), figures.Thousands(r.Commands), figures.Thousands(r.Trips), r.Took.Round(time.Millisecond)),
		},
		claims: []claim{
			atMost(ownMutex, times(r.Lock, r.Mutex), "Lock and Unlock, times a pair of sync.Mutex's"),
			atMost(ownAllocs, median(r.Allocs), "allocations per Lock and Unlock"),
			atLeast(ownRedis, times(r.Redis, r.Lock), "SET NX PX and EVALSHA, times Lock and Unlock"),
			atMost(ownHandOver, times(r.HandOver, r.PingPong), fmt.Sprintf("hand-over among %d, times a ping-pong of two by channels", ownWaiters)),
			atMost(ownHandOver, times(r.HandOver1, r.PingPong1), "the same with one processor"),
			atMost(0, float64(r.Other), "locks that were not from memory"),
		},
	}
}
