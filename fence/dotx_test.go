package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/internal/dbtest"
)

// losing is a Locker whose first locks were lost by the time that the function returned.
type losing struct {
	*coord.Coordinator
	times int
	calls int
}

func (l *losing) Do(ctx context.Context, key string, fn func(context.Context, coord.Lock) error) error {
	err := l.Coordinator.Do(ctx, key, fn)
	if l.calls++; l.calls <= l.times {
		err = errors.Join(err, &coord.LossError{Key: key, Cause: coord.SessionExpired})
	}
	return err
}

// overtaken is a Locker whose first lock another holder has had before the function begins, or that
// a test loses.
type overtaken struct {
	*coord.Coordinator
	by    func(ctx context.Context, first coord.Lock) error // may be nil
	lose  context.CancelCauseFunc                           // ends the context of the lock that is held
	calls int
}

func (o *overtaken) Do(ctx context.Context, key string, fn func(context.Context, coord.Lock) error) error {
	return o.Coordinator.Do(ctx, key, func(ctx context.Context, l coord.Lock) error {
		ctx, o.lose = context.WithCancelCause(ctx)
		defer o.lose(nil)
		if o.calls++; o.calls == 1 && o.by != nil {
			if err := o.by(ctx, l); err != nil {
				return err
			}
		}
		return fn(ctx, l)
	})
}

func fresh(t *testing.T, d *database) (fence.Table, func() int64) {
	d.counters()
	d.mustExec(`INSERT INTO counters (name, n) VALUES ('a', 0)`)
	return fence.Table{Dialect: dialects[d.Kind]}, func() int64 { return d.number(`SELECT n FROM counters`) }
}

// A committed transaction is not done again, and is no error, though the lock was lost meanwhile.
func TestDoTx_LostAfterCommit(t *testing.T) {
	d := open(t, sqliteKind)
	table, count := fresh(t, d)
	locks := &losing{Coordinator: d.locks, times: 1}
	err := table.DoTx(t.Context(), locks, d.db, "a", func(ctx context.Context, tx *sql.Tx) error { return d.increase(ctx, tx) })
	if err != nil || count() != 1 || locks.calls != 1 {
		t.Errorf("%v, counted %d, locked %d times", err, count(), locks.calls)
	}
}

// A stale token is refused, and the transaction done under another lock.
func TestDoTx_Stale(t *testing.T) {
	d := open(t, sqliteKind)
	table, count := fresh(t, d)
	locks := &overtaken{Coordinator: d.locks, by: func(ctx context.Context, first coord.Lock) error {
		return table.Put(ctx, d.db, "a", first.Fence()+1)
	}}
	err := table.DoTx(t.Context(), locks, d.db, "a", func(ctx context.Context, tx *sql.Tx) error { return d.increase(ctx, tx) })
	if err != nil || count() != 1 || locks.calls != 2 {
		t.Errorf("%v, counted %d, locked %d times", err, count(), locks.calls)
	}
}

// A lock that is lost after the last statement: there is no commit whose outcome would be unknown.
func TestDoTx_LostWithoutAnError(t *testing.T) {
	d := open(t, sqliteKind)
	table, count := fresh(t, d)
	locks := &overtaken{Coordinator: d.locks}
	err := table.DoTx(t.Context(), locks, d.db, "a", func(ctx context.Context, tx *sql.Tx) error {
		err := d.increase(ctx, tx)
		if locks.calls == 1 {
			locks.lose(&coord.LossError{Key: "a", Cause: coord.SessionExpired})
		}
		return err
	})
	if err != nil || count() != 1 || locks.calls != 2 {
		t.Errorf("%v, counted %d, locked %d times", err, count(), locks.calls)
	}
}

// A transaction that was not committed is done again under another lock.
func TestDoTx_LostBeforeCommit(t *testing.T) {
	d := open(t, sqliteKind)
	table, count := fresh(t, d)
	locks := &losing{Coordinator: d.locks, times: 2}
	err := table.DoTx(t.Context(), locks, d.db, "a", func(ctx context.Context, tx *sql.Tx) error {
		if err := d.increase(ctx, tx); err != nil {
			return err
		}
		if locks.calls < 2 {
			return context.Canceled // as statements do whose context has ended
		}
		return nil
	})
	if err != nil || count() != 1 || locks.calls != 3 {
		t.Errorf("%v, counted %d, locked %d times", err, count(), locks.calls)
	}
}

// An answer that is missing is told, and the transaction is not begun again: it was committed here.
func TestDoTx_CommitUnknown(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		table, count := fresh(t, d)
		cut, begun := errors.New("connection cut"), 0
		gated := d.gated(func(statement string) error {
			switch statement {
			case "BEGIN":
				begun++
			case "COMMIT":
				return cut
			}
			return nil
		})
		err := table.DoTx(t.Context(), &losing{Coordinator: d.locks, times: 1}, gated, "a",
			func(ctx context.Context, tx *sql.Tx) error { return d.increase(ctx, tx) })
		if !errors.Is(err, fence.ErrUnknown) || !errors.Is(err, cut) || begun != 1 || count() != 1 {
			t.Errorf("%v, begun %d times, counted %d", err, begun, count())
		}
	}, dbtest.Kinds...)
}

