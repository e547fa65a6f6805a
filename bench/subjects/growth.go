package subjects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// growthSizes: what a lock costs while there is more and more of something: keys, goroutines,
// processes, locks per second.
type growthSizes struct {
	Blocks    int // each measures every cost once, in an order that changes
	Keys      int // at most, of an owner; powers of 10
	Pairs     int // of Lock and Unlock, of each cost in a block
	Waiters   int // at most; powers of 4
	HandOvers int
	Rows      int // at most, at the arbiter; powers of 10
	Calls     int // of the arbiter
	RowBlocks int

	Processes  int // at most; powers of 2
	Goroutines int // of all processes
	Rounds     int
	Round      time.Duration
	Window     time.Duration // for which commands are counted
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
	// without use, and forgets it again; the map forgets nothing. What grew with the number, as a
	// list or a scan would, would be a thousand times above that.
	growthKeysRise = 2
	growthHeldRise = 2    // the same while so many others are locked
	growthTurnRise = 1.5  // goroutines: a token in a channel, which wakes as many of them
	growthRowsRise = 1.25 // rows at the arbiter: SET NX PX, on the same server
	growthRival    = 1.0  // sections per second of most processes, times those of the rival, at least
)

// growthRivalName is the variant that Holdfast is compared with where processes share work.
const growthRivalName = "redislock"

// The names of the curves.
const (
	growthKeys        = "keys"         // a pair of Lock and Unlock, of so many keys of its own in random order
	growthMutexes     = "mutexes"      // the same of a map of mutexes
	growthHeld        = "held"         // a pair while so many other keys of its own are held
	growthHeldMutexes = "held mutexes" // the same of a map of mutexes, so many others of which are locked
	growthBytes       = "bytes"        // per key held
	growthIdle        = "idle"         // the same after Unlock
	growthWaiters     = "waiters"      // a hand-over among so many goroutines
	growthToken       = "token"        // the same of a token in a channel
	growthRows        = "rows"         // a Lock at the arbiter, without a cluster, while so many others are held there
	growthSets        = "sets"         // SET NX PX meanwhile
	growthShared      = "shared"       // sections per second, by processes
	growthSharedRival = "shared, rival"
	growthOnce        = "once"
	growthOnceRival   = "once, rival"
)

// growthCurves are the rows of the table, in which what a curve is beside is below it.
var growthCurves = []struct{ name, row string }{
	{growthKeys, "keys, ns"},
	{growthMutexes, "  a map of mutexes, ns"},
	{growthHeld, "held, ns"},
	{growthHeldMutexes, "  a map of mutexes, so many locked, ns"},
	{growthBytes, "  bytes per key held"},
	{growthIdle, "  bytes per key after Unlock"},
	{growthWaiters, "goroutines, ns"},
	{growthToken, "  a token in a channel, ns"},
	{growthRows, "rows, ns"},
	{growthSets, "  SET NX PX, ns"},
	{growthShared, "processes, shared keys, sections/s"},
	{growthSharedRival, "  " + growthRivalName},
	{growthOnce, "processes, keys used once, sections/s"},
	{growthOnceRival, "  " + growthRivalName},
}

// heldOthers are the keys that are locked and unlocked while others are held.
const heldOthers = 1000

// growthSeen is how many keys it takes to see in the heap what one takes.
const growthSeen = 1000

// keptKeys is how many keys an owner keeps for each of its partitions.
const keptKeys = 6

var (
	growthTasks     = newLanes("growth", openGrowth)
	growthRowsTasks = newLanes("growth-rows", openGrowthRows)
)

// grown is a lane of one number of something. Those with the same number may be a group.
func (r *laneRun) grown(what string, n, runs int, group string, run runner) *lane {
	return r.add(&lane{
		laneResult: laneResult{Name: fmt.Sprintf("%s, %s", what, figures.Thousands(int64(n))), Of: what, N: n},
		group:      group, path: coord.PathOwn, batch: runs, run: run,
	})
}

