package subjects

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// rowsSizes: processes x goroutines change rows of a PostgreSQL, in rounds of each method by turns.
// A round ends when everything is sold.
type rowsSizes struct {
	Crowd       // its keys are the rows of the other job
	stock int64 // units of the one row that is sold out
}

// What must hold, besides that nothing is sold twice. How many are sold per second depends on the
// disk above all, for which every sale waits; what the servers have to do for one does not.
const rowsCPU = 0.6 // times the servers' CPU time per sale by SELECT FOR UPDATE, where all want one row, at most

// plenty is a stock that no round uses up.
const plenty = 1 << 40

func (s rowsSizes) jobs() []*job {
	one := s.Crowd
	one.Keys = 1
	return []*job{
		{Name: "one row", Title: fmt.Sprintf("%s units of one row, until they are sold", figures.Thousands(s.stock)), Crowd: one, Stock: s.stock},
		{Name: "many rows", Title: fmt.Sprintf("read-modify-write of %s rows by zipf(%v)", figures.Thousands(int64(s.Keys)), zipfS), Crowd: s.Crowd, Stock: plenty},
	}
}

const rowsTable = `create table stock (
	sku     bigint primary key,
	units   bigint not null,
	version bigint not null,
	fence   bigint not null -- the token of who wrote last
)`

// method is one way to let only one at a time read a row and write it.
type method struct {
	lock string // the variant of the lock that is held meanwhile; empty: none
	sell func(ctx context.Context, c *pgxpool.Conn, s *sale) error
}

// sale is one attempt to sell a unit.
type sale struct {
	sku       int64
	key       string // for locks
	fence     uint64
	tried     bool // it got as far as the row
	failed    bool // there
	soldOut   bool
	refused   bool // for its token
	conflicts int64
}

const (
	methodForUpdate = "SELECT FOR UPDATE"
	methodUpdate    = "one UPDATE"
	methodNone      = "no lock"
)

// rowWays are the methods. A write of what is fenced carries the lock's token, and the row refuses
// one that is not above the last.
var rowWays = []way{
	fencedRows(rivals.ClusterVariant, "Lock, SELECT, UPDATE ... WHERE fence < the lock's token, Unlock"),
	fencedRows(rivals.PlainVariant, "the same without a cluster"),
	rows(methodForUpdate, "BEGIN, SELECT FOR UPDATE, UPDATE, COMMIT", "", forUpdate),
	rows("version", "SELECT, UPDATE ... WHERE version is what was read; again at once if it is not", "", byVersion),
	rows(rivals.Advisory, "pg_advisory_lock, SELECT, UPDATE, pg_advisory_unlock on one connection", "", underAdvisory),
	rows("SET NX PX, 100 ms", "the lock that most write themselves, SELECT, UPDATE, and the script that deletes it; a write that comes late is not refused",
		"SET NX PX, 100 ms", readAndWrite),
	rows("SET NX PX, 5 ms", "the same, again after 5 ms", "SET NX PX, 5 ms", readAndWrite),
	rows(methodUpdate, "no lock: UPDATE ... SET units = units - 1 WHERE units > 0. The floor, where one statement will do", "", oneUpdate),
	rows(methodNone, "SELECT and UPDATE", "", readAndWrite),
}

func rows(name, how, lock string, sell func(ctx context.Context, c *pgxpool.Conn, s *sale) error) way {
	v := rivals.Variant{Name: name, How: how, Server: rivals.PostgresKind, In: "rows"}
	switch name {
	case "SET NX PX, 5 ms":
		v.In, v.More = "", "rows"
	case methodNone:
		v.In = ""
	}
	return way{Variant: v, floor: name == methodUpdate, redis: true, open: (&method{lock, sell}).open}
}

func fencedRows(name, how string) way {
	w := rows(name, how, name, readAndWrite)
	w.Fenced = true
	return w
}

func measureRows(ctx context.Context, b *Run) (report.Result, error) {
	return measureMethods(ctx, b, b.in("rows"))
}

func measureMethods(ctx context.Context, b *Run, choose func(*way) bool) (report.Result, error) {
	s := b.Sizes.rows
	mine, its, pinned := b.TwoCores()
	if err := b.PinServer(its); err != nil {
		return report.Result{}, err
	}
	if pinned == "" {
		pinned = fmt.Sprintf("pinned: the %d processes to core %d, PostgreSQL to core %d", s.Processes, mine, its)
		if b.PID != 0 {
			pinned += ", and redis-server"
		}
	}
	c := contest{b: b, subject: "rows", kind: "rows"}
	numbers, list := c.chosen(choose)
	if err := c.start(ctx, s.Processes, harness.Placement{Callers: mine, Store: its, Servers: its}, list); err != nil {
		return report.Result{}, err
	}
	if pg := c.servers.Of(rivals.PostgresKind); pg != nil {
		if err := c.sell(ctx, pg.Conn, numbers, s.jobs()); err != nil {
			return report.Result{}, err
		}
	}
	r := rowsResults(s, c.totals)
	describeServers(&r, c.servers, list)
	r.Notes = append([]string{pinned}, r.Notes...)
	return r, nil
}

