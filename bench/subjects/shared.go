package subjects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/figures"
	"github.com/holdfast-go/holdfast/internal/histogram"
	"github.com/holdfast-go/holdfast/internal/reexec"
)

// sharedSizes: processes x goroutines contend for one key or many, in rounds of each variant by
// turns. A critical section is two round trips to a store, which is a process of its own.
//
// Where everything runs decides much: a round trip within a core takes a sixth of one between two.
// With -place near the processes share a core with the store, and the servers have the other one:
// so shared is measured by default, as a lock shows there and not the way to the store. With -place
// free the kernel decides, as where the library is used: so zipf is measured, which has work for
// all cores. With -place apart the store is with the servers: every round trip costs the same then,
// so what locks by two round trips of its own reaches half of what one worker does without a lock,
// and nothing can be three times as fast.
type sharedSizes struct {
	processes, goroutines int
	keys                  int // more than 1: by zipf
	rounds                int
	round                 time.Duration
}

// zipfS is the parameter of the distribution.
const zipfS = 1.1

// What must hold of one key.
const (
	sharedAlone  = 0.8   // of what one goroutine without a lock does, at least
	sharedFair   = 3     // times the sections per second of the best fair rival, at least
	sharedUnfair = 2     // times those of the fastest unfair one
	sharedTrips  = 0.001 // round trips to Redis per section, at most: a look at all partitions is a command for each, in few of them
	sharedJain   = 0.95  // over the processes, at least
)

// What must hold of many keys.
const (
	zipfRatio = 2     // times the sections per second of the fastest rival, at least
	zipfTrips = 0.001 // round trips to Redis per section, at most: of renewals
)

// sharedTotal is what one variant did in all rounds.
type sharedTotal struct {
	rivals.Variant
	stats.Tally
	number    int
	alone     bool // one process, without a lock that others know: the floor
	calls     map[string]int64
	evals     int64 // scripts called in the rounds, as the server counts them
	failed    int64
	failure   string
	uncounted int64 // sections that the processes counted and the referee did not
	wrong     int64 // that the store, or the referee, counted
	stale     int64
}

func measureShared(ctx context.Context, b *Run) (report.Result, error) {
	return measureStore(ctx, b, "shared", b.Sizes.shared)
}

func measureZipf(ctx context.Context, b *Run) (report.Result, error) {
	return measureStore(ctx, b, "zipf", b.Sizes.zipf)
}

// sharedRun is what the rounds of a subject need.
type sharedRun struct {
	b        *Run
	subject  string
	sizes    sharedSizes
	ws       []*reexec.Worker
	store    string
	servers  *rivals.Servers
	file     string            // of the referees
	referees []harness.Referee // by variant; none: the store is the referee
}

func measureStore(ctx context.Context, b *Run, subject string, s sharedSizes) (_ report.Result, err error) {
	run := sharedRun{b: b, subject: subject, sizes: s}
	at := b.Places(subject)
	if b.PID != 0 && at.Servers >= 0 {
		undo, err := harness.Pin(b.PID, at.Servers)
		if err != nil {
			return report.Result{}, err
		}
		defer func() { err = errors.Join(err, undo()) }()
	}
	list, results := rivals.Chosen(subject, b.Rivals), zipfResults
	if s.keys == 1 {
		list, results = append(list, rivals.Variants[len(rivals.Variants)-1]), sharedResults
	}
	r, err := run.measure(ctx, list, at, results)
	r.Notes = append([]string{at.Note}, r.Notes...)
	return r, err
}

