package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/internal/dbtest"
)

var dialects = map[dbtest.Kind]fence.Dialect{postgresKind: fence.Postgres, mariadbKind: fence.MySQL, sqliteKind: fence.SQLite}

// arg writes a statement with ? as the dialect has it.
func (d *database) arg(text string) string {
	for i := 1; d.Kind != mariadbKind && strings.Contains(text, "?"); i++ {
		text = strings.Replace(text, "?", fmt.Sprintf("$%d", i), 1)
	}
	return text
}

// increase reads the counter and writes one more. So does each of the sections below, in another
// way.
func (d *database) increase(ctx context.Context, tx fence.Tx) error {
	var n int64
	if err := tx.QueryRowContext(ctx, `SELECT n FROM counters WHERE name = 'a'`).Scan(&n); err != nil {
		return err
	}
	return d.write(ctx, tx, n+1)
}

func (d *database) write(ctx context.Context, tx fence.Tx, n int64) error {
	_, err := tx.ExecContext(ctx, d.arg(`UPDATE counters SET n = ? WHERE name = 'a'`), n)
	return err
}

// plain is a transaction that calls before, reads and writes, and then calls after.
func (d *database) plain(before, after func(context.Context, *sql.Tx, coord.Lock) error) section {
	return func(ctx context.Context, l coord.Lock, db *sql.DB) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := before(ctx, tx, l); err != nil {
			return err
		}
		if err := d.increase(ctx, tx); err != nil {
			return err
		}
		if err := after(ctx, tx, l); err != nil {
			return err
		}
		return tx.Commit()
	}
}

func nothing(context.Context, *sql.Tx, coord.Lock) error { return nil }

func (d *database) counters() {
	d.mustExec(`CREATE TABLE counters (name VARCHAR(100) PRIMARY KEY, n BIGINT NOT NULL, fence BIGINT)`)
	if err := (fence.Table{Dialect: dialects[d.Kind]}).EnsureTable(d.t.Context(), d.db); err != nil {
		d.t.Fatal(err)
	}
}

// sweep stops the section before each of its statements in turn, has another one run meanwhile, and
// returns how many updates were lost.
func (d *database) sweep(s section) (lost int64) {
	d.t.Helper()
	for stop := 0; ; stop++ {
		d.mustExec(`DELETE FROM counters`)
		d.mustExec(`INSERT INTO counters (name, n) VALUES ('a', 0)`)
		where, errs := d.race(stop, s, s)
		if where == "" {
			if stop < 4 { // begin, read, write, commit
				d.t.Errorf("only %d statements", stop)
			}
			return lost
		}
		var done int64
		for _, err := range errs {
			if err == nil {
				done++
			}
		}
		if errs[1] != nil {
			d.t.Errorf("stopped before %s: the later holder: %v", where, errs[1])
		}
		n := d.number(`SELECT n FROM counters`)
		if n > done {
			d.t.Errorf("stopped before %s: %d updates, %d acknowledged", where, n, done)
		}
		lost += done - n
	}
}

// A holder that stops between any two statements loses no update that the kit guards, and loses
// some of those that it does not guard.
func TestStalledHolders(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		d.counters()
		table := fence.Table{Dialect: dialects[d.Kind]}
		column := fence.Column{Dialect: dialects[d.Kind], Table: "counters", Key: "name"}
		check := func(ctx context.Context, tx *sql.Tx, l coord.Lock) error { return table.Check(ctx, tx, "a", l.Fence()) }
		guarded := map[string]section{
			"Table.Check": d.plain(check, nothing),
			"Table.DoTx, serializable": func(ctx context.Context, l coord.Lock, db *sql.DB) error {
				table := fence.Table{Dialect: table.Dialect, Tx: &sql.TxOptions{Isolation: sql.LevelSerializable}}
				return table.DoTx(ctx, stoppable{l}, db, "a", func(ctx context.Context, tx *sql.Tx) error { return d.increase(ctx, tx) })
			},
			"Column.Check": d.plain(func(ctx context.Context, tx *sql.Tx, l coord.Lock) error {
				return column.Check(ctx, tx, "a", l.Fence())
			}, nothing),
			"Table.DoTx": func(ctx context.Context, l coord.Lock, db *sql.DB) error {
				return table.DoTx(ctx, stoppable{l}, db, "a", func(ctx context.Context, tx *sql.Tx) error { return d.increase(ctx, tx) })
			},
			"Column.DoTx": func(ctx context.Context, l coord.Lock, db *sql.DB) error {
				return column.DoTx(ctx, stoppable{l}, db, "a", "a", func(ctx context.Context, tx *sql.Tx) error { return d.increase(ctx, tx) })
			},
			"Put": func(ctx context.Context, l coord.Lock, db *sql.DB) error {
				if err := table.Put(ctx, db, "a", l.Fence()); err != nil {
					return err
				}
				var n int64
				if err := db.QueryRowContext(ctx, `SELECT n FROM counters WHERE name = 'a'`).Scan(&n); err != nil {
					return err
				}
				return table.DoTx(ctx, stoppable{l}, db, "a", func(ctx context.Context, tx *sql.Tx) error { return d.write(ctx, tx, n+1) })
			},
		}
		for name, s := range guarded {
			t.Run(name, func(t *testing.T) {
				d := d.in(t)
				if lost := d.sweep(s); lost != 0 {
					t.Errorf("%d updates were lost", lost)
				}
			})
		}
		if d.Kind == sqliteKind {
			return // it has one writer at a time, and refuses one that has read before another wrote
		}
		for name, s := range map[string]section{
			"no token":         d.plain(nothing, nothing),
			"Check in the end": d.plain(nothing, check),
			"Check in its own tx": func(ctx context.Context, l coord.Lock, db *sql.DB) error {
				if err := table.Put(ctx, db, "a", l.Fence()); err != nil {
					return err
				}
				return d.plain(nothing, nothing)(ctx, l, db)
			},
		} {
			t.Run(name, func(t *testing.T) {
				d := d.in(t)
				lost := d.sweep(s)
				t.Logf("%d updates were lost", lost)
				if lost == 0 {
					t.Error("no update was lost: the test would not notice one")
				}
			})
		}
	}, dbtest.Kinds...)
}

