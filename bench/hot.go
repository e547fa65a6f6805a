package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/figures"
)

// hotSizes: processes x goroutines contend for one key, in rounds of each variant by turns.
type hotSizes struct {
	processes, goroutines int
	rounds                int
	round                 time.Duration
}

// What must hold of a hot key.
const (
	hotRatio    = 20   // times the sections per second of each rival, at least
	hotCommands = 0.05 // Redis commands per section, at most
	hotShare    = 0.7  // of an equal share, for every process, at least
)

// hotTotal is what one variant did in all rounds.
type hotTotal struct {
	variant
	tally
	conn      string  // how to connect to its own server
	worst     float64 // smallest share of a process in any round
	evals     int64   // scripts called in the rounds, as the server counts them
	failed    int64
	failure   string
	uncounted int64 // sections that the processes counted and the referee did not
	referee   *referee
}

// measureHot lets all processes run all variants, each for a round, in an order that changes.
func measureHot(ctx context.Context, b *bench) (result, error) {
	return measureVariants(ctx, b, b.chosen("hot"))
}

func measureVariants(ctx context.Context, b *bench, list []variant) (_ result, err error) {
	s := b.sizes.hot
	file := filepath.Join(b.dir, "referees")
	referees, unmap, err := openReferees(file, len(variants))
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, unmap()) }()
	servers, err := startServers(ctx, -1, list)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, servers.stop()) }()
	b.use(servers)
	var totals []*hotTotal
	for i, v := range variants {
		if slices.ContainsFunc(list, func(one variant) bool { return one.name == v.name }) && servers.has(v) {
			t := &hotTotal{variant: v, conn: servers.conn(v), worst: 1, referee: &referees[i]}
			t.untold = v.unknown()
			totals = append(totals, t)
		}
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var ws []*worker
	defer func() {
		for _, w := range ws {
			err = errors.Join(err, w.stop())
		}
	}()
	for i := range s.processes {
		w, err := b.start(ctx, "hot", order{Process: i + 1, Referees: file})
		if err != nil {
			cancel()
			return result{}, err
		}
		ws = append(ws, w)
	}

	// Round 0 is not counted: connections are made in it, and scripts loaded.
	for round := range s.rounds + 1 {
		for i := range totals {
			t := totals[(i+round)%len(totals)]
			b.progress.step(t.name, round*len(totals)+i, (s.rounds+1)*len(totals))
			b.settle(ctx)
			if err := t.round(ctx, b, servers, ws, round); err != nil {
				cancel()
				return result{}, fmt.Errorf("%s: %w", t.name, err)
			}
		}
	}
	r := hotResults(s, totals)
	servers.describe(&r, list)
	return r, nil
}

// round runs the variant once in all workers.
func (t *hotTotal) round(ctx context.Context, b *bench, servers *servers, ws []*worker, round int) error {
	s := b.sizes.hot
	ht := hotTask{Variant: t.name, Key: "hot", Goroutines: s.goroutines, Duration: s.round, Server: t.conn}
	if t.alone && !t.unsafe() {
		ht.Goroutines *= s.processes
		ws = ws[round%len(ws):][:1]
	}
	if !t.fenced {
		// A key that a worker left locked at the end of a round must not spoil the next, nor another's.
		ht.Key = fmt.Sprintf("hot-%s-%d", t.name, round)
	}
	if round == 0 {
		ht.Duration = min(s.round, 200*time.Millisecond)
		// One after the other, and at leisure: opening may take longer than the start of a round can wait.
		for _, w := range ws {
			if _, err := w.do(task{Hot: &hotTask{Variant: t.name, Goroutines: s.goroutines, Server: t.conn}}); err != nil {
				return err
			}
		}
	}
	before, err := commandStats(ctx, b.admin, "evalsha")
	if err != nil {
		return err
	}
	cpu, err := b.serverCPU(ctx, servers, t.variant)
	if err != nil {
		return err
	}
	seen := t.referee.sections.Load()
	ht.Begin = time.Now().Add(50 * time.Millisecond)
	answers, err := doAll(ws, task{Hot: &ht})
	if err != nil {
		return err
	}
	after, err := commandStats(ctx, b.admin, "evalsha")
	if err != nil {
		return err
	}
	then, err := b.serverCPU(ctx, servers, t.variant)
	if err != nil {
		return err
	}
	all := int64(0)
	for _, a := range answers {
		all += a.Hot.Sections
		t.failed += a.Hot.Failed
		if t.failure == "" {
			t.failure = a.Hot.Failure
		}
	}
	t.uncounted += all - (t.referee.sections.Load() - seen)
	if t.referee.inside.Swap(0) != 0 {
		t.referee.two.Add(1) // a goroutine went in and never left
	}
	if round == 0 {
		return nil
	}
	t.worst = min(t.worst, smallestShare(t.addHot(answers, ht.Duration, then-cpu)))
	t.evals += after.since(before).calls
	return nil
}

