package subjects

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/figures"
	"github.com/holdfast-go/holdfast/internal/reexec"
)

// rowsSizes: processes x goroutines change rows of a PostgreSQL, in rounds of each method by turns.
type rowsSizes struct {
	processes, goroutines int
	stock                 int64         // units of the one row that is sold out
	rows                  int           // of the other job, by zipf
	rounds                int           // of each job
	round                 time.Duration // at most: a round ends when everything is sold
}

// What must hold, besides that nothing is sold twice. How many are sold per second depends on the
// disk above all, for which every sale waits; what the servers have to do for one does not.
const rowsCPU = 0.6 // times the servers' CPU time per sale by SELECT FOR UPDATE, where all want one row, at most

// rowJob is what is done with the rows.
type rowJob struct {
	name  string
	rows  int
	stock int64 // of each row
}

// plenty is a stock that no round uses up.
const plenty = 1 << 40

func (s rowsSizes) jobs() []rowJob {
	return []rowJob{
		{fmt.Sprintf("%s units of one row, until they are sold", figures.Thousands(s.stock)), 1, s.stock},
		{fmt.Sprintf("read-modify-write of %s rows by zipf(%v)", figures.Thousands(int64(s.rows)), zipfS), s.rows, plenty},
	}
}

// rowsTotal is what one method did of one job in all rounds.
type rowsTotal struct {
	*rowMethod
	stats.Tally
	job       int
	missing   int64 // units sold that the rows do not account for: oversold; or the other way
	refused   int64
	conflicts int64
	failed    int64
	failure   string
}

// rowsRun is what the rounds need.
type rowsRun struct {
	b    *Run
	pg   *rivals.Server
	conn *pgx.Conn
	ws   []*reexec.Worker
	jobs []rowJob
}

func measureRows(ctx context.Context, b *Run) (report.Result, error) {
	return measureMethods(ctx, b, func(m *rowMethod) bool { return !m.unsafe && (b.Rivals || !m.more) })
}

func measureMethods(ctx context.Context, b *Run, choose func(*rowMethod) bool) (_ report.Result, err error) {
	s := b.Sizes.rows
	mine, its, pinned := b.TwoCores()
	if pinned == "" {
		pinned = fmt.Sprintf("pinned: the %d processes to core %d, PostgreSQL to core %d", s.processes, mine, its)
		if b.PID != 0 {
			undo, err := harness.Pin(b.PID, its)
			if err != nil {
				return report.Result{}, err
			}
			defer func() { err = errors.Join(err, undo()) }()
			pinned += ", and redis-server"
		}
	}
	var methods []*rowMethod
	var list []rivals.Variant // as all of them need PostgreSQL
	for i := range rowMethods {
		if m := &rowMethods[i]; choose(m) {
			methods = append(methods, m)
			list = append(list, rivals.Variant{Name: m.name, Server: rivals.PostgresKind})
		}
	}
	servers, err := rivals.StartServers(ctx, its, list)
	if err != nil {
		return report.Result{}, err
	}
	defer func() { err = errors.Join(err, servers.Stop()) }()
	run := rowsRun{b: b, pg: servers.Of(rivals.PostgresKind), jobs: s.jobs()}
	var totals []*rowsTotal
	if run.pg != nil {
		if totals, err = run.all(ctx, methods, mine, its); err != nil {
			return report.Result{}, err
		}
	}
	r := rowsResults(s, totals)
	describeServers(&r, servers, list)
	r.Notes = append([]string{pinned}, r.Notes...)
	return r, nil
}

// all runs all rounds of all methods.
func (r *rowsRun) all(ctx context.Context, methods []*rowMethod, mine, its int) (totals []*rowsTotal, err error) {
	s := r.b.Sizes.rows
	if r.conn, err = pgx.Connect(ctx, r.pg.Conn); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.conn.Close(context.WithoutCancel(ctx))) }()
	if _, err := r.conn.Exec(ctx, "drop table if exists stock; "+rowsTable); err != nil {
		return nil, err
	}
	_, ws, stop, err := r.b.StartMany(ctx, "rows", s.processes, mine, its)
	defer func() { err = errors.Join(err, stop(err != nil)) }()
	if err != nil {
		return nil, err
	}
	r.ws = ws
	for _, m := range methods {
		for job := range r.jobs {
			totals = append(totals, &rowsTotal{rowMethod: m, job: job})
		}
		// One after the other, and at leisure: opening may take longer than the start of a round can
		// wait.
		open := rowsTask{Method: m.name, Server: r.pg.Conn, Goroutines: s.goroutines}
		for _, w := range ws {
			if _, err := rowsTasks.Do(w, open); err != nil {
				return nil, err
			}
		}
		if m.lock == rivals.ClusterVariant {
			if _, err := settled(ctx, ws, hotTask{Variant: m.lock, Goroutines: s.goroutines}); err != nil {
				return nil, err
			}
		}
	}
	return totals, byTurns(ctx, r.b, s.rounds, totals, func(t *rowsTotal) string { return t.name }, func(t *rowsTotal, round int) error {
		return r.round(ctx, t, round)
	})
}

