package subjects

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/rivals"
)

const rowsTable = `create table stock (
	sku     bigint primary key,
	units   bigint not null,
	version bigint not null,
	fence   bigint not null -- the token of who wrote last
)`

// rowMethod is one way to let only one at a time read a row and write it.
type rowMethod struct {
	name   string
	how    string
	lock   string // the variant of the lock that is held meanwhile; empty: none
	fenced bool   // a write carries the lock's token, and the row refuses one that is not above the last
	more   bool   // only with -rivals all
	unsafe bool   // it breaks the rules
	sell   func(ctx context.Context, c *pgxpool.Conn, s *sale) error
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
)

var rowMethods = []rowMethod{
	{
		name: rivals.ClusterVariant, lock: rivals.ClusterVariant, fenced: true, sell: readAndWrite,
		how: "Lock, SELECT, UPDATE ... WHERE fence < the lock's token, Unlock",
	},
	{name: "Holdfast", lock: "Holdfast", fenced: true, sell: readAndWrite, how: "the same without a cluster"},
	{name: methodForUpdate, sell: forUpdate, how: "BEGIN, SELECT FOR UPDATE, UPDATE, COMMIT"},
	{name: "version", sell: byVersion, how: "SELECT, UPDATE ... WHERE version is what was read; again at once if it is not"},
	{name: rivals.Advisory, sell: underAdvisory, how: "pg_advisory_lock, SELECT, UPDATE, pg_advisory_unlock on one connection"},
	{
		name: "SET NX PX, 100 ms", lock: "SET NX PX, 100 ms", sell: readAndWrite,
		how: "the lock that most write themselves, SELECT, UPDATE, and the script that deletes it; a write that comes late is not refused",
	},
	{name: "SET NX PX, 5 ms", lock: "SET NX PX, 5 ms", more: true, sell: readAndWrite, how: "the same, again after 5 ms"},
	{name: methodUpdate, sell: oneUpdate, how: "no lock: UPDATE ... SET units = units - 1 WHERE units > 0. The floor, where one statement will do"},
	{name: "no lock", unsafe: true, sell: readAndWrite, how: "SELECT and UPDATE"},
}

func findMethod(name string) (*rowMethod, error) {
	for i := range rowMethods {
		if rowMethods[i].name == name {
			return &rowMethods[i], nil
		}
	}
	return nil, fmt.Errorf("no method %q", name)
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

var rowsTasks = harness.NewTask("rows", sellRows)

// rowsTask tells a worker to sell. Without Duration it only opens the method.
type rowsTask struct {
	Method     string        `json:"method"`
	Server     string        `json:"server"`
	Goroutines int           `json:"goroutines"`
	Rows       int           `json:"rows"` // more than 1: by zipf
	Prefix     string        `json:"prefix"`
	Begin      time.Time     `json:"begin"` // the same for all workers
	Duration   time.Duration `json:"duration"`
}

// rowsResult is what one process did in one round.
type rowsResult struct {
	hotResult               // Sections: sales
	Refused   int64         `json:"refused"`
	Conflicts int64         `json:"conflicts"`
	Last      time.Duration `json:"last"` // when the last one was sold, after Begin
}

// rowsPool is what all methods of a process share.
type rowsPool struct {
	pool  *pgxpool.Pool
	count *harness.Counter
}

// seller is a method in one process.
type seller struct {
	*rowMethod
	pool *pgxpool.Pool
	lock rivals.Locker // nil: none
}

func sellRows(ctx context.Context, h *harness.Host, t rowsTask) (*rowsResult, error) {
	m, err := findMethod(t.Method)
	if err != nil {
		return nil, err
	}
	pool, err := harness.Kept(h, "rows", func() (*rowsPool, error) {
		p := &rowsPool{count: new(harness.Counter)}
		var err error
		if p.pool, err = rivals.OpenPool(rivals.Environment{Server: t.Server, Goroutines: t.Goroutines, Count: p.count}); err == nil {
			h.AtEnd(func() error { p.pool.Close(); return nil })
		}
		return p, err
	})
	if err != nil {
		return nil, err
	}
	s, counters := seller{rowMethod: m, pool: pool.pool}, [2]*harness.Counter{pool.count}
	if m.lock != "" {
		lock := hotTask{Variant: m.lock, Goroutines: t.Goroutines}
		if m.lock == "Holdfast" {
			lock.Apart = apart
		}
		v, err := get(h, lock)
		if err != nil {
			return nil, err
		}
		s.lock, counters[1] = v.Locker, v.count
	}
	all := new(rowsResult)
	if t.Duration == 0 {
		return all, nil
	}
	parts := make([]rowsResult, t.Goroutines)
	all.Effort = together(ctx, t.Begin, t.Duration, len(parts), func(ctx context.Context, i int) {
		s.run(ctx, t, uint64(h.Process*10_000+i), &parts[i])
	}, counters[:]...)
	for _, p := range parts {
		all.add([]hotResult{p.hotResult})
		all.Refused += p.Refused
		all.Conflicts += p.Conflicts
		all.Last = max(all.Last, p.Last)
	}
	return all, nil
}

// run is one goroutine: it sells until ctx ends or a row is sold out. Only the wait for a lock ends
// with ctx, so that each sale is either made and counted or not made.
func (s *seller) run(ctx context.Context, t rowsTask, who uint64, r *rowsResult) {
	var zipf *rand.Zipf
	if t.Rows > 1 {
		zipf = rand.NewZipf(rand.New(rand.NewPCG(who, uint64(t.Begin.UnixNano()))), zipfS, 1, uint64(t.Rows-1))
	}
	for ctx.Err() == nil {
		one := sale{key: t.Prefix + "-0"}
		if zipf != nil {
			one.sku = int64(zipf.Uint64())
			one.key = t.Prefix + "-" + strconv.FormatInt(one.sku, 10)
		}
		begin := time.Now()
		err := s.try(ctx, &one)
		r.Conflicts += one.conflicts
		if err != nil && (ctx.Err() == nil || one.tried) {
			r.Failed++
			r.Failure = err.Error()
			time.Sleep(10 * time.Millisecond) // do not spin on a fault that stays
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
