package subjects

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// Limits for a hot key.
const (
	hotRatio    = 20   // times the sections per second of each rival, at least
	hotCommands = 0.05 // Redis commands per section, at most
	hotShare    = 0.7  // of an equal share, for every process, at least
)

// Limits for one key in a cluster.
const (
	sharedAlone  = 0.8   // of the rate of one goroutine without a lock, at least
	sharedFair   = 3     // times the sections per second of the best fair rival, at least
	sharedUnfair = 2     // times those of the fastest unfair one
	sharedTrips  = 0.001 // round trips to Redis per section, at most: a look at all partitions is a command for each, in few of them
	sharedJain   = 0.95  // over the processes, at least
)

// zipfS is the parameter of the distribution.
const zipfS = 1.1

// Limits for many keys.
const (
	zipfRatio = 2     // times the sections per second of the fastest rival, at least
	zipfTrips = 0.001 // round trips to Redis per section, at most: of renewals
)

// anywhere lets the kernel decide.
var anywhere = harness.Placement{Callers: -1, Store: -1, Servers: -1}

// measureHot has a referee in memory that the processes share, as the section is empty.
func measureHot(ctx context.Context, b *Run) (report.Result, error) {
	return measureVariants(ctx, b, b.in("hot"))
}

func measureVariants(ctx context.Context, b *Run, choose func(*way) bool) (report.Result, error) {
	c := contest{b: b, subject: "hot", job: &job{Crowd: b.Sizes.Hot}}
	if err := c.withReferees(); err != nil {
		return report.Result{}, err
	}
	c.counted = true
	return c.measure(ctx, choose, anywhere, hotResults)
}

// measureShared has critical sections of two round trips to a store, which is a process of its own.
//
// Where everything runs decides much: a round trip within a core takes a sixth of one between two.
// With -place near the processes share a core with the store, and the servers have the other one:
// so shared is measured by default, as a lock shows there and not the way to the store. With -place
// free the kernel decides, as where the library is used: so zipf is measured, which has work for
// all cores. With -place apart the store is with the servers, and every round trip costs the same.
// A lock by two round trips of its own then reaches half the rate of one worker without a lock.
// Nothing can be three times as fast then.
func measureShared(ctx context.Context, b *Run) (report.Result, error) {
	return measureStore(ctx, b, "shared", b.Sizes.Shared, sharedResults)
}

// measureZipf is measureShared of many keys.
func measureZipf(ctx context.Context, b *Run) (report.Result, error) {
	return measureStore(ctx, b, "zipf", b.Sizes.Zipf, zipfResults)
}

func measureStore(ctx context.Context, b *Run, subject string, s Crowd, results func(*contest) report.Result) (report.Result, error) {
	at := b.Places(subject)
	if err := b.PinServer(at.Servers); err != nil {
		return report.Result{}, err
	}
	c := contest{b: b, subject: subject, job: &job{Crowd: s}}
	r, err := c.measure(ctx, func(w *way) bool { return b.in(subject)(w) || w.Unsafe() && s.Keys == 1 }, at, results)
	r.Notes = append([]string{at.Note}, r.Notes...)
	return r, err
}

// measure lets all processes run all variants.
func (c *contest) measure(
	ctx context.Context, choose func(*way) bool, at harness.Placement, results func(*contest) report.Result,
) (report.Result, error) {
	numbers, list := c.chosen(choose)
	if err := c.start(ctx, c.job.Processes, at, list); err != nil {
		return report.Result{}, err
	}
	if err := c.play(ctx, numbers); err != nil {
		return report.Result{}, err
	}
	r := results(c)
	describeServers(&r, c.servers, list)
	return r, nil
}

// result is the common part of hot, shared and zipf: a line for each variant, and claims that must
// hold whatever the speed, below the claims of each.
func (c *contest) result(title, what string, columns []column, claims []report.Claim, notes ...string) report.Result {
	r := report.Result{Title: title, Table: [][]string{headOf(columns)}, Notes: append(describe(variants(c.totals)), notes...), Claims: claims}
	for _, t := range c.totals {
		r.Table = append(r.Table, t.row("", columns))
		t.noteFailed(&r, t.Name, "locks or unlocks")
		r.Claims = append(r.Claims, report.AtMost(0, float64(t.wrong), t.Name+": times that two held the lock"))
		if t.Fenced {
			r.Claims = append(r.Claims,
				report.AtMost(0, float64(t.stale), t.Name+": tokens not above the one before"),
				report.AtMost(0, float64(t.failed), t.Name+": locks or unlocks that failed"))
		}
	}
	r.Contest(c.subject, what, contestants(c.totals, (*total).Title))
	return r
}