// A server that ends in the middle of a commit may have committed.
func TestDoTx_ServerEndsTheConnection(t *testing.T) {
	d := open(t, postgresKind)
	table, count := fresh(t, d)
	var pid int64
	gated := d.gated(func(statement string) error {
		if statement == "COMMIT" {
			d.number(`SELECT pg_terminate_backend($1, 10000)::int`, pid)
		}
		return nil
	})
	calls := 0
	err := table.DoTx(t.Context(), d.locks, gated, "a", func(ctx context.Context, tx *sql.Tx) error {
		if calls++; calls > 1 {
			t.Error("it is begun again")
		}
		if err := tx.QueryRowContext(ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
			return err
		}
		return d.increase(ctx, tx)
	})
	if !errors.Is(err, fence.ErrUnknown) || count() != 0 {
		t.Errorf("%v, counted %d", err, count())
	}
}

// PostgreSQL has rolled back when a deferred trigger fails at COMMIT, whatever the trigger's error
// is. One that may also come after the commit leaves the outcome unknown.
func TestDoTx_ATriggerFailsAtCommit(t *testing.T) {
	d := open(t, postgresKind)
	table, count := fresh(t, d)
	d.mustExec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN RAISE EXCEPTION 'it is refused' USING ERRCODE = current_setting('test.state'); END $$`)
	d.mustExec(`CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON counters DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION refuse()`)
	for state, unknown := range map[string]bool{
		"P0001": false, "23514": false, "22012": false, "42501": false, "SHOP1": false, "57014": true, "40003": true, "XX000": true,
	} {
		calls := 0
		err := table.DoTx(t.Context(), d.locks, d.db, "a", func(ctx context.Context, tx *sql.Tx) error {
			calls++
			if _, err := tx.ExecContext(ctx, `SELECT set_config('test.state', $1, true)`, state); err != nil {
				return err
			}
			return d.increase(ctx, tx)
		})
		if err == nil || !strings.Contains(err.Error(), "it is refused") || errors.Is(err, fence.ErrUnknown) != unknown || calls != 1 {
			t.Errorf("%s, called %d times: %v", state, calls, err)
		}
	}
	if n := count(); n != 0 {
		t.Errorf("counted %d", n)
	}
}

// Two transactions under different locks are in each other's way. Both succeed, once.
func TestDoTx_Conflicts(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		table, count := fresh(t, d)
		table.Tx = &sql.TxOptions{Isolation: sql.LevelSerializable}
		var both, work sync.WaitGroup
		both.Add(2)
		for _, key := range []string{"x", "y"} {
			work.Go(func() {
				met := false
				err := table.DoTx(t.Context(), d.locks, d.db, key, func(ctx context.Context, tx *sql.Tx) error {
					var n int64
					if err := tx.QueryRowContext(ctx, `SELECT n FROM counters`).Scan(&n); err != nil {
						return err
					}
					if !met && d.Kind != sqliteKind { // where Check makes all transactions wait for each other
						met = true
						both.Done()
						both.Wait()
					}
					return d.write(ctx, tx, n+1)
				})
				if err != nil {
					t.Errorf("%s: %v", key, err)
				}
			})
		}
		work.Wait()
		if n := count(); n != 2 {
			t.Errorf("counted %d", n)
		}
	}, dbtest.Kinds...)
}

// A failed transaction leaves nothing, and its error is that of the function.
func TestDoTx_FunctionFails(t *testing.T) {
	d := open(t, postgresKind)
	table, count := fresh(t, d)
	broken := errors.New("broken")
	run := func(end func(tx *sql.Tx) error) error {
		return table.DoTx(t.Context(), d.locks, d.db, "a", func(ctx context.Context, tx *sql.Tx) error {
			if err := d.increase(ctx, tx); err != nil {
				return err
			}
			return end(tx)
		})
	}
	if err := run(func(*sql.Tx) error { return broken }); err != broken {
		t.Errorf("got %v", err)
	}
	func() {
		defer func() {
			if r := recover(); r != "ouch" {
				t.Errorf("recovered %v", r)
			}
		}()
		_ = run(func(*sql.Tx) error { panic("ouch") })
	}()
	err := run(func(tx *sql.Tx) error {
		_, _ = tx.Exec(`SELECT 1/0`)
		return nil // it hides that the transaction has failed
	})
	if err == nil || errors.Is(err, fence.ErrUnknown) || !strings.Contains(err.Error(), "rollback") {
		t.Errorf("a hidden error: %v", err)
	}
	if err := run(func(tx *sql.Tx) error { return tx.Commit() }); !errors.Is(err, fence.ErrUnknown) {
		t.Errorf("a function that commits: %v", err)
	}
	if n := count(); n != 1 {
		t.Errorf("counted %d, not the one of the function that commits", n)
	}
	if l, err := d.locks.TryLock(t.Context(), "a"); err != nil {
		t.Errorf("the key is still locked: %v", err)
	} else {
		l.Unlock()
	}
}

// A database that has seen a token which no lock reaches any more is not asked for ever.
func TestDoTx_StaleForGood(t *testing.T) {
	d := open(t, sqliteKind)
	table, count := fresh(t, d)
	if err := table.Put(t.Context(), d.db, "a", 1<<63-1); err != nil {
		t.Fatal(err)
	}
	err := table.DoTx(t.Context(), d.locks, d.db, "a", func(ctx context.Context, tx *sql.Tx) error { return d.increase(ctx, tx) })
	if !errors.Is(err, fence.ErrStale) || count() != 0 {
		t.Errorf("%v, counted %d", err, count())
	}
}
