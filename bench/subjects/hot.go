package subjects

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
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

// measureHot has a referee in memory that the processes share, as the section is empty.
func measureHot(ctx context.Context, b *Run) (report.Result, error) {
	return measureVariants(ctx, b, rivals.Chosen("hot", b.Rivals))
}

func measureVariants(ctx context.Context, b *Run, list []rivals.Variant) (_ report.Result, err error) {
	s := b.Sizes.Hot
	run := sharedRun{b: b, subject: "hot", sizes: sharedSizes{s.Processes, s.Goroutines, 1, s.Rounds, s.Round}, file: filepath.Join(b.Dir, "referees")}
	var unmap func() error
	if run.referees, unmap, err = harness.OpenReferees(run.file, len(rivals.Variants)); err != nil {
		return report.Result{}, err
	}
	defer func() { err = errors.Join(err, unmap()) }()
	return run.measure(ctx, list, harness.Placement{Callers: -1, Store: -1, Servers: -1}, hotResults)
}

// hotResults compares the first variant with each of the others, round by round.
func hotResults(s sharedSizes, totals []*sharedTotal) report.Result {
	first := totals[0]
	r := report.Result{
		Title: fmt.Sprintf("HOT: one key, %d processes x %d goroutines, empty critical section; %d rounds of %v of each, by turns",
			s.processes, s.goroutines, s.rounds, s.round),
		Table: [][]string{{"", "sections/s", "(min..max)", "ratio", "(min..max)", "commands/section", "smallest share", "(worst round)",
			"Jain", "p50 wait ms", "p99", "p99.9", "max", "two holders"}},
	}
	for _, t := range totals {
		shares := []string{stats.Percent(stats.SmallestShare(t.Parts)), stats.Percent(t.Worst(stats.SmallestShare)), stats.Number(stats.Jain(t.Parts))}
		if t.alone {
			shares = []string{"-", "-", "-"}
		}
		r.Table = append(r.Table, slices.Concat([]string{t.Title()}, t.RateCells(&first.Tally), []string{stats.Number(t.Per(float64(t.All.Commands)))},
			shares, t.WaitCells(), []string{stats.Number(float64(t.wrong))}))
	}
	r.Contest("hot", "one hot key, no cluster", contestants(totals))
	r.Notes = append(describe(totals),
		"ratio: Holdfast's sections/s to this line's, in each round; median of the rounds",
		"commands: sent by the clients in a round and the 30 ms after it, a script being one. Scripts called at the server,",
		"by its own count, per such command of Holdfast: "+stats.Number(stats.Ratio(float64(first.evals), float64(first.All.Commands))),
		"two holders: how often somebody came in while somebody was in, or a section was not counted, by memory that all share")
	for _, t := range totals[1:] {
		if !t.alone {
			r.Claims = append(r.Claims, report.AtLeast(hotRatio, first.times(t), "sections per second, times those of "+t.Name))
		}
	}
	r.Claims = append(r.Claims,
		report.AtMost(hotCommands, first.Per(float64(first.All.Commands)), "Redis commands per section"),
		report.AtLeast(hotShare, stats.SmallestShare(first.Parts), "smallest process's part of an equal share"))
	safety(totals, &r)
	return r
}
