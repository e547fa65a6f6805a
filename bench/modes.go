package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// modesSizes: read locks, in rounds of each way to have them by turns.
type modesSizes struct {
	blocks int           // of pairs of calls, by one goroutine and by two
	block  time.Duration // how long one is
}

// modesAllocs is how many allocations a read lock of a key that the process reads takes, at most: none, but those of the
// cluster meanwhile.
const modesAllocs = 0.01

// modeJob is what is done under locks of a kind. A section waits as for a database: what the lock lets run at the same time
// shows then, not how many processors there are.
type modeJob struct {
	Name, Title string
	Processes   int // nodes of the cluster
	Active      int // so many of them lock; 0: all
	Goroutines  int // of each process
	Procs       int // processors that a process uses; 0: all
	Rounds      int
	Round       time.Duration
}

func (s modesSizes) jobs() (list []modeJob) {
	for n := range 2 {
		n++
		list = append(list, modeJob{
			Name: fmt.Sprintf("read-%d", n), Title: fmt.Sprintf("pairs of calls, no writer, GOMAXPROCS %d with as many goroutines", n),
			Processes: 2, Active: 1, Goroutines: n, Procs: n, Rounds: s.blocks, Round: s.block,
		})
	}
	return list
}

// kind is what the ways to do the job are found by.
func (j modeJob) kind() string {
	kind, _, _ := strings.Cut(j.Name, "-")
	return kind
}

// modeTotal is what one way did of one job in all rounds.
type modeTotal struct {
	*modeWay
	tally
	failed  int64
	failure string
	wrong   int64 // by the judges
}

// modesRun is what the rounds of a job need.
type modesRun struct {
	b       *bench
	job     modeJob
	ws      []*worker
	servers *servers
}

func measureModes(ctx context.Context, b *bench) (result, error) {
	return measureJobs(ctx, b, b.sizes.modes.jobs(), func(w *modeWay, j modeJob) bool { return w.measuredIn(j.kind(), b.rivals) })
}

func measureJobs(ctx context.Context, b *bench, jobs []modeJob, choose func(*modeWay, modeJob) bool) (_ result, err error) {
	r := result{
		title: "MODES: locks that several may have at the same time, and of several keys; all ways by turns",
		table: [][]string{append([]string{
			"", "per second", "(min..max)", "ratio", "(min..max)", "p50 wait", "p99", "max", "CPU of the servers", "violations",
		}, usedHead...)},
	}
	ways := make([][]*modeWay, len(jobs))
	var list []variant
	for i, j := range jobs {
		for n := range modeWays {
			if w := &modeWays[n]; choose(w, j) {
				ways[i] = append(ways[i], w)
				list = append(list, w.variant)
			}
		}
	}
	servers, err := startServers(ctx, -1, list)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, servers.stop()) }()
	b.use(servers)
	for i, j := range jobs {
		run := modesRun{b: b, job: j, servers: servers}
		totals, err := run.all(ctx, ways[i])
		if err != nil {
			return result{}, fmt.Errorf("%s: %w", j.Name, err)
		}
		run.results(&r, totals)
	}
	said := make(map[string]bool)
	for _, v := range list {
		if v.how != "" && !said[v.name] {
			said[v.name] = true
			r.notes = append(r.notes, v.title()+": "+v.how)
		}
	}
	r.notes = append(r.notes,
		"ratio: the first line's operations per second to this line's, in each round; median of the rounds",
		"CPU (nanoseconds), allocations, commands and bytes: of the processes that lock, the cluster's work included, per operation",
		"pairs of calls are timed 1,000 at a time, so their waits are means; no judge is in them",
		"nothing is pinned: the kernel decides what runs where")
	servers.describe(&r, list)
	return r, nil
}