// sell runs all rounds of all methods, each from a full stock on. The table judges them.
func (c *contest) sell(ctx context.Context, server string, methods []int, jobs []*job) error {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "drop table if exists stock; "+rowsTable); err != nil {
		return err
	}
	c.judged = func(ctx context.Context, t *total, before bool) (sold int64, err error) {
		if before {
			if _, err := conn.Exec(ctx, "truncate stock"); err != nil {
				return 0, err
			}
			_, err = conn.Exec(ctx, "insert into stock select sku, $1, 0, 0 from generate_series(0, $2::int - 1) sku", t.job.Stock, t.job.Keys)
			return 0, err
		}
		var left int64
		err = conn.QueryRow(ctx, "select sum(units)::bigint from stock").Scan(&left)
		return t.job.Stock*int64(t.job.Keys) - left, err
	}
	return c.play(ctx, methods, jobs...)
}

func rowsResults(s rowsSizes, totals []*total) report.Result {
	find := func(job, name string) *total {
		if i := slices.IndexFunc(totals, func(t *total) bool { return t.job.Name == job && t.Name == name }); i >= 0 {
			return totals[i]
		}
		return nil
	}
	columns := func(first *total) []column {
		return []column{
			rates("sales/s", first), waits("p50 ms"), per("again/sale", func(t *total) float64 { return float64(t.sum.Conflicts) }),
			commands("commands"), bytes("bytes"), used("of the servers"),
			shares("Jain (processes)", jain), number("oversold", func(t *total) float64 { return float64(t.missing) }),
		}
	}
	r := report.Result{
		Title: fmt.Sprintf("ROWS: rows of a database, read and written one lower, %d processes x %d goroutines; %d rounds of at most %v of each, by turns",
			s.Processes, s.Goroutines, s.Rounds, s.Round),
		Table: [][]string{headOf(columns(nil))},
	}
	for _, j := range s.jobs() {
		list := slices.DeleteFunc(slices.Clone(totals), func(t *total) bool { return t.job.Name != j.Name })
		if len(list) == 0 {
			continue
		}
		r.Table = append(r.Table, []string{j.Title})
		first := find(j.Name, rivals.ClusterVariant)
		what := func(t *total) string { return t.Name + ", " + j.Name }
		for _, t := range list {
			r.Table = append(r.Table, t.row("  ", columns(first)))
			t.failed(&r, what(t), "sales")
			r.Claims = append(r.Claims, report.AtMost(0, math.Abs(float64(t.missing)), what(t)+": units sold that the rows do not account for, or the other way"))
			if t.Fenced {
				r.Claims = append(r.Claims, report.AtMost(0, float64(t.sum.Refused), what(t)+": writes that the row refused for their token"))
			}
		}
		if first != nil {
			r.Contest(fmt.Sprintf("rows-%d", j.Keys), j.Name+" of a database, read and written", contestants(list, what))
		}
	}
	r.Notes = append(append(r.Notes, describe(variants(totals))...),
		"ratio: the cluster's sales/s to this line's, in each round; median of the rounds. A sale is durable when it counts: each waits for the disk",
		"again: attempts that met another's write; commands: to Redis, bytes: both ways to Redis and PostgreSQL, statements and rows included;",
		"CPU: of the processes, and of PostgreSQL's (by the kernel's count) and redis-server",
		"oversold: sales that were counted, but that the rows' units do not show; below 0: units that are gone without a sale")
	if first, rival := find("one row", rivals.ClusterVariant), find("one row", methodForUpdate); first != nil && rival != nil {
		perSale := func(t *total) float64 { return t.Per(t.Serving.Seconds()) }
		r.Claims = append(r.Claims, report.AtMost(rowsCPU, stats.Ratio(perSale(first), perSale(rival)),
			"CPU time of the servers per sale of one row, times that of "+rival.Name))
	}
	return r
}

// readAndWrite is safe only under a lock.
func readAndWrite(ctx context.Context, c *pgxpool.Conn, s *sale) error {
	units, err := s.read(ctx, c, "select units from stock where sku = $1")
	if err != nil || s.soldOut {
		return err
	}
	if s.fence == 0 {
		_, err := c.Exec(ctx, "update stock set units = $2 where sku = $1", s.sku, units-1)
		return err
	}
	tag, err := c.Exec(ctx, "update stock set units = $2, fence = $3 where sku = $1 and fence < $3", s.sku, units-1, int64(s.fence))
	s.refused = err == nil && tag.RowsAffected() == 0
	return err
}

// querier is a connection or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func (s *sale) read(ctx context.Context, q querier, sql string) (units int64, err error) {
	err = q.QueryRow(ctx, sql, s.sku).Scan(&units)
	s.soldOut = err == nil && units <= 0
	return units, err
}