// hotResults compares the first variant with each of the others, round by round.
func hotResults(s hotSizes, totals []*hotTotal) result {
	first := totals[0]
	r := result{
		title: fmt.Sprintf("HOT: one key, %d processes x %d goroutines, empty critical section; %d rounds of %v of each, by turns",
			s.processes, s.goroutines, s.rounds, s.round),
		table: [][]string{{"", "sections/s", "(min..max)", "ratio", "(min..max)", "commands/section", "smallest share", "(worst round)",
			"Jain", "p50 wait ms", "p99", "p99.9", "max", "two holders"}},
	}
	var list []variant
	for _, t := range totals {
		list = append(list, t.variant)
		rate := spreadOf(t.rates)
		times := spreadOf(perRound(first.rates, t.rates))
		share, worst, fair := percent(smallestShare(t.parts)), percent(t.worst), number(jain(t.parts))
		if t.alone {
			share, worst, fair = "-", "-", "-"
		}
		r.table = append(r.table, []string{
			t.title(), number(rate.median), number(rate.least) + ".." + number(rate.most),
			number(times.median), number(times.least) + ".." + number(times.most),
			number(t.per(float64(t.all.Commands))), share, worst, fair,
			millis(t.waits.quantile(0.5)), millis(t.waits.quantile(0.99)), millis(t.waits.quantile(0.999)), millis(t.waits.Longest),
			number(float64(t.two())),
		})
	}
	var contestants []contestant
	for _, t := range totals {
		contestants = append(contestants, contestant{t.title(), t.kind(), &t.tally})
	}
	r.contest("hot", "one hot key, no cluster", contestants)
	r.notes = strings.Split(describe(list), "\n")
	r.notes = append(r.notes,
		"ratio: Holdfast's sections/s to this line's, in each round; median of the rounds",
		"commands: sent by the clients in a round and the 30 ms after it, a script being one. Scripts called at the server,",
		"by its own count, per such command of Holdfast: "+number(ratio(float64(first.evals), float64(first.all.Commands))),
		"two holders: how often somebody came in while somebody was in, or a section was not counted, by memory that all share")

	for _, t := range totals[1:] {
		if t.alone {
			continue
		}
		r.claims = append(r.claims, atLeast(hotRatio, median(perRound(first.rates, t.rates)),
			"sections per second, times those of "+t.name))
	}
	r.claims = append(r.claims,
		atMost(hotCommands, first.per(float64(first.all.Commands)), "Redis commands per section"),
		atLeast(hotShare, smallestShare(first.parts), "smallest process's part of an equal share"))
	for _, t := range totals {
		if t.failed > 0 {
			r.notes = append(r.notes, fmt.Sprintf("%s: %s locks or unlocks failed; one: %s", t.name, figures.Thousands(t.failed), t.failure))
		}
		r.claims = append(r.claims, atMost(0, float64(t.two()), t.name+": times that two held the lock"))
		if t.fenced {
			r.claims = append(r.claims,
				atMost(0, float64(t.referee.stale.Load()), t.name+": tokens not above the one before"),
				atMost(0, float64(t.failed), t.name+": locks or unlocks that failed"))
		}
	}
	return r
}

func (t *hotTotal) two() int64 { return t.referee.two.Load() + max(t.uncounted, -t.uncounted) }

// perRound divides a by b, round by round.
func perRound(a, b []float64) []float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = ratio(a[i], b[i])
	}
	return ratios
}

func percent(x float64) string { return number(100*x) + " %" }

func millis(d time.Duration) string { return number(float64(d) / float64(time.Millisecond)) }
