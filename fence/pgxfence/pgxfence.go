// Package pgxfence is package fence for programs that use pgx without database/sql. The table, the
// statements and the guarantees are the same, so a program may use both.
package pgxfence

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/internal/attempt"
)

// A DB is a database: *pgxpool.Pool or *pgx.Conn.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}

// A Table is a [fence.Table].
type Table struct {
	// Name is the name of the table, with a schema or without, as SQL has it. Default "fences".
	Name string

	// Tx are the options of transactions that DoTx begins. The zero value: the server's defaults.
	Tx pgx.TxOptions
}

func (t Table) table() fence.Table { return fence.Table{Dialect: fence.Postgres, Name: t.Name} }

// EnsureTable makes the table if it is not there. [fence.Table.Schema] is its statement, for a
// migration.
func (t Table) EnsureTable(ctx context.Context, db DB) error {
	text := t.table().Schema()
	_, err := db.Exec(ctx, text)
	if err != nil { // another process may do the same now
		_, err = db.Exec(ctx, text)
	}
	if err != nil {
		return fmt.Errorf("pgxfence: %w", err)
	}
	return nil
}

// Check is [fence.Table.Check]: the first statement of the transaction.
func (t Table) Check(ctx context.Context, tx pgx.Tx, key string, token coord.Fence) error {
	return t.put(ctx, tx, key, token)
}

// Put is [fence.Table.Put].
func (t Table) Put(ctx context.Context, db DB, key string, token coord.Fence) error {
	return t.put(ctx, db, key, token)
}

func (t Table) put(ctx context.Context, db querier, key string, token coord.Fence) error {
	text, args, err := t.table().Statement(key, token)
	if err != nil {
		return err
	}
	return put(ctx, db, key, token, text, args)
}

// DoTx is [fence.Table.DoTx].
func (t Table) DoTx(ctx context.Context, locks fence.Locker, db DB, key string, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return doTx(ctx, locks, db, t.Tx, key, fn, func(ctx context.Context, tx pgx.Tx, l coord.Lock) error {
		return t.Check(ctx, tx, key, l.Fence())
	})
}

// A Column is a [fence.Column].
type Column struct {
	Table string        // the caller's table. It must be set.
	Key   string        // the column that identifies a row. It must be set.
	Name  string        // the column for tokens, of type bigint. Default "fence".
	Tx    pgx.TxOptions // of transactions that DoTx begins. The zero value: the server's defaults.
}

// Check is [fence.Column.Check].
func (c Column) Check(ctx context.Context, tx pgx.Tx, row any, token coord.Fence) error {
	return c.put(ctx, tx, row, token)
}

// Put is [fence.Column.Put].
func (c Column) Put(ctx context.Context, db DB, row any, token coord.Fence) error {
	return c.put(ctx, db, row, token)
}

func (c Column) put(ctx context.Context, db querier, row any, token coord.Fence) error {
	text, args, err := fence.Column{Dialect: fence.Postgres, Table: c.Table, Key: c.Key, Name: c.Name}.Statement(row, token)
	if err != nil {
		return err
	}
	return put(ctx, db, fmt.Sprint(row), token, text, args)
}

// DoTx is [fence.Column.DoTx].
func (c Column) DoTx(ctx context.Context, locks fence.Locker, db DB, key string, row any, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return doTx(ctx, locks, db, c.Tx, key, fn, func(ctx context.Context, tx pgx.Tx, l coord.Lock) error {
		return c.Check(ctx, tx, row, l.Fence())
	})
}

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func put(ctx context.Context, db querier, key string, token coord.Fence, text string, args []any) error {
	var seen int64
	err := db.QueryRow(ctx, text, args...).Scan(&seen)
	if errors.Is(err, pgx.ErrNoRows) {
		err = fence.ErrNoRow
	}
	if err != nil {
		return fmt.Errorf("pgxfence: key %q: %w", key, err)
	}
	return fence.Judge(key, token, coord.Fence(seen))
}

func doTx(ctx context.Context, locks fence.Locker, db DB, opts pgx.TxOptions, key string,
	fn func(context.Context, pgx.Tx) error, check func(context.Context, pgx.Tx, coord.Lock) error) error {
	outer := ctx
	return attempt.Run(ctx, locks, key, func(ctx context.Context, l coord.Lock) (attempt.Outcome, error) {
		tx, err := db.BeginTx(ctx, opts)
		if err != nil {
			return attempt.RolledBack, err
		}
		// The connection has to be given back though ctx has ended. It does nothing after a commit.
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		if err := check(ctx, tx, l); err != nil {
			return attempt.RolledBack, err
		}
		if err := fn(ctx, tx); err != nil {
			return attempt.RolledBack, err
		}
		if err := attempt.Over(outer, ctx); err != nil {
			return attempt.RolledBack, err
		}
		err = tx.Commit(ctx)
		return attempt.Ended(err, true), err
	})
}