// all runs all rounds of all ways.
func (r *modesRun) all(ctx context.Context, ways []*modeWay) (totals []*modeTotal, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, ws, stop, err := r.b.startMany(ctx, "modes-"+r.job.Name, r.job.Processes, -1, -1)
	defer func() {
		if err != nil {
			cancel()
		}
		err = errors.Join(err, stop())
	}()
	if err != nil {
		return nil, err
	}
	r.ws = ws
	if _, err := settled(ctx, ws, hotTask{Variant: clusterVariant, Goroutines: r.job.Goroutines}); err != nil {
		return nil, err
	}
	for _, w := range ways {
		if !r.servers.has(w.variant) {
			continue
		}
		t := &modeTotal{modeWay: w}
		if t.untold = w.unknown(); w.floor {
			t.untold = variant{alone: true}.unknown()
		}
		totals = append(totals, t)
		// One after the other, and at leisure: opening may take longer than the start of a round can wait.
		for _, one := range ws {
			if _, err := one.do(task{Modes: r.task(t)}); err != nil {
				return nil, fmt.Errorf("%s: %w", t.name, err)
			}
		}
	}
	// Round 0 is not counted: connections are made in it, and scripts loaded.
	for round := range r.job.Rounds + 1 {
		for i := range totals {
			t := totals[(i+round)%len(totals)]
			r.b.progress.step(t.name, round*len(totals)+i, (r.job.Rounds+1)*len(totals))
			r.b.settle(ctx)
			if err := r.round(ctx, t, round); err != nil {
				return nil, fmt.Errorf("%s: %w", t.name, err)
			}
		}
	}
	return totals, nil
}

func (r *modesRun) task(t *modeTotal) *modesTask {
	job := r.job
	if t.alone && job.Active == 0 {
		job.Goroutines *= job.Processes
	}
	return &modesTask{Way: t.name, Job: job, Server: r.servers.conn(t.variant)}
}

// round runs one way once.
func (r *modesRun) round(ctx context.Context, t *modeTotal, round int) (err error) {
	mt, ws := r.task(t), r.ws
	if n := r.job.Active; n > 0 {
		ws = ws[:n]
	} else if t.alone {
		ws = ws[round%len(ws):][:1]
	}
	// What a worker left locked at the end of a round must not spoil the next.
	mt.Key = fmt.Sprintf("%s-%d", r.job.Name, round)
	mt.Judges = filepath.Join(r.b.dir, "judges")
	judges, unmap, err := openJudges(mt.Judges, mt.Job)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unmap(), os.Remove(mt.Judges)) }()
	if mt.Duration = r.job.Round; round == 0 {
		mt.Duration = min(mt.Duration, 300*time.Millisecond)
	}
	before, err := r.b.serverCPU(ctx, r.servers, t.variant)
	if err != nil {
		return err
	}
	mt.Begin = time.Now().Add(50 * time.Millisecond)
	answers, err := doAll(ws, task{Modes: mt})
	if err != nil {
		return err
	}
	after, err := r.b.serverCPU(ctx, r.servers, t.variant)
	if err != nil {
		return err
	}
	for i := range judges { // in round 0, too
		t.wrong += judges[i].wrong.Load()
	}
	for _, a := range answers {
		t.failed += a.Hot.Failed
		if t.failure == "" {
			t.failure = a.Hot.Failure
		}
	}
	if round > 0 {
		t.addHot(answers, mt.Duration, after-before)
	}
	return nil
}

// results adds a job's lines and claims. The first way is ours.
func (r *modesRun) results(to *result, totals []*modeTotal) {
	first := totals[0]
	to.table = append(to.table, []string{fmt.Sprintf("%s; %d rounds of %v", r.job.Title, r.job.Rounds, r.job.Round)})
	var list []contestant
	for _, t := range totals {
		name, kind := t.name+", "+r.job.Name, kindOf(t.name)
		if t.floor || t.alone {
			kind = chart.Floor
		}
		list = append(list, contestant{name, kind, &t.tally})
		rate, times := spreadOf(t.rates), spreadOf(perRound(first.rates, t.rates))
		wait := func(d time.Duration) string { return chart.Format(float64(d), chart.Nanoseconds) }
		var used []effort
		for _, x := range t.rounds {
			used = append(used, x.effort)
		}
		to.table = append(to.table, append([]string{
			"  " + t.title(), number(rate.median), number(rate.least) + ".." + number(rate.most),
			number(times.median), number(times.least) + ".." + number(times.most),
			wait(t.waits.quantile(0.5)), wait(t.waits.quantile(0.99)), wait(t.waits.Longest),
			number(t.per(float64(t.serving))), number(float64(t.wrong)),
		}, usedPer(used)...))
		if t.failed > 0 {
			to.notes = append(to.notes, fmt.Sprintf("%s: %s sections failed; one: %s", name, figures.Thousands(t.failed), t.failure))
		}
		if kind == chart.Ours {
			to.claims = append(to.claims, atMost(0, float64(t.failed), name+": sections that failed"))
		}
		if kind == chart.Ours && t.reads && r.job.kind() == "read" {
			to.claims = append(to.claims, atMost(modesAllocs, t.per(float64(t.all.Allocs)), name+": allocations per pair of calls"))
		}
	}
	to.contest("modes-"+r.job.Name, r.job.Title, list)
}