// openGrowth makes the worker the only node of a cluster, for what one process does in memory.
func openGrowth(ctx context.Context, h *harness.Host, s growthSizes, r *laneRun) error {
	c, _, err := r.onlyNode(ctx, h, heldGoroutines)
	if err != nil {
		return err
	}
	r.blocks = s.Blocks
	// The order of keys is random, so that what they need is rarely in a cache where they are many.
	keys, others, next, lost := makeKeys("growth", s.Keys), makeKeys("other", heldOthers), 0, 0
	rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	each := func(ctx context.Context, n int, list []string, use func(ctx context.Context, key string) error) (span, error) {
		runtime.GC() // a million keys are much to look at for the collector
		begin := time.Now()
		for range n {
			next++
			if err := use(ctx, list[next%len(list)]); err != nil {
				return span{}, err
			}
		}
		return span{n, time.Since(begin)}, nil
	}
	locked := func(ctx context.Context, key string) error { return pair(ctx, c, key) }
	inMap := func(all []string, held bool, list []string) runner {
		return func(ctx context.Context, _, n int) (span, error) {
			mutexes := make(map[string]*sync.Mutex)
			for _, k := range all {
				mutexes[k] = new(sync.Mutex)
				if held {
					mutexes[k].Lock()
				}
			}
			for _, k := range list {
				if mutexes[k] == nil {
					mutexes[k] = new(sync.Mutex)
				}
			}
			return each(ctx, n, list, func(_ context.Context, key string) error {
				m := mutexes[key]
				m.Lock()
				m.Unlock() //nolint:staticcheck // the pair is what is measured
				return nil
			})
		}
	}
	for _, n := range upTo(s.Keys, 10) {
		list, group := keys[:n], fmt.Sprint("held ", n)
		r.grown(growthKeys, n, s.Pairs, "", func(ctx context.Context, _, n int) (span, error) { return each(ctx, n, list, locked) })
		r.grown(growthMutexes, n, s.Pairs, "", inMap(list, false, list))
		r.grown(growthHeldMutexes, n, s.Pairs, "", inMap(list, true, others))
		var bytes, idle *lane
		heap := func() float64 { // of few keys it says nothing
			if bytes == nil {
				return 0
			}
			return float64(harness.Heap())
		}
		r.grown(growthHeld, n, s.Pairs, group, func(ctx context.Context, _, runs int) (took span, err error) {
			before, locks := heap(), make([]coord.Lock, n)
			for i, k := range list {
				if locks[i], err = c.Lock(ctx, k); err != nil {
					return took, err
				}
			}
			if took, err = each(ctx, runs, others, locked); err != nil {
				return took, err
			}
			held := heap()
			for i := range locks {
				switch err := locks[i].Unlock(); {
				case errors.Is(err, coord.ErrLost): // a machine that stands still for seconds loses them
					lost++
				case err != nil:
					return took, err
				}
			}
			err = awaitStats(ctx, c, 5*time.Millisecond, func(s coord.Stats) bool { return s.Locked == 0 && s.Kept <= keptKeys*partitions })
			if bytes != nil {
				bytes.note((held - before) / float64(n))
				idle.note((heap() - before) / float64(n))
			}
			return took, err
		})
		if n >= growthSeen {
			bytes, idle = r.grown(growthBytes, n, 1, group, nil), r.grown(growthIdle, n, 1, group, nil)
		}
	}
	for _, n := range upTo(s.Waiters, 4) {
		turns := handOver(c, "waited-for", n)
		if n == 1 { // no other one to hand over to
			turns = func(ctx context.Context, _, n int) (span, error) { return each(ctx, n, keys[:1], locked) }
		}
		r.grown(growthWaiters, n, s.HandOvers, "", turns)
		r.grown(growthToken, n, s.HandOvers, "", token(n))
	}
	// Beside it is a coordinator without a cluster, as it always was: with a smaller heap the
	// collector runs more often, and what is forgotten meanwhile is made anew.
	if _, _, err := startNode(h, heldGoroutines, &coord.Options{Namespace: h.Namespace + "-plain"}); err != nil {
		return err
	}
	r.done = func(res *lanesResult) { res.Facts["lost"] = float64(lost) }
	return nil
}

// openGrowthRows measures what the arbiter does while it has many rows.
func openGrowthRows(_ context.Context, h *harness.Host, s growthSizes, r *laneRun) error {
	c, _, err := startNode(h, heldGoroutines, &coord.Options{Namespace: h.Namespace + "-plain"})
	if err != nil {
		return err
	}
	bare, _ := bareClient(h)
	r.blocks = s.RowBlocks
	fresh := 0
	for _, n := range upTo(s.Rows, 10) {
		group := fmt.Sprint("rows ", n)
		sets := r.grown(growthSets, n, 1, group, nil)
		rows := r.grown(growthRows, n, s.Calls, group, nil)
		rows.run = func(ctx context.Context, _, runs int) (_ span, err error) {
			many := heldRun{c: c}
			if err := many.hold(ctx, "rows", n); err != nil {
				return span{}, err
			}
			defer func() { err = errors.Join(err, many.unlock(ctx)) }()
			for i := range runs {
				fresh++
				key := "fresh-" + strconv.Itoa(fresh)
				both := []func() error{
					func() error {
						begin := time.Now()
						l, err := c.Lock(ctx, key)
						if err != nil {
							return err
						}
						rows.note(float64(time.Since(begin)))
						return l.Unlock()
					},
					func() error {
						begin := time.Now()
						err := rivals.SetOnly(ctx, bare, h.Namespace+":"+key)
						sets.note(float64(time.Since(begin)))
						return errors.Join(err, bare.Del(ctx, h.Namespace+":"+key).Err())
					},
				}
				if err := errors.Join(both[i%2](), both[1-i%2]()); err != nil {
					return span{}, err
				}
			}
			return span{}, nil
		}
	}
	return nil
}

