package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fence/internal/dbtest"
)

// servers are those that tests share. Each test has a database of its own.
var servers = make(map[dbtest.Kind]*dbtest.Database)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, s := range servers {
		if err := s.Close(); err != nil {
			log.Print(err)
			code = 1
		}
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			log.Print(err)
			code = 1
		}
	}
	os.Exit(code)
}

func server(t *testing.T, kind dbtest.Kind) *dbtest.Database {
	t.Helper()
	s := servers[kind]
	if s == nil || kind == sqliteKind {
		var err error
		if s, err = dbtest.Start(t.Context(), kind); errors.Is(err, dbtest.ErrNotInstalled) {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
		if kind == sqliteKind {
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			return s
		}
		servers[kind] = s
	}
	fresh, err := s.Fresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return fresh
}

const (
	sqliteKind   = dbtest.SQLite
	postgresKind = dbtest.Postgres
	mariadbKind  = dbtest.MariaDB
)

// A doer locks a key: a *coord.Coordinator, or a holder that can be stopped.
type doer interface {
	Do(ctx context.Context, key string, fn func(ctx context.Context, l coord.Lock) error) error
}

// stoppable is a holder that gets to know nothing: neither does its lock's context end, nor does
// Unlock fail. A process that is stopped for longer than its lease is such a holder until it looks
// at a clock.
type stoppable struct{ l coord.Lock }

func (s stoppable) Do(ctx context.Context, _ string, fn func(context.Context, coord.Lock) error) error {
	return fn(ctx, s.l)
}

// A database is one that a test uses.
type database struct {
	*dbtest.Database
	t     *testing.T
	db    *sql.DB // without a gate
	locks *coord.Coordinator
}

// eachDatabase runs a test with an empty database of each kind.
func eachDatabase(t *testing.T, test func(t *testing.T, d *database), kinds ...dbtest.Kind) {
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			test(t, open(t, kind))
		})
	}
}

func open(t *testing.T, kind dbtest.Kind) *database {
	t.Helper()
	locks, err := coord.New(t.Context(), fallback.NewMemory(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close(context.Background()) })
	d := &database{Database: server(t, kind), t: t, locks: locks}
	d.db = d.gated(nil)
	return d
}

// gated opens the database with a gate in front.
func (d *database) gated(g dbtest.Gate) *sql.DB {
	d.t.Helper()
	db, err := d.Open(g)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { db.Close() })
	return db
}

func (d *database) mustExec(text string, args ...any) {
	d.t.Helper()
	if _, err := d.db.Exec(text, args...); err != nil {
		d.t.Fatal(err)
	}
}

func (d *database) number(text string, args ...any) (n int64) {
	d.t.Helper()
	if err := d.db.QueryRow(text, args...).Scan(&n); err != nil {
		d.t.Fatal(err)
	}
	return n
}

// lock locks a key, and returns the lock as it is after that: a token that is over.
func (d *database) lock() coord.Lock {
	d.t.Helper()
	l, err := d.locks.Lock(d.t.Context(), "a")
	if err != nil {
		d.t.Fatal(err)
	}
	if err := l.Unlock(); err != nil {
		d.t.Fatal(err)
	}
	return l
}

type section = func(ctx context.Context, l coord.Lock, db *sql.DB) error

// race has the first holder stop before its statement number stop. It waits there until the second,
// with a later token, is done, or cannot go on before the first. It returns the statement; "" if
// there is none.
func (d *database) race(stop int, first, second section) (where string, errs [2]error) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	defer cancel()
	earlier, later := d.lock(), d.lock()

	stopped, goOn := make(chan string, 1), make(chan struct{})
	var count atomic.Int64
	gated := d.gated(func(statement string) error {
		if count.Add(1) == int64(stop)+1 {
			stopped <- statement
			<-goOn
		}
		return nil
	})
	firstDone, secondDone := make(chan error, 1), make(chan error, 1)
	go func() { firstDone <- first(ctx, earlier, gated) }()
	select {
	case where = <-stopped:
	case errs[0] = <-firstDone:
		if errs[0] != nil {
			d.t.Fatal(errs[0])
		}
		return "", errs
	}
	go func() { secondDone <- second(ctx, later, d.db) }()
	select {
	case errs[1] = <-secondDone:
		close(goOn)
	case <-time.After(50 * time.Millisecond): // it waits for a row of the first
		close(goOn)
		errs[1] = <-secondDone
	}
	errs[0] = <-firstDone
	return where, errs
}
