package subjects

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/internal/figures"
	"github.com/holdfast-go/holdfast/internal/reexec"
)

// growthSizes: what a lock costs while there is more and more of something: keys, goroutines,
// processes, locks per second.
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

// What must hold. That a cost is flat cannot mean that it does not rise: a million of anything do
// not fit into a cache, and a thousand goroutines' stacks do not either, so everything rises that
// looks one of them up. It means that a lock rises no more than the least that could be done
// instead with as many of the same things: the floor, measured in the same blocks. What is judged
// is the rise of the lock, from the smallest number to the greatest, in times of the rise of the
// floor.
const (
	// Keys: a map of mutexes. Each of its locks may miss a cache for the key, for the table and for
	// the mutex. Ours may miss twice as often: it has an entry, made when a key is used after 5 ms
	// without use, and forgets it again; the map forgets nothing. What grew with the number, as a list
	// or a scan would, would be a thousand times above that.
	growthKeysRise = 2
	growthHeldRise = 2    // the same while so many others are locked
	growthTurnRise = 1.5  // goroutines: a token in a channel, which wakes as many of them
	growthRowsRise = 1.25 // rows at the arbiter: SET NX PX, on the same server
	growthRival    = 1.0  // sections per second of most processes, times those of the rival, at least
)

// growthRivalName is the variant that Holdfast is compared with where processes share work.
const growthRivalName = "redislock"

// growthTotal is all that was found.
type growthTotal struct {
	sizes           growthSizes
	keys, mutexes   curve
	held, heldFloor curve
	bytes, idle     curve
	waiters, token  curve
	rows, sets      curve
	other, lost     int64
	where, pinned   string

	shared, sharedRival  curve         // sections per second, by processes
	teams                report.Result // all figures of them
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
func measureGrowth(ctx context.Context, b *Run) (report.Result, error) {
	t := &growthTotal{
		sizes: b.Sizes.growth,
		keys:  curve{}, mutexes: curve{}, held: curve{}, heldFloor: curve{}, bytes: curve{}, idle: curve{}, waiters: curve{}, token: curve{},
		rows: curve{}, sets: curve{}, shared: curve{}, sharedRival: curve{}, once: curve{}, onceRival: curve{},
	}
	for _, part := range []func(context.Context, *Run) error{t.alone, t.atArbiter, t.together} {
		if err := part(ctx, b); err != nil {
			return report.Result{}, err
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
func (t *growthTotal) alone(ctx context.Context, b *Run) (err error) {
	s := t.sizes
	var costs []cost
	nanos := func(c curve, n int) func(*growthResult) { return func(r *growthResult) { c.add(n, r.Nanos) } }
	for _, n := range upTo(s.keys, 10) {
		costs = append(costs,
			cost{growthKeys, n, s.pairs, nanos(t.keys, n)},
			cost{growthMutexes, n, s.pairs, nanos(t.mutexes, n)},
			cost{growthHeldMutexes, n, s.pairs, nanos(t.heldFloor, n)},
			cost{growthHeld, n, s.pairs, func(r *growthResult) {
				t.held.add(n, r.Nanos)
				if n >= growthSeen {
					t.bytes.add(n, r.Held)
					t.idle.add(n, r.Idle)
				}
			}})
	}
	for _, n := range upTo(s.waiters, 4) {
		costs = append(costs,
			cost{growthWaiters, n, s.handOvers, nanos(t.waiters, n)}, cost{growthToken, n, s.handOvers, nanos(t.token, n)})
	}
	w, err := b.Start(ctx, "growth", harness.Order{Process: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Stop()) }()
	return t.all(b, w, "in memory", s.blocks, costs)
}

// atArbiter measures what the arbiter does while it has many rows, pinned as it is for a single
// caller in cold.
func (t *growthTotal) atArbiter(ctx context.Context, b *Run) (err error) {
	w, pinned, undo, err := b.StartPinned(ctx, "growth-rows")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Stop(), undo()) }()
	t.pinned = "rows: " + pinned
	var costs []cost
	for _, n := range upTo(t.sizes.rows, 10) {
		costs = append(costs, cost{growthRows, n, t.sizes.calls, func(r *growthResult) {
			t.rows.add(n, r.Nanos)
			t.sets.add(n, r.Floor)
		}})
	}
	return t.all(b, w, "rows at the arbiter", t.sizes.rowBlocks, costs)
}

// all lets a worker measure all costs in each block, in an order that changes. Block 0 does not
// count.
func (t *growthTotal) all(b *Run, w *reexec.Worker, name string, blocks int, costs []cost) error {
	for block := range blocks + 1 {
		for i := range costs {
			c := costs[(i+3*block)%len(costs)]
			b.Progress.Step(fmt.Sprintf("%s: %s, %s", name, c.what, figures.Thousands(int64(c.n))), block*len(costs)+i, (blocks+1)*len(costs))
			a, err := growthTasks.Do(w, growthTask{What: c.what, N: c.n, Runs: c.runs})
			if err != nil {
				return err
			}
			if block > 0 {
				c.to(a)
				t.lost += a.Lost
				if c.what != growthRows {
					t.other += a.Other
				}
			}
		}
	}
	return nil
}
