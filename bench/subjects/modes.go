package subjects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/figures"
	"github.com/holdfast-go/holdfast/internal/reexec"
)

// modesSizes: read locks, in rounds of each way to have them by turns.
type modesSizes struct {
	blocks int           // of pairs of calls, by one goroutine and by two
	block  time.Duration // how long one is
	ratios int           // comparisons in slices: see pairSlice
}

// modesAllocs is how many allocations a read lock of a key that the process reads takes, at most:
// none, but those of the cluster meanwhile.
const modesAllocs = 0.01

// modeJob is what is done under locks of a kind. A section waits as for a database: what the lock
// lets run at the same time shows then, not how many processors there are.
type modeJob struct {
	Name, Title string
	Processes   int // nodes of the cluster
	Active      int // so many of them lock; 0: all
	Goroutines  int // of each process
	Procs       int // processors that a process uses; 0: all
	Batch       int // operations that are timed at a time; 0: loopBatch
	Writes      int // one section in so many is a writer's; 0: there are no writers
	Rounds      int
	Round       time.Duration
	Ratios      int // comparisons in slices; 0: none
}

func (j modeJob) batch() int { return cmp.Or(j.Batch, loopBatch) }

// permitsLoss is how much of the throughput a limit that does not bind may take: the sections
// without a limit per second to those with one.
const permitsLoss = 1.02

func (s modesSizes) jobs() (list []modeJob) {
	for n := range 2 {
		n++
		list = append(list, modeJob{
			Name: fmt.Sprintf("read-%d", n), Title: fmt.Sprintf("pairs of calls, no writer, GOMAXPROCS %d with as many goroutines", n),
			Processes: 2, Active: 1, Goroutines: n, Procs: n, Rounds: s.blocks, Round: s.block,
		})
	}
	return append(list, modeJob{
		Name: "mixed", Title: "sections of two round trips to Redis under a lock of one key, one in 1,000 for writing", Processes: 4, Goroutines: 8,
		Batch: rivalBatch, Writes: 1000, Rounds: s.blocks, Round: s.block,
	}, modeJob{
		Name: "permits", Title: "sections of two round trips to Redis, a limit of ten times the callers", Processes: 8, Goroutines: 8, Batch: rivalBatch,
		Rounds: s.blocks, Round: s.block, Ratios: s.ratios,
	})
}

// kind is what the ways to do the job are found by.
func (j modeJob) kind() string {
	kind, _, _ := strings.Cut(j.Name, "-")
	return kind
}

// modeTotal is what one way did of one job in all rounds.
type modeTotal struct {
	*modeWay
	stats.Tally
	failed  int64
	failure string
	wrong   int64 // by the judges
}

// modesRun is what the rounds of a job need.
type modesRun struct {
	b       *Run
	job     modeJob
	ws      []*reexec.Worker
	servers *rivals.Servers
	pairs   *pairs // nil: there was no comparison in slices
}

func measureModes(ctx context.Context, b *Run) (report.Result, error) {
	return measureJobs(ctx, b, b.Sizes.modes.jobs(), func(w *modeWay, j modeJob) bool { return w.MeasuredIn(j.kind(), b.Rivals) })
}

func measureJobs(ctx context.Context, b *Run, jobs []modeJob, choose func(*modeWay, modeJob) bool) (_ report.Result, err error) {
	r := report.Result{
		Title: "MODES: locks that several may have at the same time, and of several keys; all ways by turns",
		Table: [][]string{append([]string{
			"", "per second", "(min..max)", "ratio", "(min..max)", "p50 wait", "p99", "max", "CPU of the servers", "violations",
		}, stats.UsedHead...)},
	}
	ways := make([][]*modeWay, len(jobs))
	var list []rivals.Variant
	for i, j := range jobs {
		for n := range modeWays {
			if w := &modeWays[n]; choose(w, j) {
				ways[i] = append(ways[i], w)
				list = append(list, w.Variant)
			}
		}
	}
	servers, err := rivals.StartServers(ctx, -1, list)
	if err != nil {
		return report.Result{}, err
	}
	defer func() { err = errors.Join(err, servers.Stop()) }()
	servers.Tell(b.Bench)
	for i, j := range jobs {
		run := modesRun{b: b, job: j, servers: servers}
		totals, err := run.all(ctx, ways[i])
		if err != nil {
			return report.Result{}, fmt.Errorf("%s: %w", j.Name, err)
		}
		run.results(&r, totals)
	}
	said := make(map[string]bool)
	for _, v := range list {
		if v.How != "" && !said[v.Name] {
			said[v.Name] = true
			r.Notes = append(r.Notes, v.Title()+": "+v.How)
		}
	}
	r.Notes = append(r.Notes,
		"ratio: the first line's operations per second to this line's, in each round; median of the rounds",
		"CPU (nanoseconds), allocations, commands and bytes: of the processes that lock, the cluster's work included, per operation",
		"pairs of calls that ask no server are timed 1,000 at a time, so their waits are means; a judge is in what is mixed",
		"nothing is pinned: the kernel decides what runs where")
	describeServers(&r, servers, list)
	return r, nil
}

