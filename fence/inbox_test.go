package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/internal/dbtest"
)

func inbox(t *testing.T, d *database) fence.Inbox {
	t.Helper()
	d.counters()
	d.mustExec(`INSERT INTO counters (name, n) VALUES ('a', 0)`)
	b := fence.Inbox{Dialect: dialects[d.Kind]}
	for range 2 {
		if err := b.EnsureTable(t.Context(), d.db); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (d *database) count() int64 { return d.number(`SELECT n FROM counters WHERE name = 'a'`) }

// A message that is delivered again and again, to several callers at once, does its work once.
func TestInbox_Once(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		b := inbox(t, d)
		var all sync.WaitGroup
		for range 5 {
			for _, id := range []string{"m1", "M1", "m1 ", "ünïcode"} { // all different
				all.Go(func() {
					if err := b.Once(t.Context(), d.locks, d.db, id, func(ctx context.Context, tx *sql.Tx) error {
						_, err := tx.ExecContext(ctx, `UPDATE counters SET n = n + 1 WHERE name = 'a'`)
						return err
					}); err != nil {
						t.Errorf("%s: %v", id, err)
					}
				})
			}
		}
		all.Wait()
		if n := d.count(); n != 4 {
			t.Errorf("counted %d", n)
		}
		failed := errors.New("failed")
		for i, want := range []error{failed, nil, nil} {
			if err := b.Once(t.Context(), d.locks, d.db, "m2", func(ctx context.Context, tx *sql.Tx) error {
				return errors.Join(d.increase(ctx, tx), want)
			}); !errors.Is(err, want) {
				t.Errorf("%d: %v", i, err)
			}
		}
		if n := d.count(); n != 5 {
			t.Errorf("counted %d: an error wrote something, or was taken for done", n)
		}
	}, dbtest.Kinds...)
}

// ErrDone of fn, as of another Inbox, rolls back: this message was not executed.
func TestInbox_OnceWithin(t *testing.T) {
	d := open(t, sqliteKind)
	b := inbox(t, d)
	for i, want := range []error{fence.ErrDone, nil, nil} {
		if err := b.Once(t.Context(), d.locks, d.db, "m", func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(d.increase(ctx, tx), want)
		}); !errors.Is(err, want) {
			t.Errorf("%d: %v, want %v", i, err, want)
		}
	}
	if n := d.count(); n != 1 {
		t.Errorf("counted %d", n)
	}
}

// A connection that is cut at any statement, the commit included, before or after it was executed,
// leaves no doubt.
func TestInbox_OnceIsCut(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		b := inbox(t, d)
		cut := errors.New("connection cut")
		for _, at := range []string{"BEGIN", "INSERT", "UPDATE", "COMMIT"} {
			before := d.count()
			var cuts atomic.Int32
			gated := d.gated(func(statement string) error {
				if strings.HasPrefix(statement, at) && cuts.Add(1) == 1 {
					return cut
				}
				return nil
			})
			fn := func(ctx context.Context, tx *sql.Tx) error { return d.increase(ctx, tx) }
			err := b.Once(t.Context(), d.locks, gated, at, fn)
			if at == "COMMIT" && err != nil {
				t.Errorf("%s: %v, though a second look would have told", at, err)
			}
			if err := b.Once(t.Context(), d.locks, d.db, at, fn); err != nil { // it is delivered again
				t.Errorf("%s, again: %v", at, err)
			}
			if n := d.count() - before; n != 1 || cuts.Load() == 0 {
				t.Errorf("%s: done %d times, cut %d times", at, n, cuts.Load())
			}
		}
	}, dbtest.Kinds...)
}

// In a transaction of the caller's: the work and the ID are there together, or neither is.
func TestInbox_Mark(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		b := inbox(t, d)
		deliver := func(commit bool) error {
			tx, err := d.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if err := b.Mark(t.Context(), tx, "m"); err != nil {
				return err
			}
			if err := d.increase(t.Context(), tx); err != nil || !commit {
				return err
			}
			return tx.Commit()
		}
		for i, x := range []struct {
			commit bool
			err    error
			n      int64
		}{{false, nil, 0}, {true, nil, 1}, {true, fence.ErrDone, 1}, {false, fence.ErrDone, 1}} {
			if err := deliver(x.commit); !errors.Is(err, x.err) || d.count() != x.n {
				t.Errorf("%d: %v, counted %d", i, err, d.count())
			}
		}
		if err := b.Mark(t.Context(), d.db, "x"); err == nil {
			t.Error("a Mark without a transaction")
		}
	}, dbtest.Kinds...)
}

func TestInbox_Forget(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		b := inbox(t, d)
		for _, id := range []string{"old", "new"} {
			if err := b.Once(t.Context(), d.locks, d.db, id, func(context.Context, *sql.Tx) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		d.mustExec(`UPDATE inbox SET done_at = done_at - 3600 WHERE id = 'old'`)
		if n, err := b.Forget(t.Context(), d.db, 30*time.Minute); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if n := d.number(`SELECT count(*) FROM inbox WHERE id = 'new'`); n != 1 {
			t.Errorf("%d left", n)
		}
	}, dbtest.Kinds...)
}

func TestInbox_BadUse(t *testing.T) {
	d := open(t, sqliteKind)
	b := inbox(t, d)
	never := func(context.Context, *sql.Tx) error { t.Error("it ran"); return nil }
	for name, err := range map[string]error{
		"Dialect": fence.Inbox{}.Once(t.Context(), d.locks, d.db, "x", never), "Inbox.Dialect": fence.Inbox{}.EnsureTable(t.Context(), d.db),
		"the ID is empty": b.Once(t.Context(), nil, d.db, "", never), // no lock is asked for
		"513 bytes":       b.Once(t.Context(), nil, d.db, strings.Repeat("x", 513), never),
		"positive":        func() error { _, err := b.Forget(t.Context(), d.db, 0); return err }(),
		"168ns":           func() error { _, err := b.Forget(t.Context(), d.db, 7*24); return err }(),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
