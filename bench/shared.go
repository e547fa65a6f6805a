package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/figures"
)

// sharedSizes: processes x goroutines contend for one key or many, in rounds of each variant by turns. A critical section
// is two round trips to a store, which is a process of its own.
//
// Where everything runs decides much: a round trip within a core takes a sixth of one between two. With -place near the
// processes share a core with the store, and the servers have the other one: so shared is measured by default, as a lock
// shows there and not the way to the store. With -place free the kernel decides, as where the library is used: so zipf is
// measured, which has work for all cores. With -place apart the store is with the servers: every round trip costs the
// same then, so what locks by two round trips of its own reaches half of what one worker does without a lock, and nothing
// can be three times as fast.
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
	sharedAlone    = 0.8   // of what one goroutine without a lock does, at least
	sharedFair     = 3     // times the sections per second of the best fair rival, at least
	sharedUnfair   = 2     // times those of the fastest unfair one
	sharedCommands = 0.001 // Redis commands per section, at most
	sharedJain     = 0.95  // over the processes, at least
)

// What must hold of many keys.
const (
	zipfRatio    = 2     // times the sections per second of the fastest rival, at least
	zipfCommands = 0.001 // Redis commands per section, at most: of renewals
)

// sharedTotal is what one variant did in all rounds.
type sharedTotal struct {
	variant
	tally
	number  int
	alone   bool    // one process, without a lock that others know: the floor
	jain    float64 // the least of all rounds
	calls   map[string]int64
	failed  int64
	failure string
	wrong   int64 // that the store counted
	stale   int64
}

func measureShared(ctx context.Context, b *bench) (result, error) {
	return measureStore(ctx, b, "shared", b.sizes.shared)
}

func measureZipf(ctx context.Context, b *bench) (result, error) {
	return measureStore(ctx, b, "zipf", b.sizes.zipf)
}

// sharedRun is what the rounds of a subject need.
type sharedRun struct {
	b       *bench
	subject string
	sizes   sharedSizes
	ws      []*worker
	store   string
	servers *servers
}

func measureStore(ctx context.Context, b *bench, subject string, s sharedSizes) (_ result, err error) {
	run := sharedRun{b: b, subject: subject, sizes: s}
	at := b.places(subject)
	if b.pid != 0 && at.servers >= 0 {
		undo, err := pin(b.pid, at.servers)
		if err != nil {
			return result{}, err
		}
		defer func() { err = errors.Join(err, undo()) }()
	}
	list := b.chosen(subject)
	run.servers, err = startServers(ctx, at.servers, list)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, run.servers.stop()) }()
	b.use(run.servers)
	var totals []*sharedTotal
	for i, v := range variants {
		t := newSharedTotal(v, i)
		if v.unsafe() {
			t.name = "one worker without a lock"
		}
		if v.measuredIn(subject, b.rivals) && run.servers.has(v) || v.unsafe() && s.keys == 1 {
			totals = append(totals, t)
		}
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keeper, ws, stop, err := b.startMany(ctx, subject, s.processes, at.callers, at.store)
	defer func() {
		if err != nil {
			cancel()
		}
		err = errors.Join(err, stop())
	}()
	if err != nil {
		return result{}, err
	}
	run.ws, run.store = ws, keeper
	for _, t := range totals {
		if err := run.open(ctx, t); err != nil {
			return result{}, fmt.Errorf("%s: %w", t.name, err)
		}
	}
	// Round 0 is not counted: connections are made in it, and scripts loaded.
	for round := range s.rounds + 1 {
		for i := range totals {
			t := totals[(i+round)%len(totals)]
			b.progress.step(t.name, round*len(totals)+i, (s.rounds+1)*len(totals))
			b.settle(ctx)
			if err := run.round(ctx, t, round); err != nil {
				return result{}, fmt.Errorf("%s: %w", t.name, err)
			}
		}
	}
	db := newStore(run.store)
	defer db.close()
	for _, t := range totals {
		if t.wrong, t.stale, err = db.counts(t.number); err != nil {
			return result{}, err
		}
	}
	results := sharedResults
	if s.keys > 1 {
		results = zipfResults
	}
	r := results(s, totals)
	run.servers.describe(&r, list)
	r.notes = append([]string{at.note}, r.notes...)
	return r, nil
}

// startMany starts n workers on a core, and another one on another core as the store, and returns the address of that. stop must
// be called in any case.
func (b *bench) startMany(ctx context.Context, subject string, n, mine, its int) (store string, ws []*worker, stop func() error, err error) {
	var all []*worker
	stop = func() error {
		errs := make(chan error, len(all))
		for _, w := range all { // all at the same time: a node that is left alone has much to take over
			go func() { errs <- w.stop() }()
		}
		var err error
		for range all {
			err = errors.Join(err, <-errs)
		}
		return err
	}
	for i := range n + 1 {
		core := mine
		if i == n {
			core = its
		}
		if err := placed(core, func() error {
			w, err := b.start(ctx, subject, order{Process: i + 1})
			all = append(all, w)
			return err
		}); err != nil {
			all = all[:i]
			return "", nil, stop, err
		}
	}
	a, err := all[n].do(task{Store: true})
	return a.Store, all[:n], stop, err
}