// measure lets all processes run all variants, each for a round, in an order that changes.
func (r *sharedRun) measure(
	ctx context.Context, list []rivals.Variant, at harness.Placement, results func(sharedSizes, []*sharedTotal) report.Result,
) (_ report.Result, err error) {
	r.servers, err = rivals.StartServers(ctx, at.Servers, list)
	if err != nil {
		return report.Result{}, err
	}
	defer func() { err = errors.Join(err, r.servers.Stop()) }()
	r.servers.Tell(r.b.Bench)
	var stop func(bool) error
	r.store, r.ws, stop, err = r.b.StartMany(ctx, r.subject, r.sizes.processes, at.Callers, at.Store)
	defer func() { err = errors.Join(err, stop(err != nil)) }()
	if err != nil {
		return report.Result{}, err
	}
	var totals []*sharedTotal
	for _, v := range list {
		if !r.servers.Has(v) {
			continue
		}
		t, err := newSharedTotal(v.Name)
		if err != nil {
			return report.Result{}, err
		}
		if v.Unsafe() {
			if t.alone = r.referees == nil; t.alone {
				t.Name = "one worker without a lock"
			}
		}
		totals = append(totals, t)
		if err := r.open(ctx, t); err != nil {
			return report.Result{}, fmt.Errorf("%s: %w", t.Name, err)
		}
	}
	if err := byTurns(ctx, r.b, r.sizes.rounds, totals, func(t *sharedTotal) string { return t.Name }, func(t *sharedTotal, round int) error {
		return r.round(ctx, t, round)
	}); err != nil {
		return report.Result{}, err
	}
	db := harness.NewStore(r.store)
	defer db.Close()
	for _, t := range totals {
		if t.wrong, t.stale, err = db.Counts(t.number); err != nil {
			return report.Result{}, err
		}
		if r.referees != nil {
			referee := &r.referees[t.number]
			t.wrong, t.stale = referee.Two.Load()+max(t.uncounted, -t.uncounted), referee.Stale.Load()
		}
	}
	out := results(r.sizes, totals)
	describeServers(&out, r.servers, list)
	return out, nil
}

func newSharedTotal(variant string) (*sharedTotal, error) {
	v, number, err := rivals.FindVariant(variant)
	t := &sharedTotal{Variant: v, number: number, calls: make(map[string]int64), alone: v.Alone}
	t.Untold = v.Unknown()
	return t, err
}

func (r *sharedRun) task(t *sharedTotal) hotTask {
	ht := hotTask{
		Variant: rivals.Variants[t.number].Name, Key: r.subject, Keys: r.sizes.keys, Goroutines: r.sizes.goroutines,
		Store: r.store, Server: r.servers.Conn(t.Variant), Referees: r.file,
	}
	if r.referees != nil {
		ht.Store = "" // an empty section
	}
	switch {
	case t.alone && t.Unsafe():
		ht.Goroutines = 1
	case t.alone:
		ht.Goroutines *= r.sizes.processes
	}
	return ht
}

// open opens the variant in all processes, and waits until a cluster has settled.
func (r *sharedRun) open(ctx context.Context, t *sharedTotal) error {
	ht := r.task(t)
	for _, w := range r.ws {
		if _, err := hotTasks.Do(w, ht); err != nil {
			return err
		}
	}
	if !t.MeasuredIn("idle", false) {
		return nil
	}
	_, err := settled(ctx, r.ws, ht)
	return err
}

// settled waits until all partitions are owned, by all processes, and returns how long that took.
func settled(ctx context.Context, ws []*reexec.Worker, open hotTask) (time.Duration, error) {
	return allOwned(ctx, func() (views []view, err error) {
		answers, err := hotTasks.All(ws, open)
		for _, a := range answers {
			views = append(views, a.view)
		}
		return views, err
	})
}

// allOwned is settled where look returns the views of the processes.
func allOwned(ctx context.Context, look func() ([]view, error)) (time.Duration, error) {
	const limit = 30 * time.Second
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		views, err := look()
		if err != nil {
			return 0, err
		}
		owned, done := 0, true
		var seen []string
		for _, a := range views {
			owned += a.Owned
			done = done && a.Nodes == len(views) && a.Owned > 0
			seen = append(seen, fmt.Sprintf("%d of %d nodes", a.Owned, a.Nodes))
		}
		switch {
		case done && owned == partitions:
			return time.Since(begin), nil
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case time.Since(begin) > limit:
			return 0, fmt.Errorf("the cluster has not settled after %v; partitions owned, and nodes seen: %s", limit, strings.Join(seen, ", "))
		}
	}
}

// partitions is the default of coord.Options.
const partitions = 1021

