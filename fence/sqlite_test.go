package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
)

// A reader of a database without WAL is in the way of COMMIT, which writes nothing then. The
// transaction is done again, and succeeds once the reader has ended.
func TestDoTx_SQLiteIsLockedAtCommit(t *testing.T) {
	locks, db := newLocks(t), openFile(t)
	var table fence.Table
	table.Dialect = fence.SQLite
	if err := table.EnsureTable(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	reader, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	calls := 0
	err = table.DoTx(t.Context(), locks, db, "a", func(ctx context.Context, tx *sql.Tx) error {
		switch calls++; calls {
		case 1:
			return read(ctx, reader)
		case 2:
			_, err := reader.ExecContext(ctx, "COMMIT")
			return err
		}
		return nil
	})
	if err != nil || calls != 2 {
		t.Errorf("%v, called %d times", err, calls)
	}
	calls = 0
	err = table.DoTx(t.Context(), locks, db, "a", func(ctx context.Context, tx *sql.Tx) error {
		if calls++; calls > 1 {
			return nil
		}
		return read(ctx, reader)
	})
	if err == nil || errors.Is(err, fence.ErrUnknown) || !strings.Contains(err.Error(), "locked") || calls < 2 {
		t.Errorf("%v, called %d times", err, calls)
	}
}

// read begins to read, and goes on.
func read(ctx context.Context, c *sql.Conn) error {
	var n int
	if _, err := c.ExecContext(ctx, "BEGIN"); err != nil {
		return err
	}
	return c.QueryRowContext(ctx, "SELECT count(*) FROM fences").Scan(&n)
}

// A deferred constraint is checked at COMMIT, before anything is written.
func TestDoTx_SQLiteChecksAtCommit(t *testing.T) {
	locks, db := newLocks(t), openFile(t)
	var table fence.Table
	table.Dialect = fence.SQLite
	if err := table.EnsureTable(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE lines (of_order INTEGER REFERENCES orders (id) DEFERRABLE INITIALLY DEFERRED)"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE orders (id INTEGER PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	calls := 0
	err := table.DoTx(t.Context(), locks, db, "a", func(ctx context.Context, tx *sql.Tx) error {
		calls++
		_, err := tx.ExecContext(ctx, "INSERT INTO lines VALUES (1)")
		return err
	})
	if err == nil || errors.Is(err, fence.ErrUnknown) || !strings.Contains(err.Error(), "FOREIGN KEY") || calls != 1 {
		t.Errorf("%v, called %d times", err, calls)
	}
}

// openFile opens a file of SQLite with its defaults but for foreign keys: without WAL, and without
// a wait for locks.
func openFile(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "db")+"?_pragma=foreign_keys(1)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}