func newSharedTotal(v variant, number int) *sharedTotal {
	t := &sharedTotal{variant: v, number: number, jain: 1, calls: make(map[string]int64), alone: v.alone}
	t.untold = v.unknown()
	return t
}

func (r *sharedRun) task(t *sharedTotal) hotTask {
	goroutines := r.sizes.goroutines
	switch {
	case t.unsafe():
		goroutines = 1
	case t.alone:
		goroutines *= r.sizes.processes
	}
	return hotTask{
		Variant: variants[t.number].name, Key: r.subject, Keys: r.sizes.keys, Goroutines: goroutines,
		Store: r.store, Server: r.servers.conn(t.variant),
	}
}

// open opens the variant in all processes, and waits until a cluster has settled.
func (r *sharedRun) open(ctx context.Context, t *sharedTotal) error {
	ht := r.task(t)
	for _, w := range r.ws {
		if _, err := w.do(task{Hot: &ht}); err != nil {
			return err
		}
	}
	if !t.measuredIn("idle", false) {
		return nil
	}
	_, err := settled(ctx, r.ws, ht)
	return err
}

// settled waits until all partitions are owned, by all processes, and returns how long that took.
func settled(ctx context.Context, ws []*worker, open hotTask) (time.Duration, error) {
	const limit = 30 * time.Second
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		answers, err := doAll(ws, task{Hot: &open})
		if err != nil {
			return 0, err
		}
		owned, done := 0, true
		var seen []string
		for _, a := range answers {
			owned += a.Hot.Owned
			done = done && a.Hot.Nodes == len(ws) && a.Hot.Owned > 0
			seen = append(seen, fmt.Sprintf("%d of %d nodes", a.Hot.Owned, a.Hot.Nodes))
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
	if !t.fenced {
		// A key that a worker left locked at the end of a round must not spoil the next, nor another's.
		ht.Key = fmt.Sprintf("%s-%s-%d", r.subject, t.name, round)
	}
	if round == 0 {
		ht.Duration = min(ht.Duration, 300*time.Millisecond)
	}
	before, err := r.serverCPU(ctx, t.variant)
	if err != nil {
		return err
	}
	ht.Begin = time.Now().Add(50 * time.Millisecond)
	answers, err := doAll(ws, task{Hot: &ht})
	if err != nil {
		return err
	}
	after, err := r.serverCPU(ctx, t.variant)
	if err != nil {
		return err
	}
	for _, a := range answers {
		t.failed += a.Hot.Failed
		if t.failure == "" {
			t.failure = a.Hot.Failure
		}
		for op, n := range a.Hot.Calls {
			if round > 0 {
				t.calls[op] += n
			}
		}
	}
	if round > 0 {
		t.jain = min(t.jain, jain(t.addHot(answers, ht.Duration, after-before)))
	}
	return nil
}

// addHot adds a round, and returns what each process did.
func (t *tally) addHot(answers []answer, took, server time.Duration) []int64 {
	var parts []effort
	var waits histogram
	for _, a := range answers {
		parts = append(parts, a.Hot.effort)
		waits.merge(a.Hot.Waits)
	}
	r := newRound(took, server, parts, &waits)
	t.add(r)
	t.waits.merge(waits)
	return r.parts
}

// serverCPU is that of one of the rounds.
func (r *sharedRun) serverCPU(ctx context.Context, v variant) (time.Duration, error) {
	return r.b.serverCPU(ctx, r.servers, v)
}

// serverCPU is what the servers that the variant uses have used so far.
func (b *bench) serverCPU(ctx context.Context, s *servers, v variant) (time.Duration, error) {
	if v.server != nil {
		return processCPU(s.of(v.server).pids()), nil
	}
	return serverCPU(ctx, b.admin)
}

func (t *sharedTotal) perSection() float64 { return t.per(float64(t.all.Commands)) }

// times is how many times the sections per second of another the variant reaches, in the median of the rounds.
func (t *sharedTotal) times(other *sharedTotal) float64 {
	return median(perRound(t.rates, other.rates))
}

// fastest returns the one of those that are chosen with the highest median rate, nil if there is none.
func fastest(totals []*sharedTotal, choose func(*sharedTotal) bool) (best *sharedTotal) {
	for _, t := range totals {
		if choose(t) && (best == nil || median(t.rates) > median(best.rates)) {
			best = t
		}
	}
	return best
}

func sharedTable(totals []*sharedTotal) (table [][]string, notes []string) {
	first := totals[0]
	table = [][]string{{"", "sections/s", "(min..max)", "ratio", "(min..max)", "commands/section", "Jain (processes)", "(worst round)",
		"p50 wait ms", "p99", "p99.9", "max", "bytes/section", "CPU s per million", "of the server", "allocations", "two holders"}}
	var list []variant
	for _, t := range totals {
		list = append(list, t.variant)
		rate, times := spreadOf(t.rates), spreadOf(perRound(first.rates, t.rates))
		fair, worst := number(jain(t.parts)), number(t.jain)
		if t.alone {
			fair, worst = "-", "-"
		}
		table = append(table, []string{
			t.title(), number(rate.median), number(rate.least) + ".." + number(rate.most),
			number(times.median), number(times.least) + ".." + number(times.most),
			number(t.perSection()), fair, worst,
			millis(t.waits.quantile(0.5)), millis(t.waits.quantile(0.99)), millis(t.waits.quantile(0.999)), millis(t.waits.Longest),
			number(t.per(float64(t.all.Bytes))), number(t.per(t.all.CPU.Seconds() * 1e6)), number(t.per(t.serving.Seconds() * 1e6)),
			number(t.per(float64(t.all.Allocs))), number(float64(t.wrong)),
		})
	}
	for _, v := range list {
		if v.how != "" {
			notes = append(notes, v.title()+": "+v.how)
		}
	}
	return table, append(notes,
		"ratio: Holdfast's sections/s to this line's, in each round; median of the rounds",
		"commands: sent to Redis by the clients in a round and the 30 ms after it, a script being one",
		fmt.Sprintf("Holdfast's: %s commands in %s round trips for %s sections; by Stats: %s",
			figures.Thousands(first.all.Commands), figures.Thousands(first.all.Trips), figures.Thousands(first.all.Sections), listed(first.calls)),
		"bytes: both ways, on connections to servers of locks, not on those between nodes; allocations: of the processes; CPU: of the",
		"processes, the store's connections included, and of redis-server (INFO) or the rival's server (by the kernel's count of its threads)",
		"two holders: how often a section wrote over what another one had written since it read, by the store")
}

func contestants(totals []*sharedTotal) (list []contestant) {
	for _, t := range totals {
		list = append(list, contestant{t.title(), t.kind(), &t.tally})
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
func safety(totals []*sharedTotal, r *result) {
	for _, t := range totals {
		if t.failed > 0 {
			r.notes = append(r.notes, fmt.Sprintf("%s: %s locks or unlocks failed; one: %s", t.name, figures.Thousands(t.failed), t.failure))
		}
		r.claims = append(r.claims, atMost(0, float64(t.wrong), t.name+": times that two held the lock"))
		if t.fenced {
			r.claims = append(r.claims,
				atMost(0, float64(t.stale), t.name+": tokens not above the one before"),
				atMost(0, float64(t.failed), t.name+": locks or unlocks that failed"))
		}
	}
}

func sharedResults(s sharedSizes, totals []*sharedTotal) result {
	first := totals[0]
	r := result{title: fmt.Sprintf(
		"SHARED: one key, %d processes x %d goroutines, critical section of two round trips to a store; %d rounds of %v of each, by turns",
		s.processes, s.goroutines, s.rounds, s.round)}
	r.table, r.notes = sharedTable(totals)
	r.contest("shared", "one key in a cluster", contestants(totals))
	alone := fastest(totals, func(t *sharedTotal) bool { return t.alone })
	unfair := fastest(totals[1:], func(t *sharedTotal) bool { return !t.alone && !t.fair })
	r.claims = []claim{
		atLeast(sharedAlone, first.times(alone), "sections per second, times those of one worker without a lock"),
		atLeast(sharedUnfair, first.times(unfair), "sections per second, times those of the fastest unfair rival, "+unfair.name),
	}
	if fair := fastest(totals[1:], func(t *sharedTotal) bool { return !t.alone && t.fair }); fair != nil {
		r.claims = append(r.claims,
			atLeast(sharedFair, first.times(fair), "sections per second, times those of the "+fair.name),
			atMost(1, ratio(float64(first.waits.quantile(0.99)), float64(fair.waits.quantile(0.99))), "p99 wait, times that of the "+fair.name),
			atMost(1, ratio(float64(first.waits.Longest), float64(fair.waits.Longest)), "longest wait, times that of the "+fair.name))
	}
	r.claims = append(r.claims,
		atMost(sharedCommands, first.perSection(), "Redis commands per section"),
		atLeast(sharedJain, jain(first.parts), "Jain index over the processes"))
	safety(totals, &r)
	return r
}

func zipfResults(s sharedSizes, totals []*sharedTotal) result {
	first := totals[0]
	r := result{title: fmt.Sprintf(
		"ZIPF: %s keys by zipf(%v), %d processes x %d goroutines, critical section of two round trips to a store; %d rounds of %v of each, by turns",
		figures.Thousands(int64(s.keys)), zipfS, s.processes, s.goroutines, s.rounds, s.round)}
	r.table, r.notes = sharedTable(totals)
	r.contest("zipf", figures.Thousands(int64(s.keys))+" keys by zipf", contestants(totals))
	rival := fastest(totals[1:], func(t *sharedTotal) bool { return !t.alone })
	times, name := math.NaN(), "rival"
	if rival != nil {
		times, name = first.times(rival), rival.name
	}
	r.claims = []claim{
		atLeast(zipfRatio, times, "sections per second, times those of the fastest rival, "+name),
		atMost(zipfCommands, first.perSection(), "Redis commands per section"),
	}
	safety(totals, &r)
	return r
}