// growthTotal is all that was found.
type growthTotal struct {
	sizes         growthSizes
	curves        map[string]curve
	other, lost   float64
	where, pinned string

	teams                report.Result // all figures of them
	wrong, stale, failed int64
	failure              string
	rate, rateRival      []traffic
	overKeys             []traffic
}

// traffic is what was asked of Redis at some rate of locks.
type traffic struct {
	name     string  // of the row
	locks    float64 // per second
	commands float64 // per second
	trips    float64 // per process and renewal period
}

// add adds a value to a curve.
func (t *growthTotal) add(name string, at int, values ...float64) {
	if t.curves[name] == nil {
		t.curves[name] = make(curve)
	}
	t.curves[name][at] = append(t.curves[name][at], values...)
}

// measureGrowth takes about four minutes.
func measureGrowth(ctx context.Context, b *Run) (report.Result, error) {
	t := &growthTotal{sizes: b.Sizes.growth, curves: make(map[string]curve)}
	found, err := harness.Alone(ctx, b.Bench, "growth", growthTasks, t.sizes)
	if err != nil {
		return report.Result{}, err
	}
	t.other, t.lost = float64(found.By["other"]), found.Facts["lost"]
	if err := b.Part(func() error { // the arbiter is pinned as it is for a single caller in cold
		ws, pinned, err := b.StartPinned(ctx, "growth-rows")
		if err != nil {
			return err
		}
		rows, err := growthRowsTasks.Do(ws[0], t.sizes)
		if err != nil {
			return err
		}
		t.pinned, found.Lanes = "rows: "+pinned, append(found.Lanes, rows.Lanes...)
		return nil
	}); err != nil {
		return report.Result{}, err
	}
	for _, l := range found.Lanes {
		t.add(l.Of, l.N, l.P50...)
	}
	if err := t.together(ctx, b); err != nil {
		return report.Result{}, err
	}
	return t.result(), nil
}

func (t *growthTotal) result() report.Result {
	s := t.sizes
	r := report.Result{
		Title: fmt.Sprintf("GROWTH: what a lock costs over 1 to %s keys, 1 to %s goroutines, 1 to %d processes, and any rate; %d and %d rounds, by turns",
			figures.Thousands(int64(s.Keys)), figures.Thousands(int64(s.Waiters)), s.Processes, s.Blocks, s.Rounds),
		Table:    [][]string{{"", "of", "median", "(min..max)", "to the first"}},
		Measured: t.teams.Measured,
		Notes: []string{
			"keys: nanoseconds of a pair of Lock and Unlock of a node's own keys, in random order; its floor: of a map of mutexes, which never forgets a key",
			"held: the same of 1,000 other keys, while so many are held; bytes: of heap per key held, the caller's Lock included, and after Unlock",
			"goroutines: nanoseconds of a hand-over among so many (of 1: of a pair, as there is nobody to hand over to); its floor: of a token in a channel",
			"rows: nanoseconds of a Lock at Redis, without a cluster, while so many locks are held there; its floor: of SET NX PX meanwhile",
			"rise: what the greatest number costs in times of what the smallest does. No floor is flat, as caches are small, so the rise of",
			"a lock is judged in times of that of its floor, block by block: 1 is as flat as the machine allows",
			"processes: sections per second of " + stats.Number(float64(s.Goroutines)) + " goroutines in all; shared: 1,000 keys by zipf, two round trips to a store in a section;",
			"once: an empty section, and each key is used once, by one of the processes: nothing is there to be kept",
			t.pinned, t.where,
		},
	}
	for _, c := range growthCurves {
		r.Table = append(r.Table, t.curves[c.name].rows(c.row)...)
	}
	r.Table = append(r.Table, []string{fmt.Sprintf("%d processes", s.Processes), "locks/s", "commands/s", "", "round trips per process and period"})
	for _, x := range slices.Concat(t.rate, t.rateRival, t.overKeys) {
		r.Table = append(r.Table, []string{x.name, stats.Number(x.locks), stats.Number(x.commands), "", stats.Number(x.trips)})
	}
	if t.failed > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%s locks failed; one: %s", figures.Thousands(t.failed), t.failure))
	}
	r.Claims = t.claims()
	return r
}