// hotResults compares the first variant with each of the others, round by round.
func hotResults(c *contest) report.Result {
	first, s := c.totals[0], c.job
	var claims []report.Claim
	for _, t := range c.totals[1:] {
		if !t.alone {
			claims = append(claims, report.AtLeast(hotRatio, first.times(t), "sections per second, times those of "+t.Name))
		}
	}
	return c.result(fmt.Sprintf("HOT: one key, %d processes x %d goroutines, empty critical section; %d rounds of %v of each, by turns",
		s.Processes, s.Goroutines, s.Rounds, s.Round),
		"one hot key, no cluster",
		[]column{
			rates("sections/s", first), commands,
			shares("smallest share", func(t *total) string { return stats.Percent(stats.SmallestShare(t.Parts)) }),
			shares("(worst round)", func(t *total) string { return stats.Percent(t.Worst(stats.SmallestShare)) }),
			shares("Jain", jain), waits, number("two holders", two),
		},
		append(claims,
			report.AtMost(hotCommands, first.Per(float64(first.All.Commands)), "Redis commands per section"),
			report.AtLeast(hotShare, stats.SmallestShare(first.Parts), "smallest process's part of an equal share")),
		"ratio: Holdfast's sections/s to this line's, in each round; median of the rounds",
		"commands: sent by the clients in a round and the 30 ms after it, a script being one. Scripts called at the server,",
		"by its own count, per such command of Holdfast: "+stats.Number(stats.Ratio(float64(first.evals), float64(first.All.Commands))),
		"two holders: how often somebody came in while somebody was in, or a section was not counted, by memory that all share")
}

// inStore is result where sections are round trips to a store.
func (c *contest) inStore(title, what string, claims []report.Claim) report.Result {
	first := c.totals[0]
	return c.result(title, what,
		[]column{
			rates("sections/s", first), commands, shares("Jain (processes)", jain),
			shares("(worst round)", func(t *total) string { return stats.Number(t.Worst(stats.Jain)) }), waits,
			per("bytes/section", func(t *total) float64 { return float64(t.All.Bytes()) }),
			per("CPU s per million", func(t *total) float64 { return t.All.CPU.Seconds() * 1e6 }),
			per("of the server", func(t *total) float64 { return t.Serving.Seconds() * 1e6 }),
			per("allocations", func(t *total) float64 { return float64(t.All.Allocs) }),
			number("two holders", two),
		},
		claims,
		"ratio: Holdfast's sections/s to this line's, in each round; median of the rounds",
		"commands: sent to Redis by the clients in a round and the 30 ms after it, a script being one",
		fmt.Sprintf("Holdfast's: %s commands in %s round trips for %s sections; by Stats: %s",
			figures.Thousands(first.All.Commands), figures.Thousands(first.All.Trips), figures.Thousands(first.All.Sections), listed(first.calls)),
		"bytes: both ways, on connections to servers of locks, not on those between nodes; allocations: of the processes; CPU: of the",
		"processes, the store's connections included, and of redis-server (INFO) or the rival's server (by the kernel's count of its threads)",
		"two holders: how often a section wrote over what another one had written since it read, by the store")
}

func sharedResults(c *contest) report.Result {
	first, others, s := c.totals[0], c.totals[1:], c.job
	alone := fastest(c.totals, func(t *total) bool { return t.alone })
	unfair := fastest(others, func(t *total) bool { return !t.alone && !t.Fair })
	claims := []report.Claim{
		report.AtLeast(sharedAlone, first.times(alone), "sections per second, times those of one worker without a lock"),
		report.AtLeast(sharedUnfair, first.times(unfair), "sections per second, times those of the fastest unfair rival, "+unfair.Name),
	}
	if fair := fastest(others, func(t *total) bool { return !t.alone && t.Fair }); fair != nil {
		claims = append(claims,
			report.AtLeast(sharedFair, first.times(fair), "sections per second, times those of the "+fair.Name),
			report.AtMost(1, stats.Ratio(float64(first.Waits.Quantile(0.99)), float64(fair.Waits.Quantile(0.99))), "p99 wait, times that of the "+fair.Name),
			report.AtMost(1, stats.Ratio(float64(first.Waits.Longest), float64(fair.Waits.Longest)), "longest wait, times that of the "+fair.Name))
	}
	return c.inStore(fmt.Sprintf(
		"SHARED: one key, %d processes x %d goroutines, critical section of two round trips to a store; %d rounds of %v of each, by turns",
		s.Processes, s.Goroutines, s.Rounds, s.Round), "one key in a cluster", append(claims,
		report.AtMost(sharedTrips, first.Per(float64(first.All.Trips)), "round trips to Redis per section"),
		report.AtLeast(sharedJain, stats.Jain(first.Parts), "Jain index over the processes")))
}