func forUpdate(ctx context.Context, c *pgxpool.Conn, s *sale) error {
	return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		units, err := s.read(ctx, tx, "select units from stock where sku = $1 for update")
		if err != nil || s.soldOut {
			return err
		}
		_, err = tx.Exec(ctx, "update stock set units = $2 where sku = $1", s.sku, units-1)
		return err
	})
}

func byVersion(ctx context.Context, c *pgxpool.Conn, s *sale) error {
	for {
		var units, version int64
		err := c.QueryRow(ctx, "select units, version from stock where sku = $1", s.sku).Scan(&units, &version)
		if s.soldOut = err == nil && units <= 0; err != nil || s.soldOut {
			return err
		}
		tag, err := c.Exec(ctx, "update stock set units = $3, version = version + 1 where sku = $1 and version = $2", s.sku, version, units-1)
		if err != nil || tag.RowsAffected() == 1 {
			return err
		}
		s.conflicts++
	}
}

func underAdvisory(ctx context.Context, c *pgxpool.Conn, s *sale) error {
	n := int64(rivals.HashOf("", s.key))
	if _, err := c.Exec(ctx, "select pg_advisory_lock($1)", n); err != nil {
		return err
	}
	err := readAndWrite(ctx, c, s)
	_, unlocked := c.Exec(ctx, "select pg_advisory_unlock($1)", n)
	return errors.Join(err, unlocked)
}

func oneUpdate(ctx context.Context, c *pgxpool.Conn, s *sale) error {
	tag, err := c.Exec(ctx, "update stock set units = units - 1 where sku = $1 and units > 0", s.sku)
	s.soldOut = err == nil && tag.RowsAffected() == 0
	return err
}

// seller is a method in one process.
type seller struct {
	*method
	fenced bool
	pool   *pgxpool.Pool
	lock   *rivals.Locker // nil: none
}

// open opens the method, on a pool that all methods of a process share.
func (m *method) open(p *place) (*opened, error) {
	type shared struct {
		*pgxpool.Pool
		count *harness.Counter
	}
	pool, err := harness.Kept(p.h, "rows' pool", func() (s shared, err error) {
		p.Count = new(harness.Counter)
		if s.Pool, err = rivals.OpenPool(p.Environment); err == nil {
			p.h.AtEnd(func() error { s.Close(); return nil })
		}
		s.count = p.Count
		return s, err
	})
	if err != nil {
		return nil, err
	}
	s, o := &seller{method: m, fenced: p.Fenced, pool: pool.Pool}, &opened{counters: []*harness.Counter{pool.count}}
	if m.lock != "" {
		v, err := variantOf(p.h, m.lock, "", p.Goroutines)
		if err != nil {
			return nil, err
		}
		s.lock, o.node = v.Locker, v.Node
		o.counters = append(o.counters, v.count)
	}
	o.round = func(t roundTask) func(context.Context, int, *roundResult) {
		return func(ctx context.Context, i int, r *roundResult) { s.run(ctx, t, uint64(p.h.Process*10_000+i), r) }
	}
	return o, nil
}

// run is one goroutine: it sells until ctx ends or a row is sold out. Only the wait for a lock ends
// with ctx, so that each sale is either made and counted or not made.
func (s *seller) run(ctx context.Context, t roundTask, me uint64, r *roundResult) {
	next := zipfOver(t.Job.Keys, me)
	for ctx.Err() == nil {
		one := sale{sku: int64(next())}
		one.key = t.Key + "-" + strconv.FormatInt(one.sku, 10)
		begin := time.Now()
		err := s.try(ctx, &one)
		r.Conflicts += one.conflicts
		if err != nil && (ctx.Err() == nil || one.tried) {
			r.fails(err)
		}
		switch {
		case !one.tried:
			if ctx.Err() != nil {
				r.Waits.Record(time.Since(begin)) // a wait that the end of the round cuts off counts, as long as it was
			}
		case one.failed:
		case one.soldOut:
			return
		case one.refused:
			r.Refused++
		default:
			r.Sections++
			r.Waits.Record(time.Since(begin))
			r.Last = time.Since(t.Begin)
		}
	}
}

func (s *seller) try(ctx context.Context, one *sale) error {
	if s.lock == nil {
		return s.write(ctx, one)
	}
	var trouble error
	err := s.lock.Section(ctx, one.key, func(fence uint64) {
		if s.fenced {
			one.fence = fence
		}
		trouble = s.write(ctx, one)
	})
	return errors.Join(trouble, err) // of a sale that was made, too, if it could not unlock
}

func (s *seller) write(ctx context.Context, one *sale) error {
	one.tried = true
	ctx = context.WithoutCancel(ctx)
	c, err := s.pool.Acquire(ctx)
	if err == nil {
		err = s.sell(ctx, c, one)
		c.Release()
	}
	one.failed = err != nil
	return err
}