// most is a curve in times of another one, where processes are most.
func (t *growthTotal) most(name, rival string) []float64 {
	return stats.PerRound(t.curves[name][t.sizes.Processes], t.curves[rival][t.sizes.Processes])
}

func (t *growthTotal) claims() []report.Claim {
	rise := func(limit float64, name, floorName, what, floorWhat string) report.Claim {
		c, floor := t.curves[name], t.curves[floorName]
		a, b := c.at()[0], c.last()
		ours, theirs := c.times(b, a), floor.times(b, a)
		return report.AtMost(limit, stats.Median(stats.PerRound(ours, theirs)), fmt.Sprintf("%s: rise from %s to %s (%s times), in times of that of %s (%s times)",
			what, figures.Thousands(int64(a)), figures.Thousands(int64(b)), stats.Number(stats.Median(ours)), floorWhat, stats.Number(stats.Median(theirs))))
	}
	worst := func(list []traffic) (trips, apart float64) {
		least := math.Inf(1)
		for _, x := range list {
			trips, least = max(trips, x.trips), min(least, x.trips)
		}
		return trips, trips - least
	}
	rateTrips, rateApart := worst(t.rate)
	keysTrips, keysApart := worst(t.overKeys)
	// A renewal falls into the window of a process or does not, and so does a look for rows of dead
	// sessions, which comes with each twelfth one. Each asks Redis twice.
	more := 2 * idleTrips * idlePeriod.Seconds() / t.sizes.Window.Seconds()
	fastest := slices.MaxFunc(t.rate, func(a, b traffic) int { return cmp.Compare(a.locks, b.locks) })
	bytes, idle := t.curves[growthBytes], t.curves[growthIdle]
	return []report.Claim{
		rise(growthKeysRise, growthKeys, growthMutexes, "an owner's pair, keys", "a map of mutexes"),
		rise(growthHeldRise, growthHeld, growthHeldMutexes, "an owner's pair, keys held meanwhile", "a map of mutexes"),
		rise(growthTurnRise, growthWaiters, growthToken, "hand-over, goroutines", "a token in a channel"),
		rise(growthRowsRise, growthRows, growthSets, "Lock at Redis, locks held there", "SET NX PX"),
		report.AtMost(idleTrips+more, rateTrips, fmt.Sprintf("round trips to Redis per process and renewal period at any rate, up to %s locks/s", stats.Number(fastest.locks))),
		report.AtMost(more, rateApart, "the same: the most at any rate less the least at any; a renewal and a look for dead holders fall into the time or do not"),
		report.AtMost(idleTrips+more, keysTrips, fmt.Sprintf("round trips to Redis per process and renewal period over 1 to %s keys", figures.Thousands(int64(t.sizes.Keys)))),
		report.AtMost(more, keysApart, "the same: the most over any number of keys less the least"),
		report.AtMost(heldBytes, stats.Median(bytes[bytes.last()]), "bytes per key held"),
		report.AtMost(heldLeft*heldBytes, math.Abs(stats.Median(idle[idle.last()])), "bytes per key after Unlock"),
		report.AtLeast(growthRival, stats.Median(t.most(growthShared, growthSharedRival)),
			fmt.Sprintf("sections per second of %d processes on shared keys, times those of %s", t.sizes.Processes, growthRivalName)),
		report.AtMost(0, float64(t.wrong), "times that two held a lock"),
		report.AtMost(0, float64(t.stale), "tokens not above the one before"),
		report.AtMost(0, float64(t.failed), "locks that failed"),
		report.AtMost(0, t.lost, "locks lost while they were held"),
		report.AtMost(0, t.other, "locks of an owner that were not from memory"),
	}
}

// curve is what was measured, in rounds, at some values of what it depends on.
type curve map[int][]float64

// at returns the values in their order.
func (c curve) at() []int { return slices.Sorted(maps.Keys(c)) }

// times is what was measured at one value, in times of that at another, in each round.
func (c curve) times(at, other int) []float64 { return stats.PerRound(c[at], c[other]) }

// last is the greatest value.
func (c curve) last() int { return slices.Max(c.at()) }

// rows are lines of a table: name, at which value, median, spread, and in times of the first.
func (c curve) rows(name string) (rows [][]string) {
	at := c.at()
	for _, x := range at {
		rows = append(rows, slices.Concat([]string{name, figures.Thousands(int64(x))}, stats.SpreadOf(c[x]).Cells(),
			[]string{stats.Number(stats.Median(c.times(x, at[0])))}))
		name = ""
	}
	return rows
}

// upTo returns 1, base, base squared and so on, and most.
func upTo(most, base int) (list []int) {
	for n := 1; n < most; n *= base {
		list = append(list, n)
	}
	return append(list, most)
}