// round runs the variant once.
func (r *sharedRun) round(ctx context.Context, t *sharedTotal, round int) error {
	ht, ws := r.task(t), r.ws
	ht.Duration = r.sizes.round
	if t.alone {
		ws = ws[round%len(ws):][:1]
	}
	if !t.Fenced {
		// A key that a worker left locked at the end of a round must not spoil the next, nor another's.
		ht.Key = fmt.Sprintf("%s-%s-%d", r.subject, t.Name, round)
	}
	if round == 0 {
		ht.Duration = min(ht.Duration, 300*time.Millisecond)
	}
	evals, err := harness.CommandStats(ctx, r.b.Admin, "evalsha")
	if err != nil {
		return err
	}
	before, err := r.servers.CPU(ctx, r.b.Admin, t.Variant)
	if err != nil {
		return err
	}
	seen := r.counted(t)
	ht.Begin = time.Now().Add(50 * time.Millisecond)
	answers, err := hotTasks.All(ws, ht)
	if err != nil {
		return err
	}
	after, err := r.servers.CPU(ctx, r.b.Admin, t.Variant)
	if err != nil {
		return err
	}
	then, err := harness.CommandStats(ctx, r.b.Admin, "evalsha")
	if err != nil {
		return err
	}
	for _, a := range answers {
		t.uncounted += a.Sections
		t.failed += a.Failed
		t.failure = cmp.Or(t.failure, a.Failure)
		for op, n := range a.Calls {
			if round > 0 {
				t.calls[op] += n
			}
		}
	}
	t.uncounted -= r.counted(t) - seen
	if round > 0 {
		addHot(&t.Tally, answers, ht.Duration, after-before)
		t.evals += then.Since(evals).Calls
	}
	return nil
}

// counted is how many sections the variant's referee has counted. What went in and never left
// counts as two holders.
func (r *sharedRun) counted(t *sharedTotal) int64 {
	if r.referees == nil {
		return 0
	}
	referee := &r.referees[t.number]
	if referee.Inside.Swap(0) != 0 {
		referee.Two.Add(1)
	}
	return referee.Sections.Load()
}

// addHot adds a round.
func addHot(t *stats.Tally, answers []*hotResult, took, server time.Duration) {
	var parts []stats.Effort
	var waits histogram.Histogram
	for _, a := range answers {
		parts = append(parts, a.Effort)
		waits.Merge(&a.Waits)
	}
	t.Add(stats.NewRound(took, server, parts, &waits))
	t.Waits.Merge(&waits)
}

// times is how many times the sections per second of another the variant reaches, in the median of
// the rounds.
func (t *sharedTotal) times(other *sharedTotal) float64 { return t.Times(&other.Tally).Median }

// fastest returns the one of those that are chosen with the highest median rate, nil if there is
// none.
func fastest(totals []*sharedTotal, choose func(*sharedTotal) bool) (best *sharedTotal) {
	for _, t := range totals {
		if choose(t) && (best == nil || stats.Median(t.Rates) > stats.Median(best.Rates)) {
			best = t
		}
	}
	return best
}

func sharedTable(totals []*sharedTotal) (table [][]string, notes []string) {
	first := totals[0]
	table = [][]string{{"", "sections/s", "(min..max)", "ratio", "(min..max)", "commands/section", "Jain (processes)", "(worst round)",
		"p50 wait ms", "p99", "p99.9", "max", "bytes/section", "CPU s per million", "of the server", "allocations", "two holders"}}
	for _, t := range totals {
		fair, worst := stats.Number(stats.Jain(t.Parts)), stats.Number(t.Worst(stats.Jain))
		if t.alone {
			fair, worst = "-", "-"
		}
		per := func(x float64) string { return stats.Number(t.Per(x)) }
		table = append(table, slices.Concat([]string{t.Title()}, t.RateCells(&first.Tally), []string{per(float64(t.All.Commands)), fair, worst}, t.WaitCells(),
			[]string{
				per(float64(t.All.Bytes())), per(t.All.CPU.Seconds() * 1e6), per(t.Serving.Seconds() * 1e6), per(float64(t.All.Allocs)),
				stats.Number(float64(t.wrong)),
			}))
	}
	notes = describe(totals)
	return table, append(notes,
		"ratio: Holdfast's sections/s to this line's, in each round; median of the rounds",
		"commands: sent to Redis by the clients in a round and the 30 ms after it, a script being one",
		fmt.Sprintf("Holdfast's: %s commands in %s round trips for %s sections; by Stats: %s",
			figures.Thousands(first.All.Commands), figures.Thousands(first.All.Trips), figures.Thousands(first.All.Sections), listed(first.calls)),
		"bytes: both ways, on connections to servers of locks, not on those between nodes; allocations: of the processes; CPU: of the",
		"processes, the store's connections included, and of redis-server (INFO) or the rival's server (by the kernel's count of its threads)",
		"two holders: how often a section wrote over what another one had written since it read, by the store")
}

