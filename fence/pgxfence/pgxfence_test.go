package pgxfence_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/internal/dbtest"
	"github.com/holdfast-go/holdfast/fence/pgxfence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) (*pgxpool.Pool, *coord.Coordinator) {
	t.Helper()
	server, err := dbtest.Start(t.Context(), dbtest.Postgres)
	if errors.Is(err, dbtest.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	pool, err := pgxpool.New(t.Context(), server.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	locks, err := coord.New(t.Context(), fallback.NewMemory(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close(context.Background()) })
	return pool, locks
}

func TestDoTx(t *testing.T) {
	pool, locks := open(t)
	ctx := t.Context()
	table, column := pgxfence.Table{}, pgxfence.Column{Table: "stock", Key: "sku"}
	if err := table.EnsureTable(ctx, pool); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, `CREATE TABLE stock (sku BIGINT PRIMARY KEY, units BIGINT NOT NULL, fence BIGINT);
		INSERT INTO stock VALUES (7, 1000, NULL)`); err != nil {
		t.Fatal(err)
	}
	sell := func(ctx context.Context, tx pgx.Tx) error {
		var units int64
		if err := tx.QueryRow(ctx, `SELECT units FROM stock WHERE sku = 7`).Scan(&units); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE stock SET units = $1 WHERE sku = 7`, units-1)
		return err
	}
	var work sync.WaitGroup
	const each = 20
	for range each {
		work.Go(func() {
			if err := table.DoTx(ctx, locks, pool, "sku/7", sell); err != nil {
				t.Error(err)
			}
			if err := column.DoTx(ctx, locks, pool, "sku/7", 7, sell); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	var units int64
	if err := pool.QueryRow(ctx, `SELECT units FROM stock`).Scan(&units); err != nil || units != 1000-2*each {
		t.Errorf("%d are left, %v", units, err)
	}
	if err := column.Put(ctx, pool, 8, 1); !errors.Is(err, fence.ErrNoRow) {
		t.Errorf("no row: %v", err)
	}
	if err := table.Put(ctx, pool, "sku/7", 1); !errors.Is(err, fence.ErrStale) {
		t.Errorf("an old token: %v", err)
	}
	if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return table.Check(ctx, tx, "sku/7", 1) }); !errors.Is(err, fence.ErrStale) {
		t.Errorf("an old token in a transaction: %v", err)
	}
	never := func(context.Context, pgx.Tx) error { t.Error("it is called with a stale token"); return nil }
	for _, err := range []error{
		table.Put(ctx, pool, "sku/7", 1<<63-1), column.Put(ctx, pool, 7, 1<<63-1), // of a later holder
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := table.DoTx(ctx, locks, pool, "sku/7", never); !errors.Is(err, fence.ErrStale) {
		t.Errorf("DoTx of a table: %v", err)
	}
	if err := column.DoTx(ctx, locks, pool, "sku/7", 7, never); !errors.Is(err, fence.ErrStale) {
		t.Errorf("DoTx of a column: %v", err)
	}
}

// A transaction that PostgreSQL could not serialize is begun again; one whose connection ends while
// it is committed is not.
func TestDoTx_Again(t *testing.T) {
	pool, locks := open(t)
	ctx := t.Context()
	table := pgxfence.Table{Tx: pgx.TxOptions{IsoLevel: pgx.Serializable}}
	if err := table.EnsureTable(ctx, pool); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, `CREATE TABLE n (n BIGINT); INSERT INTO n VALUES (0)`); err != nil {
		t.Fatal(err)
	}
	calls := 0
	if err := table.DoTx(ctx, locks, pool, "k", func(ctx context.Context, tx pgx.Tx) error {
		calls++
		var n int64
		if err := tx.QueryRow(ctx, `SELECT n FROM n`).Scan(&n); err != nil {
			return err
		}
		if calls == 1 {
			if _, err := pool.Exec(ctx, `UPDATE n SET n = n + 10`); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, `UPDATE n SET n = $1`, n+1)
		return err
	}); err != nil || calls != 2 {
		t.Errorf("%v, called %d times", err, calls)
	}
	calls = 0
	err := table.DoTx(ctx, locks, pool, "k", func(ctx context.Context, tx pgx.Tx) error {
		calls++
		if _, err := tx.Exec(ctx, `UPDATE n SET n = 0`); err != nil {
			return err
		}
		_, err := pool.Exec(ctx, `SELECT pg_terminate_backend($1, 10000)`, int64(tx.Conn().PgConn().PID()))
		return err
	})
	if !errors.Is(err, fence.ErrUnknown) || calls != 1 {
		t.Errorf("%v, called %d times", err, calls)
	}
	ended, cancel := context.WithTimeout(ctx, time.Hour)
	if err := table.DoTx(ended, locks, pool, "k", func(context.Context, pgx.Tx) error { cancel(); return nil }); !errors.Is(err, context.Canceled) || errors.Is(err, fence.ErrUnknown) {
		t.Errorf("a context that has ended: %v", err)
	}
	var n int64
	if err := pool.QueryRow(ctx, `SELECT n FROM n`).Scan(&n); err != nil || n != 11 {
		t.Errorf("the row has %d, %v", n, err)
	}
}
