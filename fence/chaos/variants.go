package main

import (
	"cmp"
	"context"
	"database/sql"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/internal/dbtest"
)

// A variant is a way to read a counter and to write one more, under a lock.
type variant struct {
	name    string
	guarded bool // no update may be lost
	section func(ctx context.Context, w *worker) error
}

// The SQL of all variants, and which dialect it is in.
type statements struct {
	dialect     fence.Dialect
	read, write string
	writeFenced string
}

var sqls = map[dbtest.Kind]statements{
	dbtest.Postgres: {fence.Postgres, `SELECT n FROM counters WHERE name = 'a'`, `UPDATE counters SET n = $1 WHERE name = 'a'`,
		`UPDATE counters SET n = $1, fence = $2 WHERE name = 'a' AND COALESCE(fence, 0) <= $2`},
	dbtest.MariaDB: {fence.MySQL, `SELECT n FROM counters WHERE name = 'a'`, `UPDATE counters SET n = ? WHERE name = 'a'`,
		`UPDATE counters SET n = ?, fence = ? WHERE name = 'a' AND COALESCE(fence, 0) <= ?`},
}

func init() {
	s := sqls[dbtest.Postgres]
	s.dialect = fence.SQLite
	sqls[dbtest.SQLite] = s
}

var variants = []variant{
	{"no token", false, func(ctx context.Context, w *worker) error {
		return w.locks.Do(ctx, "a", func(ctx context.Context, l coord.Lock) error {
			n, err := w.read(ctx, w.db)
			if err != nil {
				return err
			}
			if err := w.write(ctx, w.db, n+1); err != nil {
				return unknown(err)
			}
			return errDone
		})
	}},
	{"token in the last write", false, func(ctx context.Context, w *worker) error {
		return w.locks.Do(ctx, "a", func(ctx context.Context, l coord.Lock) error {
			n, err := w.read(ctx, w.db)
			if err != nil {
				return err
			}
			args := []any{n + 1, l.Fence()}
			if w.sql.dialect == fence.MySQL {
				args = append(args, l.Fence())
			}
			r, err := w.db.ExecContext(ctx, w.sql.writeFenced, args...)
			if err != nil {
				return unknown(err)
			}
			if changed, err := r.RowsAffected(); err != nil || changed == 0 {
				return cmp.Or(err, fence.ErrStale)
			}
			return errDone
		})
	}},
	{"Table.DoTx", true, func(ctx context.Context, w *worker) error {
		return w.table.DoTx(ctx, w.locks, w.db, "a", w.increase)
	}},
	{"Column.DoTx", true, func(ctx context.Context, w *worker) error {
		return w.column.DoTx(ctx, w.locks, w.db, "a", "a", w.increase)
	}},
	{"Put, then Check", true, func(ctx context.Context, w *worker) error {
		return w.locks.Do(ctx, "a", func(ctx context.Context, l coord.Lock) error {
			if err := w.table.Put(ctx, w.db, "a", l.Fence()); err != nil {
				return err
			}
			n, err := w.read(ctx, w.db)
			if err != nil {
				return err
			}
			tx, err := w.db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if err := w.table.Check(ctx, tx, "a", l.Fence()); err != nil {
				return err
			}
			if err := w.write(ctx, tx, n+1); err != nil {
				return err
			}
			return w.commit(tx)
		})
	}},
}

func (w *worker) increase(ctx context.Context, tx *sql.Tx) error {
	n, err := w.read(ctx, tx)
	if err != nil {
		return err
	}
	return w.write(ctx, tx, n+1)
}

func (w *worker) read(ctx context.Context, db fence.Tx) (n int64, err error) {
	err = db.QueryRowContext(ctx, w.sql.read).Scan(&n)
	time.Sleep(rand.N(4 * time.Millisecond)) // the decision takes a moment
	return n, err
}

func (w *worker) write(ctx context.Context, db fence.Tx, n int64) error {
	_, err := db.ExecContext(ctx, w.sql.write, n)
	return err
}
