package subjects

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/reexec"
)

// Crowd is the workers of a job: goroutines of processes, in rounds of each way by turns.
type Crowd struct {
	Processes, Goroutines int // goroutines of each
	Keys                  int // more than 1: by zipf
	Rounds                int
	Round                 time.Duration
}

// job is the work of compared ways.
type job struct {
	Name, Title string
	Crowd
	Active int // so many processes lock; 0: all
	Procs  int // processors that a process uses; 0: all
	Batch  int // operations that are timed at a time; 0: loopBatch
	Writes int // one section in so many is a writer's; 0: there are no writers
	Ratios int // comparisons in slices; 0: none
}

// total is all rounds of one way.
type total struct {
	*way
	stats.Tally
	number  int  // of the way
	alone   bool // one process, without a lock that others know
	failed  int64
	failure string // one of them
	calls   map[string]int64
	evals   int64 // scripts called in the rounds, as the server counts them

	missing int64 // sections that the processes counted and the referee did not, or the other way
	wrong   int64 // times that two held a lock
	stale   int64 // tokens that did not rise
}

// kind is how it is drawn.
func (t *total) kind() chart.Kind {
	if t.floor || t.alone || t.Alone {
		return chart.Floor
	}
	return report.KindOf(t.Name)
}

// times is how many times the sections per second of another the way reaches, in the median of the
// rounds.
func (t *total) times(other *total) float64 { return t.Times(&other.Tally).Median }

// contest is the state for the rounds of ways of a kind.
type contest struct {
	b       *Run
	subject string
	kind    string
	job     *job
	ws      []*reexec.Worker
	servers *rivals.Servers
	totals  []*total

	store    string            // the critical section is a read and a write there; empty: it is empty, and
	file     string            // of the referees
	referees []harness.Referee // by way, see it; nil: there are none
	counted  bool              // the referees count sections
}

// refereed is how many ways may have a referee.
const refereed = 64

// withReferees has referees in memory that the processes share.
func (c *contest) withReferees() error {
	c.file = filepath.Join(c.b.Dir, "referees-"+c.subject)
	all, unmap, err := harness.OpenReferees(c.file, refereed)
	if err == nil {
		c.referees = all
		c.b.AtEnd(func(bool) error { return unmap() })
	}
	return err
}

// start starts the servers that ways need, unless there are some, and the workers, where they have
// their places.
func (c *contest) start(ctx context.Context, processes int, at harness.Placement, list []rivals.Variant) (err error) {
	if c.servers == nil {
		if c.servers, err = c.b.startServers(ctx, at.Servers, list); err != nil {
			return err
		}
	}
	c.store, c.ws, err = c.b.StartMany(ctx, c.subject, processes, at.Callers, at.Store)
	return err
}

// cluster opens a node of a cluster in each process, all at once and from nothing. It returns the
// task that opens it, and how long it takes to settle.
func (c *contest) cluster(ctx context.Context, goroutines int) (task roundTask, took time.Duration, err error) {
	if _, task.Way, err = rivals.FindVariant(rivals.ClusterVariant); err != nil {
		return task, 0, err
	}
	task.Job.Goroutines = goroutines
	if _, err := roundTasks.All(c.ws, task); err != nil {
		return task, 0, err
	}
	took, err = c.settled(ctx, task)
	return task, took, err
}

// chosen returns the numbers of the ways that are chosen, and their variants.
func (c *contest) chosen(choose func(*way) bool) (numbers []int, list []rivals.Variant) {
	for i, w := range waysOf(c.kind) {
		if choose(&w) {
			numbers, list = append(numbers, i), append(list, w.Variant)
		}
	}
	return numbers, list
}

// in chooses the ways that a subject measures.
func (b *Run) in(subject string) func(*way) bool {
	return func(w *way) bool { return w.MeasuredIn(subject, b.Rivals) }
}

// play adds the ways that have their servers. It runs each of them once in each round, in an order
// that changes, and asks the judges. Round 0 is not counted: connections are made in it, scripts
// loaded, statements prepared.
func (c *contest) play(ctx context.Context, numbers []int) error {
	for _, number := range numbers {
		if !c.servers.Has(waysOf(c.kind)[number].Variant) {
			continue
		}
		if err := c.add(ctx, number); err != nil {
			return err
		}
	}
	n := len(c.totals)
	for round := range c.job.Rounds + 1 {
		for i := range n {
			t := c.totals[(i+round)%n]
			c.b.Progress.Step(t.Name, round*n+i, (c.job.Rounds+1)*n)
			c.b.Settle(ctx)
			if err := c.round(ctx, t, round); err != nil {
				return fmt.Errorf("%s: %w", t.Name, err)
			}
		}
	}
	return c.judge()
}