// all runs all rounds of all ways.
func (r *modesRun) all(ctx context.Context, ways []*modeWay) (totals []*modeTotal, err error) {
	_, ws, stop, err := r.b.StartMany(ctx, "modes-"+r.job.Name, r.job.Processes, -1, -1)
	defer func() { err = errors.Join(err, stop(err != nil)) }()
	if err != nil {
		return nil, err
	}
	r.ws = ws
	if _, err := settled(ctx, ws, hotTask{Variant: rivals.ClusterVariant, Goroutines: r.job.Goroutines}); err != nil {
		return nil, err
	}
	for _, w := range ways {
		if !r.servers.Has(w.Variant) {
			continue
		}
		t := &modeTotal{modeWay: w}
		if t.Untold = w.Unknown(); w.floor {
			t.Untold = rivals.Variant{Alone: true}.Unknown()
		}
		totals = append(totals, t)
		// One after the other, and at leisure: opening may take longer than the start of a round can
		// wait.
		for _, one := range ws {
			if _, err := modesTasks.Do(one, *r.task(t)); err != nil {
				return nil, fmt.Errorf("%s: %w", t.Name, err)
			}
		}
	}
	if err := byTurns(ctx, r.b, r.job.Rounds, totals, func(t *modeTotal) string { return t.Name }, func(t *modeTotal, round int) error {
		return r.round(ctx, t, round)
	}); err != nil {
		return totals, err
	}
	if other, ok := r.pairOf(totals); ok {
		r.pairs, err = r.compare(totals[0], other)
	}
	return totals, err
}

func (r *modesRun) task(t *modeTotal) *modesTask {
	job := r.job
	if t.Alone && job.Active == 0 {
		job.Goroutines *= job.Processes
	}
	return &modesTask{Way: t.Name, Job: job, Server: r.servers.Conn(t.Variant)}
}

// round runs one way once.
func (r *modesRun) round(ctx context.Context, t *modeTotal, round int) (err error) {
	mt, ws := r.task(t), r.ws
	if n := r.job.Active; n > 0 {
		ws = ws[:n]
	} else if t.Alone {
		ws = ws[round%len(ws):][:1]
	}
	// What a worker left locked at the end of a round must not spoil the next.
	mt.Key = fmt.Sprintf("%s-%d", r.job.Name, round)
	mt.Judge = filepath.Join(r.b.Dir, "judge")
	judge, unmap, err := openJudge(mt.Judge)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unmap(), os.Remove(mt.Judge)) }()
	if mt.Duration = r.job.Round; round == 0 {
		mt.Duration = min(mt.Duration, 300*time.Millisecond)
	}
	before, err := r.servers.CPU(ctx, r.b.Admin, t.Variant)
	if err != nil {
		return err
	}
	mt.Begin = time.Now().Add(50 * time.Millisecond)
	answers, err := modesTasks.All(ws, *mt)
	if err != nil {
		return err
	}
	after, err := r.servers.CPU(ctx, r.b.Admin, t.Variant)
	if err != nil {
		return err
	}
	t.wrong += judge.wrong.Load() // in round 0, too
	for _, a := range answers {
		t.failed += a.Failed
		if t.failure == "" {
			t.failure = a.Failure
		}
	}
	if round > 0 {
		addHot(&t.Tally, answers, mt.Duration, after-before)
	}
	return nil
}

// results adds a job's lines and claims. The first way is ours.
func (r *modesRun) results(to *report.Result, totals []*modeTotal) {
	first := totals[0]
	to.Table = append(to.Table, []string{fmt.Sprintf("%s; %d rounds of %v", r.job.Title, r.job.Rounds, r.job.Round)})
	var list []report.Contestant
	for _, t := range totals {
		name, kind := t.Name+", "+r.job.Name, report.KindOf(t.Name)
		if t.floor || t.Alone {
			kind = chart.Floor
		}
		list = append(list, report.Contestant{Name: name, Kind: kind, Tally: &t.Tally})
		wait := func(d time.Duration) string { return chart.Format(float64(d), chart.Nanoseconds) }
		to.Table = append(to.Table, slices.Concat([]string{"  " + t.Title()}, t.RateCells(&first.Tally), []string{
			wait(t.Waits.Quantile(0.5)), wait(t.Waits.Quantile(0.99)), wait(t.Waits.Longest),
			stats.Number(t.Per(float64(t.Serving))), stats.Number(float64(t.wrong)),
		}, stats.UsedPer(t.Rounds)))
		if t.failed > 0 {
			to.Notes = append(to.Notes, fmt.Sprintf("%s: %s sections failed; one: %s", name, figures.Thousands(t.failed), t.failure))
		}
		if kind == chart.Ours {
			to.Claims = append(to.Claims, report.AtMost(0, float64(t.failed), name+": sections that failed"))
			if r.job.Writes > 0 {
				to.Claims = append(to.Claims, report.AtMost(0, float64(t.wrong), name+": times that a writer was not alone"))
			}
		}
		if t == first && r.pairs != nil {
			r.pairs.results(to, name)
		}
		if kind == chart.Ours && t.reads && r.job.kind() == "read" {
			to.Claims = append(to.Claims, report.AtMost(modesAllocs, t.Per(float64(t.All.Allocs)), name+": allocations per pair of calls"))
		}
	}
	to.Contest("modes-"+r.job.Name, r.job.Title, list)
}
