package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/internal/dbtest"
	"github.com/holdfast-go/holdfast/fence/redisfence"
)

// A variant is a way to read a counter and to write one more, under a lock.
type variant struct {
	name    string
	guarded bool // no update may be lost
	section func(ctx context.Context, w *worker) error

	// resource is where the counter is, and count reads it. Nil: in the database.
	resource string
	count    func(ctx context.Context, o order) (int64, error)
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
	{name: "no token", guarded: false, section: func(ctx context.Context, w *worker) error {
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
	{name: "token in the last write", guarded: false, section: func(ctx context.Context, w *worker) error {
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
	{name: "Table.DoTx", guarded: true, section: func(ctx context.Context, w *worker) error {
		return w.table.DoTx(ctx, w.locks, w.db, "a", w.increase)
	}},
	{name: "Column.DoTx", guarded: true, section: func(ctx context.Context, w *worker) error {
		return w.column.DoTx(ctx, w.locks, w.db, "a", "a", w.increase)
	}},
	{name: "Put, then Check", guarded: true, section: func(ctx context.Context, w *worker) error {
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
	{"no token", false, func(ctx context.Context, w *worker) error { return w.inRedis(ctx, false) }, "redis", countRedis},
	{"redisfence", true, func(ctx context.Context, w *worker) error { return w.inRedis(ctx, true) }, "redis", countRedis},
	{"no token", false, func(ctx context.Context, w *worker) error {
		return w.locks.Do(ctx, "a", func(context.Context, coord.Lock) error {
			old, err := os.ReadFile(w.File)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			next, err := w.next(old)
			if err != nil {
				return err
			}
			name := w.File + strconv.Itoa(os.Getpid())
			if err := os.WriteFile(name, next, 0o600); err != nil {
				return err
			}
			return cmp.Or(os.Rename(name, w.File), errDone)
		})
	}, "file", countFile},
	{"UpdateFile", true, func(ctx context.Context, w *worker) error {
		return w.locks.Do(ctx, "a", func(ctx context.Context, l coord.Lock) error {
			if err := w.gate(""); err != nil {
				return err
			}
			return cmp.Or(fence.UpdateFile(ctx, w.File, l.Fence(), w.next), errDone)
		})
	}, "file", countFile},
}

func countFile(_ context.Context, o order) (int64, error) {
	text, err := os.ReadFile(o.File)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(text), 10, 64)
}

func countRedis(ctx context.Context, o order) (int64, error) {
	client := redis.NewClient(&redis.Options{Addr: o.Redis, ContextTimeoutEnabled: true})
	defer client.Close()
	return client.Get(ctx, o.Run).Int64()
}

var setCounter = redisfence.NewScript(`return redis.call("SET", KEYS[1], ARGV[1])`)

// inRedis reads the counter in a key, and writes one more.
func (w *worker) inRedis(ctx context.Context, guarded bool) error {
	return w.locks.Do(ctx, "a", func(ctx context.Context, l coord.Lock) error {
		if guarded {
			err := w.gate("")
			if err == nil {
				err = redisfence.Put(ctx, w.redis, w.Run+":fence", l.Fence())
			}
			if err != nil {
				return err
			}
		}
		old, err := w.redis.Get(ctx, w.Run).Bytes()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		next, err := w.next(old)
		if err != nil {
			return err
		}
		if guarded {
			err = setCounter.Run(ctx, w.redis, w.Run+":fence", l.Fence(), []string{w.Run}, next).Err()
		} else {
			err = w.redis.Set(ctx, w.Run, next, 0).Err()
		}
		if err != nil && !errors.Is(err, fence.ErrStale) {
			return unknown(err)
		}
		return cmp.Or(err, errDone)
	})
}

// next returns the number after that in old, which is 0 if there is none. The worker may stop
// before and after the decision.
func (w *worker) next(old []byte) ([]byte, error) {
	n, err := strconv.Atoi(cmp.Or(string(old), "0"))
	if err == nil {
		err = w.gate("")
	}
	time.Sleep(rand.N(4 * time.Millisecond)) // the decision takes a moment
	if err == nil {
		err = w.gate("")
	}
	return strconv.AppendInt(nil, int64(n)+1, 10), err
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