// add opens a way in all processes, and waits until a cluster has settled. One after the other, and
// at leisure: opening may take longer than the start of a round can wait.
func (c *contest) add(ctx context.Context, number int) error {
	t := &total{way: &waysOf(c.kind)[number], number: number, calls: make(map[string]int64)}
	if t.Untold = t.Unknown(); t.floor {
		t.Untold = rivals.Variant{Alone: true}.Unknown()
	}
	t.alone = t.Alone && !(t.Unsafe() && c.referees != nil) // referees are to see faults without a lock
	task := c.task(t)
	if t.alone && t.Unsafe() {
		t.Name = "one worker without a lock"
	}
	cluster := false
	for _, w := range c.ws {
		a, err := roundTasks.Do(w, task)
		if err != nil {
			return fmt.Errorf("%s: %w", t.Name, err)
		}
		cluster = cluster || a.Nodes > 0
	}
	c.totals = append(c.totals, t)
	if !cluster {
		return nil
	}
	_, err := c.settled(ctx, task)
	return err
}

func (c *contest) task(t *total) roundTask {
	task := roundTask{Kind: c.kind, Way: t.number, Job: *c.job, Store: c.store, Referees: c.file, Key: c.subject, Server: c.servers.Conn(t.Variant)}
	if c.referees != nil {
		task.Store = "" // an empty section
	}
	switch {
	case t.alone && t.Unsafe():
		task.Job.Goroutines = 1
	case t.alone && c.job.Active == 0:
		task.Job.Goroutines *= c.job.Processes
	}
	return task
}

// settled waits until all partitions are owned, by all processes, and returns how long that took.
func (c *contest) settled(ctx context.Context, task roundTask) (time.Duration, error) {
	return allOwned(ctx, func() (views []view, err error) {
		answers, err := roundTasks.All(c.ws, task)
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

// judge asks the referees, or the store.
func (c *contest) judge() (err error) {
	db := harness.NewStore(c.store)
	defer db.Close()
	for _, t := range c.totals {
		if c.referees != nil {
			referee := &c.referees[t.number]
			t.wrong, t.stale = referee.Two.Load()+max(t.missing, -t.missing), referee.Stale.Load()
		} else if t.wrong, t.stale, err = db.Counts(t.number); err != nil {
			return err
		}
	}
	return nil
}

// round runs a way once.
func (c *contest) round(ctx context.Context, t *total, round int) error {
	task, ws := c.task(t), c.ws
	task.Duration = c.job.Round
	if n := c.job.Active; n > 0 {
		ws = ws[:n]
	} else if t.alone {
		ws = ws[round%len(ws):][:1]
	}
	if !t.Fenced || c.job.Name != "" {
		// A key that a worker left locked at the end of a round must not spoil the next, nor
		// another's.
		task.Key = fmt.Sprintf("%s-%s-%s-%d", c.subject, t.Name, c.job.Name, round)
	}
	if round == 0 {
		task.Duration = min(task.Duration, 300*time.Millisecond)
	}
	seen, err := c.look(ctx, t)
	if err != nil {
		return err
	}
	task.Begin = time.Now().Add(50 * time.Millisecond)
	answers, err := roundTasks.All(ws, task)
	if err != nil {
		return err
	}
	now, err := c.look(ctx, t)
	if err != nil {
		return err
	}
	// Connections that the end of the round has closed are opened again outside measured time.
	again := task
	again.Duration = 0
	if _, err := roundTasks.All(ws, again); err != nil {
		return err
	}
	var sum roundResult
	var parts []stats.Effort
	for _, a := range answers {
		sum.add(a)
		parts = append(parts, a.Effort)
		for op, n := range a.Calls {
			if round > 0 {
				t.calls[op] += n
			}
		}
	}
	// Faults count in round 0, too.
	if c.counted {
		t.missing += sum.Sections - (now.sections - seen.sections)
	}
	t.failed, t.failure = t.failed+sum.Failed, cmp.Or(t.failure, sum.Failure)
	if round > 0 {
		t.evals += now.evals - seen.evals
		t.Add(stats.NewRound(task.Duration, now.cpu-seen.cpu, parts, &sum.Waits))
		t.Waits.Merge(&sum.Waits)
	}
	return nil
}

// seen is the counters at one time.
type seen struct {
	sections int64         // by the referee
	evals    int64         // scripts called at Redis
	cpu      time.Duration // of the servers
}

// look is called before a round, and after it. A holder that never left counts as two holders.
func (c *contest) look(ctx context.Context, t *total) (s seen, err error) {
	if c.counted {
		referee := &c.referees[t.number]
		if referee.Inside.Swap(0) != 0 {
			referee.Two.Add(1)
		}
		s.sections = referee.Sections.Load()
	}
	evals, err := harness.CommandStats(ctx, c.b.Admin, "evalsha")
	if err != nil {
		return s, err
	}
	s.evals = evals.Calls
	s.cpu, err = c.servers.CPU(ctx, c.b.Admin, t.Variant)
	return s, err
}

// fastest returns the one of those that are chosen with the highest median rate, nil if there is
// none.
func fastest(totals []*total, choose func(*total) bool) (best *total) {
	for _, t := range totals {
		if choose(t) && (best == nil || stats.Median(t.Rates) > stats.Median(best.Rates)) {
			best = t
		}
	}
	return best
}
