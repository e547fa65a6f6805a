package subjects

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/figures"
	"github.com/holdfast-go/holdfast/internal/reexec"
)

// hotSizes: processes x goroutines contend for one key, in rounds of each variant by turns.
type HotSizes struct {
	Processes, Goroutines int
	Rounds                int
	Round                 time.Duration
}

// What must hold of a hot key.
const (
	hotRatio    = 20   // times the sections per second of each rival, at least
	hotCommands = 0.05 // Redis commands per section, at most
	hotShare    = 0.7  // of an equal share, for every process, at least
)

// hotTotal is what one variant did in all rounds.
type hotTotal struct {
	rivals.Variant
	stats.Tally
	conn      string  // how to connect to its own server
	worst     float64 // smallest share of a process in any round
	evals     int64   // scripts called in the rounds, as the server counts them
	failed    int64
	failure   string
	uncounted int64 // sections that the processes counted and the referee did not
	referee   *harness.Referee
}

// measureHot lets all processes run all variants, each for a round, in an order that changes.
func measureHot(ctx context.Context, b *Run) (report.Result, error) {
	return measureVariants(ctx, b, rivals.Chosen("hot", b.Rivals))
}

func measureVariants(ctx context.Context, b *Run, list []rivals.Variant) (_ report.Result, err error) {
	s := b.Sizes.Hot
	file := filepath.Join(b.Dir, "referees")
	referees, unmap, err := harness.OpenReferees(file, len(rivals.Variants))
	if err != nil {
		return report.Result{}, err
	}
	defer func() { err = errors.Join(err, unmap()) }()
	servers, err := rivals.StartServers(ctx, -1, list)
	if err != nil {
		return report.Result{}, err
	}
	defer func() { err = errors.Join(err, servers.Stop()) }()
	servers.Tell(b.Bench)
	var totals []*hotTotal
	for i, v := range rivals.Variants {
		if slices.ContainsFunc(list, func(one rivals.Variant) bool { return one.Name == v.Name }) && servers.Has(v) {
			t := &hotTotal{Variant: v, conn: servers.Conn(v), worst: 1, referee: &referees[i]}
			t.Untold = v.Unknown()
			totals = append(totals, t)
		}
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var ws []*reexec.Worker
	defer func() {
		for _, w := range ws {
			err = errors.Join(err, w.Stop())
		}
	}()
	for i := range s.Processes {
		w, err := b.Start(ctx, "hot", harness.Order{Process: i + 1, Referees: file})
		if err != nil {
			cancel()
			return report.Result{}, err
		}
		ws = append(ws, w)
	}

	if err := byTurns(ctx, b, s.Rounds, totals, func(t *hotTotal) string { return t.Name }, func(t *hotTotal, round int) error {
		return t.round(ctx, b, servers, ws, round)
	}); err != nil {
		cancel()
		return report.Result{}, err
	}
	r := hotResults(s, totals)
	describeServers(&r, servers, list)
	return r, nil
}

// round runs the variant once in all workers.
func (t *hotTotal) round(ctx context.Context, b *Run, servers *rivals.Servers, ws []*reexec.Worker, round int) error {
	s := b.Sizes.Hot
	ht := hotTask{Variant: t.Name, Key: "hot", Goroutines: s.Goroutines, Duration: s.Round, Server: t.conn}
	if t.Alone && !t.Unsafe() {
		ht.Goroutines *= s.Processes
		ws = ws[round%len(ws):][:1]
	}
	if !t.Fenced {
		// A key that a worker left locked at the end of a round must not spoil the next, nor another's.
		ht.Key = fmt.Sprintf("hot-%s-%d", t.Name, round)
	}
	if round == 0 {
		ht.Duration = min(s.Round, 200*time.Millisecond)
		// One after the other, and at leisure: opening may take longer than the start of a round can
		// wait.
		for _, w := range ws {
			if _, err := hotTasks.Do(w, hotTask{Variant: t.Name, Goroutines: s.Goroutines, Server: t.conn}); err != nil {
				return err
			}
		}
	}
	before, err := harness.CommandStats(ctx, b.Admin, "evalsha")
	if err != nil {
		return err
	}
	cpu, err := servers.CPU(ctx, b.Admin, t.Variant)
	if err != nil {
		return err
	}
	seen := t.referee.Sections.Load()
	ht.Begin = time.Now().Add(50 * time.Millisecond)
	answers, err := hotTasks.All(ws, ht)
	if err != nil {
		return err
	}
	after, err := harness.CommandStats(ctx, b.Admin, "evalsha")
	if err != nil {
		return err
	}
	then, err := servers.CPU(ctx, b.Admin, t.Variant)
	if err != nil {
		return err
	}
	all := int64(0)
	for _, a := range answers {
		all += a.Sections
		t.failed += a.Failed
		if t.failure == "" {
			t.failure = a.Failure
		}
	}
	t.uncounted += all - (t.referee.Sections.Load() - seen)
	if t.referee.Inside.Swap(0) != 0 {
		t.referee.Two.Add(1) // a goroutine went in and never left
	}
	if round == 0 {
		return nil
	}
	t.worst = min(t.worst, stats.SmallestShare(addHot(&t.Tally, answers, ht.Duration, then-cpu)))
	t.evals += after.Since(before).Calls
	return nil
}

// hotResults compares the first variant with each of the others, round by round.
func hotResults(s HotSizes, totals []*hotTotal) report.Result {
	first := totals[0]
	r := report.Result{
		Title: fmt.Sprintf("HOT: one key, %d processes x %d goroutines, empty critical section; %d rounds of %v of each, by turns",
			s.Processes, s.Goroutines, s.Rounds, s.Round),
		Table: [][]string{{"", "sections/s", "(min..max)", "ratio", "(min..max)", "commands/section", "smallest share", "(worst round)",
			"Jain", "p50 wait ms", "p99", "p99.9", "max", "two holders"}},
	}
	var list []rivals.Variant
	for _, t := range totals {
		list = append(list, t.Variant)
		rate := stats.SpreadOf(t.Rates)
		times := stats.SpreadOf(stats.PerRound(first.Rates, t.Rates))
		share, worst, fair := stats.Percent(stats.SmallestShare(t.Parts)), stats.Percent(t.worst), stats.Number(stats.Jain(t.Parts))
		if t.Alone {
			share, worst, fair = "-", "-", "-"
		}
		r.Table = append(r.Table, []string{
			t.Title(), stats.Number(rate.Median), stats.Number(rate.Least) + ".." + stats.Number(rate.Most),
			stats.Number(times.Median), stats.Number(times.Least) + ".." + stats.Number(times.Most),
			stats.Number(t.Per(float64(t.All.Commands))), share, worst, fair,
			stats.Millis(t.Waits.Quantile(0.5)), stats.Millis(t.Waits.Quantile(0.99)), stats.Millis(t.Waits.Quantile(0.999)), stats.Millis(t.Waits.Longest),
			stats.Number(float64(t.two())),
		})
	}
	var contestants []report.Contestant
	for _, t := range totals {
		contestants = append(contestants, report.Contestant{Name: t.Title(), Kind: t.Kind(), Tally: &t.Tally})
	}
	r.Contest("hot", "one hot key, no cluster", contestants)
	r.Notes = strings.Split(rivals.Describe(list), "\n")
	r.Notes = append(r.Notes,
		"ratio: Holdfast's sections/s to this line's, in each round; median of the rounds",
		"commands: sent by the clients in a round and the 30 ms after it, a script being one. Scripts called at the server,",
		"by its own count, per such command of Holdfast: "+stats.Number(stats.Ratio(float64(first.evals), float64(first.All.Commands))),
		"two holders: how often somebody came in while somebody was in, or a section was not counted, by memory that all share")

	for _, t := range totals[1:] {
		if t.Alone {
			continue
		}
		r.Claims = append(r.Claims, report.AtLeast(hotRatio, stats.Median(stats.PerRound(first.Rates, t.Rates)),
			"sections per second, times those of "+t.Name))
	}
	r.Claims = append(r.Claims,
		report.AtMost(hotCommands, first.Per(float64(first.All.Commands)), "Redis commands per section"),
		report.AtLeast(hotShare, stats.SmallestShare(first.Parts), "smallest process's part of an equal share"))
	for _, t := range totals {
		if t.failed > 0 {
			r.Notes = append(r.Notes, fmt.Sprintf("%s: %s locks or unlocks failed; one: %s", t.Name, figures.Thousands(t.failed), t.failure))
		}
		r.Claims = append(r.Claims, report.AtMost(0, float64(t.two()), t.Name+": times that two held the lock"))
		if t.Fenced {
			r.Claims = append(r.Claims,
				report.AtMost(0, float64(t.referee.Stale.Load()), t.Name+": tokens not above the one before"),
				report.AtMost(0, float64(t.failed), t.Name+": locks or unlocks that failed"))
		}
	}
	return r
}

func (t *hotTotal) two() int64 { return t.referee.Two.Load() + max(t.uncounted, -t.uncounted) }