func (d *database) in(t *testing.T) *database {
	c := *d
	c.t = t
	return &c
}

func TestTable_Check(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		d.counters()
		table := fence.Table{Dialect: dialects[d.Kind]}
		inTx := func(key string, token coord.Fence) error {
			tx, err := d.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if err := table.Check(t.Context(), tx, key, token); err != nil {
				return err
			}
			return tx.Commit()
		}
		const high = 1<<63 - 1
		for _, step := range []struct {
			key   string
			token coord.Fence
			stale bool
		}{
			{"k", 5, false}, {"k", 5, false}, {"k", 4, true}, {"k", 6, false}, {"k", 5, true},
			{"K", 1, false}, {"k ", 1, false}, {"ключ", 1, false}, // other keys
			{"k", high, false}, {"k", high - 1, true}, {"k", high, false},
		} {
			err := inTx(step.key, step.token)
			var stale *fence.StaleError
			switch {
			case step.stale && (!errors.Is(err, fence.ErrStale) || !errors.As(err, &stale) || stale.Fence != step.token || stale.Seen <= step.token):
				t.Errorf("%q, %d: %v", step.key, step.token, err)
			case !step.stale && err != nil:
				t.Errorf("%q, %d: %v", step.key, step.token, err)
			}
		}
		if err := inTx("k", 0); err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("no token: %v", err)
		}
		if err := inTx("k", high+1); err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("2^63: %v", err)
		}
		if err := table.Check(t.Context(), d.db, "k", high); err == nil || !strings.Contains(err.Error(), "transaction") {
			t.Errorf("Check without a transaction: %v", err)
		}
		if err := table.EnsureTable(t.Context(), d.db); err != nil {
			t.Errorf("once more: %v", err)
		}
	}, dbtest.Kinds...)
}

func TestColumn_Check(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		d.mustExec(`CREATE TABLE orders (id BIGINT PRIMARY KEY, token BIGINT)`)
		d.mustExec(`INSERT INTO orders (id) VALUES (7), (8)`)
		column := fence.Column{Dialect: dialects[d.Kind], Table: "orders", Key: "id", Name: "token"}
		for _, step := range []struct {
			token coord.Fence
			stale bool
		}{{5, false}, {5, false}, {4, true}, {6, false}} {
			if err := column.Put(t.Context(), d.db, 7, step.token); errors.Is(err, fence.ErrStale) != step.stale || !step.stale && err != nil {
				t.Errorf("%d: %v", step.token, err)
			}
		}
		if n := d.number(`SELECT token FROM orders WHERE id = 7`); n != 6 {
			t.Errorf("the row has %d", n)
		}
		if n := d.number(`SELECT COUNT(*) FROM orders WHERE id = 8 AND token IS NULL`); n != 1 {
			t.Error("another row has a token")
		}
		if err := column.Put(t.Context(), d.db, 9, 1); !errors.Is(err, fence.ErrNoRow) {
			t.Errorf("no row: %v", err)
		}
	}, dbtest.Kinds...)
}

func TestSettings(t *testing.T) {
	for name, err := range map[string]error{
		"Table.Dialect":  fence.Table{}.Put(t.Context(), nil, "k", 1),
		"Dialect(4)":     fence.Table{Dialect: 4}.EnsureTable(t.Context(), nil),
		"Column.Dialect": fence.Column{Table: "t", Key: "k"}.Put(t.Context(), nil, "k", 1),
		"Column.Table":   fence.Column{Dialect: fence.MySQL, Key: "k"}.Put(t.Context(), nil, "k", 1),
		"Column.Key":     fence.Column{Dialect: fence.MySQL, Table: "k"}.Put(t.Context(), nil, "k", 1),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