func zipfResults(c *contest) report.Result {
	first, s := c.totals[0], c.job
	times, name := math.NaN(), "rival"
	if rival := fastest(c.totals[1:], func(t *total) bool { return !t.alone }); rival != nil {
		times, name = first.times(rival), rival.Name
	}
	keys := figures.Thousands(int64(s.Keys))
	return c.inStore(fmt.Sprintf(
		"ZIPF: %s keys by zipf(%v), %d processes x %d goroutines, critical section of two round trips to a store; %d rounds of %v of each, by turns",
		keys, zipfS, s.Processes, s.Goroutines, s.Rounds, s.Round), keys+" keys by zipf", []report.Claim{
		report.AtLeast(zipfRatio, times, "sections per second, times those of the fastest rival, "+name),
		report.AtMost(zipfTrips, first.Per(float64(first.All.Trips)), "round trips to Redis per section"),
	})
}

// idleSizes: processes of a cluster that lock nothing, for some renewal periods.
type idleSizes struct {
	processes int
	periods   int
}

const (
	idleTrips  = 2                       // round trips to Redis per node and renewal period, at most
	idlePeriod = 2500 * time.Millisecond // RenewEvery, by default
)

// measureIdle counts the requests of an idle cluster to Redis.
func measureIdle(ctx context.Context, b *Run) (report.Result, error) {
	s := b.Sizes.idle
	c := contest{b: b, subject: "idle"}
	if err := c.start(ctx, s.processes, anywhere, nil); err != nil {
		return report.Result{}, err
	}
	task, took, err := c.cluster(ctx, 0)
	if err != nil {
		return report.Result{}, err
	}
	select {
	case <-time.After(idlePeriod): // for the remaining work of settling
	case <-ctx.Done():
		return report.Result{}, ctx.Err()
	}
	b.Progress.Step(fmt.Sprintf("watched for %d periods", s.periods), 0, 0)
	task.Begin, task.Duration = time.Now(), time.Duration(s.periods)*idlePeriod
	before, err := harness.ServerCPU(ctx, b.Admin)
	if err != nil {
		return report.Result{}, err
	}
	answers, err := roundTasks.All(c.ws, task)
	if err != nil {
		return report.Result{}, err
	}
	server, err := harness.ServerCPU(ctx, b.Admin)
	if err != nil {
		return report.Result{}, err
	}
	ofCore := func(d time.Duration) string { return stats.Number(100*d.Seconds()/task.Duration.Seconds()) + " %" }
	r := report.Result{
		Title: fmt.Sprintf("IDLE: a cluster of %d processes that lock nothing, %s partitions, %d renewal periods of %v",
			s.processes, figures.Thousands(partitions), s.periods, idlePeriod),
		Table: [][]string{{"node", "partitions", "round trips per period", "commands per period", "bytes per period", "allocations per period", "CPU, of one core"}},
	}
	var trips []float64
	owned := 0
	calls := make(map[string]int64)
	for i, a := range answers {
		per := func(n float64) float64 { return n / float64(s.periods) }
		trips = append(trips, per(float64(a.Trips)))
		owned += a.Owned
		for op, n := range a.Calls {
			calls[op] += n
		}
		row := []string{}
		for _, x := range []float64{
			float64(i + 1), float64(a.Owned), trips[i], per(float64(a.Commands)), per(float64(a.Bytes())), per(float64(a.Allocs)),
		} {
			row = append(row, stats.Number(x))
		}
		r.Table = append(r.Table, append(row, ofCore(a.CPU)))
	}
	r.Notes = []string{
		fmt.Sprintf("settled, with all partitions owned, %.1f s after the last one had joined", took.Seconds()),
		"round trips: a pipeline is one; what a subscription sends is not seen; bytes: both ways, on connections to Redis, not on those between nodes",
		fmt.Sprintf("redis-server meanwhile: %s of one core, %s processes in all", ofCore(server-before), stats.Number(float64(s.processes))),
		"of all nodes, by Stats: " + listed(calls),
	}
	r.Claims = []report.Claim{
		// A window of n periods has n or n+1 renewals of a node.
		report.AtMost(idleTrips, stats.Sum(trips)*float64(s.periods)/float64(max(calls["renew"], 1)), "round trips to Redis per renewal, itself and a read, on average"),
		report.AtMost(idleTrips+1/float64(s.periods), slices.Max(trips), "the same of the node with the most, give or take one"),
		report.AtLeast(partitions, float64(owned), "partitions owned"),
		report.AtMost(partitions, float64(owned), "the same: none twice"),
	}
	return r, nil
}