// round runs one method of one job, from a full stock on.
func (r *rowsRun) round(ctx context.Context, t *rowsTotal, round int) error {
	s, job := r.b.Sizes.rows, r.jobs[t.job]
	if _, err := r.conn.Exec(ctx, "truncate stock"); err != nil {
		return err
	}
	if _, err := r.conn.Exec(ctx, "insert into stock select sku, $1, 0, 0 from generate_series(0, $2::int - 1) sku", job.stock, job.rows); err != nil {
		return err
	}
	before, err := r.serverCPU(ctx)
	if err != nil {
		return err
	}
	rt := rowsTask{
		Method: t.name, Server: r.pg.Conn, Goroutines: s.goroutines, Rows: job.rows, Duration: s.round,
		// A key that a worker left locked at the end of a round must not spoil the next, nor another's.
		Prefix: fmt.Sprintf("rows-%s-%d-%d", t.name, t.job, round),
	}
	if round == 0 {
		rt.Duration = min(rt.Duration, 300*time.Millisecond)
	}
	rt.Begin = time.Now().Add(50 * time.Millisecond)
	answers, err := rowsTasks.All(r.ws, rt)
	if err != nil {
		return err
	}
	after, err := r.serverCPU(ctx)
	if err != nil {
		return err
	}
	var left int64
	if err := r.conn.QueryRow(ctx, "select sum(units)::bigint from stock").Scan(&left); err != nil {
		return err
	}
	var sold int64
	var last time.Duration
	for _, a := range answers {
		sold += a.Sections
		last = max(last, a.Last)
		t.refused += a.Refused
		t.failed += a.Failed
		if t.failure == "" {
			t.failure = a.Failure
		}
	}
	// What is not in order counts in round 0, too.
	t.missing += sold - (job.stock*int64(job.rows) - left)
	if round == 0 {
		return nil
	}
	var parts []*hotResult
	for _, a := range answers {
		parts = append(parts, &a.hotResult)
		t.conflicts += a.Conflicts
	}
	addHot(&t.Tally, parts, last, after-before)
	return nil
}

// serverCPU is what PostgreSQL and Redis have used so far.
func (r *rowsRun) serverCPU(ctx context.Context) (time.Duration, error) {
	total, err := harness.ServerCPU(ctx, r.b.Admin)
	return total + harness.ProcessCPU(r.pg.PIDs()), err
}

func rowsResults(s rowsSizes, totals []*rowsTotal) report.Result {
	r := report.Result{
		Title: fmt.Sprintf("ROWS: rows of a database, read and written one lower, %d processes x %d goroutines; %d rounds of at most %v of each, by turns",
			s.processes, s.goroutines, s.rounds, s.round),
		Table: [][]string{{"", "sales/s", "(min..max)", "ratio", "(min..max)", "p50 ms", "p99", "p99.9", "max", "again/sale",
			"commands", "bytes", "CPU s per million", "of the servers", "allocations", "Jain (processes)", "oversold"}},
	}
	find := func(job int, name string) *rowsTotal {
		for _, t := range totals {
			if t.job == job && t.name == name {
				return t
			}
		}
		return nil
	}
	for i, job := range s.jobs() {
		var first *stats.Tally
		if t := find(i, rivals.ClusterVariant); t != nil {
			first = &t.Tally
		}
		if len(totals) > 0 {
			r.Table = append(r.Table, []string{job.name})
		}
		var list []report.Contestant
		for _, t := range totals {
			if t.job != i {
				continue
			}
			per := func(x float64) string { return stats.Number(t.Per(x)) }
			r.Table = append(r.Table, slices.Concat([]string{"  " + t.name}, t.RateCells(first), t.WaitCells(), []string{
				per(float64(t.conflicts)), per(float64(t.All.Commands)), per(float64(t.All.Bytes())),
				per(t.All.CPU.Seconds() * 1e6), per(t.Serving.Seconds() * 1e6), per(float64(t.All.Allocs)),
				stats.Number(stats.Jain(t.Parts)), stats.Number(float64(t.missing)),
			}))
			what, kind := t.name+", "+job.short(), report.KindOf(t.name)
			if t.name == methodUpdate {
				kind = chart.Floor
			}
			list = append(list, report.Contestant{Name: what, Kind: kind, Tally: &t.Tally})
			if t.failed > 0 {
				r.Notes = append(r.Notes, fmt.Sprintf("%s: %s sales failed; one: %s", what, figures.Thousands(t.failed), t.failure))
			}
			r.Claims = append(r.Claims, report.AtMost(0, math.Abs(float64(t.missing)), what+": units sold that the rows do not account for, or the other way"))
			if t.fenced {
				r.Claims = append(r.Claims, report.AtMost(0, float64(t.refused), what+": writes that the row refused for their token"))
			}
		}
		if first != nil {
			r.Contest(fmt.Sprintf("rows-%d", job.rows), job.short()+" of a database, read and written", list)
		}
	}
	said := make(map[string]bool)
	for _, t := range totals {
		if !said[t.name] {
			said[t.name] = true
			r.Notes = append(r.Notes, t.name+": "+t.how)
		}
	}
	r.Notes = append(r.Notes,
		"ratio: the cluster's sales/s to this line's, in each round; median of the rounds. A sale is durable when it counts: each waits for the disk",
		"again: attempts that met another's write; commands: to Redis, bytes: both ways to Redis and PostgreSQL, statements and rows included;",
		"CPU: of the processes, and of PostgreSQL's (by the kernel's count) and redis-server",
		"oversold: sales that were counted, but that the rows' units do not show; below 0: units that are gone without a sale")
	if first, rival := find(0, rivals.ClusterVariant), find(0, methodForUpdate); first != nil && rival != nil {
		r.Claims = append(r.Claims, report.AtMost(rowsCPU, stats.Ratio(first.serverPerSale(), rival.serverPerSale()),
			"CPU time of the servers per sale of one row, times that of "+rival.name))
	}
	return r
}

func (t *rowsTotal) serverPerSale() float64 { return t.Per(t.Serving.Seconds()) }

// short names the job in a claim.
func (j rowJob) short() string {
	if j.rows == 1 {
		return "one row"
	}
	return "many rows"
}