// describe says what each variant is.
func describe(totals []*sharedTotal) (notes []string) {
	for _, t := range totals {
		if t.How != "" {
			notes = append(notes, t.Title()+": "+t.How)
		}
	}
	return notes
}

func contestants(totals []*sharedTotal) (list []report.Contestant) {
	for _, t := range totals {
		list = append(list, report.Contestant{Name: t.Title(), Kind: t.Kind(), Tally: &t.Tally})
	}
	return list
}

// listed writes what is not zero.
func listed(counts map[string]int64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[name]; n != 0 {
			parts = append(parts, name+" "+figures.Thousands(n))
		}
	}
	return strings.Join(parts, ", ")
}

// safety are the claims and notes about what must hold whatever the speed.
func safety(totals []*sharedTotal, r *report.Result) {
	for _, t := range totals {
		if t.failed > 0 {
			r.Notes = append(r.Notes, fmt.Sprintf("%s: %s locks or unlocks failed; one: %s", t.Name, figures.Thousands(t.failed), t.failure))
		}
		r.Claims = append(r.Claims, report.AtMost(0, float64(t.wrong), t.Name+": times that two held the lock"))
		if t.Fenced {
			r.Claims = append(r.Claims,
				report.AtMost(0, float64(t.stale), t.Name+": tokens not above the one before"),
				report.AtMost(0, float64(t.failed), t.Name+": locks or unlocks that failed"))
		}
	}
}

func sharedResults(s sharedSizes, totals []*sharedTotal) report.Result {
	first := totals[0]
	r := report.Result{Title: fmt.Sprintf(
		"SHARED: one key, %d processes x %d goroutines, critical section of two round trips to a store; %d rounds of %v of each, by turns",
		s.processes, s.goroutines, s.rounds, s.round)}
	r.Table, r.Notes = sharedTable(totals)
	r.Contest("shared", "one key in a cluster", contestants(totals))
	alone := fastest(totals, func(t *sharedTotal) bool { return t.alone })
	unfair := fastest(totals[1:], func(t *sharedTotal) bool { return !t.alone && !t.Fair })
	r.Claims = []report.Claim{
		report.AtLeast(sharedAlone, first.times(alone), "sections per second, times those of one worker without a lock"),
		report.AtLeast(sharedUnfair, first.times(unfair), "sections per second, times those of the fastest unfair rival, "+unfair.Name),
	}
	if fair := fastest(totals[1:], func(t *sharedTotal) bool { return !t.alone && t.Fair }); fair != nil {
		r.Claims = append(r.Claims,
			report.AtLeast(sharedFair, first.times(fair), "sections per second, times those of the "+fair.Name),
			report.AtMost(1, stats.Ratio(float64(first.Waits.Quantile(0.99)), float64(fair.Waits.Quantile(0.99))), "p99 wait, times that of the "+fair.Name),
			report.AtMost(1, stats.Ratio(float64(first.Waits.Longest), float64(fair.Waits.Longest)), "longest wait, times that of the "+fair.Name))
	}
	r.Claims = append(r.Claims,
		report.AtMost(sharedTrips, first.Per(float64(first.All.Trips)), "round trips to Redis per section"),
		report.AtLeast(sharedJain, stats.Jain(first.Parts), "Jain index over the processes"))
	safety(totals, &r)
	return r
}

func zipfResults(s sharedSizes, totals []*sharedTotal) report.Result {
	first := totals[0]
	r := report.Result{Title: fmt.Sprintf(
		"ZIPF: %s keys by zipf(%v), %d processes x %d goroutines, critical section of two round trips to a store; %d rounds of %v of each, by turns",
		figures.Thousands(int64(s.keys)), zipfS, s.processes, s.goroutines, s.rounds, s.round)}
	r.Table, r.Notes = sharedTable(totals)
	r.Contest("zipf", figures.Thousands(int64(s.keys))+" keys by zipf", contestants(totals))
	rival := fastest(totals[1:], func(t *sharedTotal) bool { return !t.alone })
	times, name := math.NaN(), "rival"
	if rival != nil {
		times, name = first.times(rival), rival.Name
	}
	r.Claims = []report.Claim{
		report.AtLeast(zipfRatio, times, "sections per second, times those of the fastest rival, "+name),
		report.AtMost(zipfTrips, first.Per(float64(first.All.Trips)), "round trips to Redis per section"),
	}
	safety(totals, &r)
	return r
}
