package fence

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/holdfast-go/holdfast/coord"
)

// A Table is a table for the highest token of each key, beside the caller's own. It has one row per
// key. Its methods are safe for concurrent use.
type Table struct {
	// Dialect is that of the database. It must be set.
	Dialect Dialect

	// Name is the name of the table, with a schema or without, as SQL has it. Default "fences".
	Name string

	// Tx are the options of transactions that DoTx begins. Nil: the driver's defaults.
	Tx *sql.TxOptions
}

func (t Table) name() string {
	if t.Name == "" {
		return "fences"
	}
	return t.Name
}

// Schema returns the statement that makes the table, for a migration.
func (t Table) Schema() string {
	kind := "TEXT"
	if t.Dialect == MySQL {
		kind = "VARBINARY(1024)" // text would be compared without regard to case
	}
	return "CREATE TABLE IF NOT EXISTS " + t.name() + " (name " + kind + " NOT NULL PRIMARY KEY, fence BIGINT NOT NULL)"
}

// EnsureTable makes the table if it is not there.
func (t Table) EnsureTable(ctx context.Context, db *sql.DB) error {
	if err := t.Dialect.validate("Table"); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, t.Schema())
	if err != nil { // PostgreSQL fails if another process does the same now
		_, err = db.ExecContext(ctx, t.Schema())
	}
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	return nil
}

// Statement returns the statement of Check with its arguments, for drivers that have no [Tx]. With
// Postgres and SQLite it returns a row with the highest token of the key, which [Judge] looks at.
func (t Table) Statement(key string, token coord.Fence) (text string, args []any, err error) {
	if err := t.Dialect.validate("Table"); err != nil {
		return "", nil, err
	}
	if err := check(key, token); err != nil {
		return "", nil, err
	}
	if t.Dialect == MySQL {
		return "INSERT INTO " + t.name() + " (name, fence) VALUES (?, LAST_INSERT_ID(?))" +
			" ON DUPLICATE KEY UPDATE fence = LAST_INSERT_ID(GREATEST(fence, ?))", []any{key, token, token}, nil
	}
	return "INSERT INTO " + t.name() + " AS f (name, fence) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE" +
		" SET fence = CASE WHEN f.fence < excluded.fence THEN excluded.fence ELSE f.fence END RETURNING fence", []any{key, token}, nil
}

// Check puts the token of the key's lock into the table, as part of the caller's transaction, and
// locks the row until the transaction ends. It must be the first statement: an earlier holder may
// be about to change a row that was read before. After an error the transaction must be rolled
// back; a [*StaleError], which Is [ErrStale], reports that a later holder was there. The same token
// may be checked any number of times.
func (t Table) Check(ctx context.Context, tx Tx, key string, token coord.Fence) error {
	if err := inTx(tx); err != nil {
		return err
	}
	return t.put(ctx, tx, key, token)
}

// Put is for a section that reads, or asks another service, outside of the transaction that writes.
// It comes before the first reading, and puts the token down at once; the transaction that writes
// begins with Check. The Check of an earlier holder is refused after that.
func (t Table) Put(ctx context.Context, db *sql.DB, key string, token coord.Fence) error {
	return t.put(ctx, db, key, token)
}

func (t Table) put(ctx context.Context, db Tx, key string, token coord.Fence) error {
	text, args, err := t.Statement(key, token)
	if err != nil {
		return err
	}
	seen, err := t.Dialect.put(ctx, db, text, args...)
	if err != nil {
		return fmt.Errorf("fence: key %q: %w", key, err)
	}
	return Judge(key, token, seen)
}

// DoTx locks the key, begins a transaction, checks the token, calls fn, and commits. It returns nil
// if the transaction was committed, also if the lock was lost meanwhile: the token has protected
// it. An error that Is [ErrUnknown] reports that it may have been. After all other errors nothing
// was written.
//
// DoTx begins anew if the lock is lost, the token is stale, or the database reports a deadlock or a
// serialization failure. It does so ten times at most and as long as ctx lasts, so fn may be called
// again. A transaction is never begun again after its commit may have been executed.
//
// fn must do all its work with tx, and must neither commit nor roll back. It must heed its context,
// which ends with ctx and if the lock is lost. If fn returns an error or panics, the transaction is
// rolled back.
func (t Table) DoTx(ctx context.Context, locks Locker, db *sql.DB, key string, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return doTx(ctx, t.Dialect, locks, db, t.Tx, key, fn, func(ctx context.Context, tx *sql.Tx, l coord.Lock) error {
		return t.Check(ctx, tx, key, l.Fence())
	})
}
