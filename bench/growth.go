package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// growthSizes: what a lock costs while there is more and more of something: keys, goroutines, processes, locks per second.
type growthSizes struct {
	blocks    int // each measures every cost once, in an order that changes
	keys      int // at most, of an owner; powers of 10
	pairs     int // of Lock and Unlock, of each cost in a block
	waiters   int // at most; powers of 4
	handOvers int
	rows      int // at most, at the arbiter; powers of 10
	calls     int // of the arbiter
	rowBlocks int

	processes  int // at most; powers of 2
	goroutines int // of all processes
	rounds     int
	round      time.Duration
	window     time.Duration // for which commands are counted
}

// What must hold. Costs are compared within the run.
const (
	// A pair of an owner with a million keys, times that with a thousand. A thousand keys are used again within the 5 ms that
	// they stay listed, and fit into a cache; of a million each is a new entry, and a miss for the key, the table and the entry. So
	// it is not the number that costs, but that none is met again: the cost has a step, and no slope.
	growthManyKeys = 16
	growthMore     = 4    // the same, times that with 10,000, of which none is met again in time either: what caches cost
	growthHolding  = 2.0  // a pair while the most are held, times one while one is, at most: tables are larger than a cache
	growthCrowd    = 2.0  // a hand-over among the most, times one among 16, at most
	growthManyRows = 1.25 // a Lock at the arbiter with the most rows, times one with one, both in times of SET NX PX
	growthRival    = 1.0  // sections per second of most processes, times those of the rival, at least
)

// growthRivalName is the variant that Holdfast is compared with where processes share work.
const growthRivalName = "redislock"

// growthTotal is all that was found.
type growthTotal struct {
	sizes                growthSizes
	keys, mutexes        curve
	held, bytes, idle    curve
	waiters, token       curve
	rows, sets, rowTimes curve
	other, lost          int64
	where, pinned        string

	shared, sharedRival  curve // sections per second, by processes
	once, onceRival      curve
	wrong, stale, failed int64
	failure              string
	rate, rateRival      []traffic
	overKeys             []traffic
}

// traffic is what was asked of Redis at some rate of locks.
type traffic struct {
	keys     int
	locks    float64 // per second
	commands float64 // per second
	trips    float64 // per process and renewal period
}

// measureGrowth takes about four minutes.
func measureGrowth(ctx context.Context, b *bench) (result, error) {
	t := &growthTotal{
		sizes: b.sizes.growth,
		keys:  curve{}, mutexes: curve{}, held: curve{}, bytes: curve{}, idle: curve{}, waiters: curve{}, token: curve{},
		rows: curve{}, sets: curve{}, rowTimes: curve{}, shared: curve{}, sharedRival: curve{}, once: curve{}, onceRival: curve{},
	}
	for _, part := range []func(context.Context, *bench) error{t.alone, t.atArbiter, t.together} {
		if err := part(ctx, b); err != nil {
			return result{}, err
		}
	}
	return t.result(), nil
}

// cost is one of the costs that depend on a number.
type cost struct {
	what string
	n    int
	runs int
	to   func(*growthResult)
}

// alone measures what one process does in memory.
func (t *growthTotal) alone(ctx context.Context, b *bench) (err error) {
	s := t.sizes
	var costs []cost
	nanos := func(c curve, n int) func(*growthResult) { return func(r *growthResult) { c.add(n, r.Nanos) } }
	for _, n := range upTo(s.keys, 10) {
		costs = append(costs,
			cost{growthKeys, n, s.pairs, nanos(t.keys, n)},
			cost{growthMutexes, n, s.pairs, nanos(t.mutexes, n)},
			cost{growthHeld, n, s.pairs, func(r *growthResult) {
				t.held.add(n, r.Nanos)
				if n >= growthSeen {
					t.bytes.add(n, r.Held)
					t.idle.add(n, r.Idle)
				}
			}})
	}
	for _, n := range upTo(s.waiters, 4) {
		costs = append(costs, cost{growthWaiters, n, s.handOvers, nanos(t.waiters, n)})
		if n > 1 {
			costs = append(costs, cost{growthToken, n, s.handOvers, nanos(t.token, n)})
		}
	}
	w, err := b.start(ctx, "growth", order{Process: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	return t.all(b, w, "in memory", s.blocks, costs)
}

// atArbiter measures what the arbiter does while it has many rows, pinned as it is for a single caller in cold.
func (t *growthTotal) atArbiter(ctx context.Context, b *bench) (err error) {
	w, pinned, undo, err := b.startPinned(ctx, "growth-rows")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.stop(), undo()) }()
	t.pinned = "rows: " + pinned
	var costs []cost
	for _, n := range upTo(t.sizes.rows, 10) {
		costs = append(costs, cost{growthRows, n, t.sizes.calls, func(r *growthResult) {
			t.rows.add(n, r.Nanos)
			t.sets.add(n, r.Floor)
			t.rowTimes.add(n, ratio(r.Nanos, r.Floor))
		}})
	}
	return t.all(b, w, "rows at the arbiter", t.sizes.rowBlocks, costs)
}

// all lets a worker measure all costs in each block, in an order that changes. Block 0 does not count.
func (t *growthTotal) all(b *bench, w *worker, name string, blocks int, costs []cost) error {
	for block := range blocks + 1 {
		for i := range costs {
			c := costs[(i+3*block)%len(costs)]
			b.progress.step(fmt.Sprintf("%s: %s, %s", name, c.what, thousands(int64(c.n))), block*len(costs)+i, (blocks+1)*len(costs))
			a, err := w.do(task{Growth: &growthTask{What: c.what, N: c.n, Runs: c.runs}})
			if err != nil {
				return err
			}
			if block > 0 {
				c.to(a.Growth)
				t.lost += a.Growth.Lost
				if c.what != growthRows {
					t.other += a.Growth.Other
				}
			}
		}
	}
	return nil
}
