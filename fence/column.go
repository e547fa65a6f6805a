package fence

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/holdfast-go/holdfast/coord"
)

// A Column is a column for tokens in a table of the caller's, of 64 bits; NULL means that there was
// no token yet. Check locks the row that the caller reads next. Its methods are safe for concurrent
// use.
type Column struct {
	// Dialect is that of the database. It must be set.
	Dialect Dialect

	// Table is the name of the table, as SQL has it. It must be set.
	Table string

	// Key is the name of the column that identifies a row, which must be unique. It must be set.
	Key string

	// Name is the name of the column for tokens. Default "fence".
	Name string

	// Tx are the options of transactions that DoTx begins. Nil: the driver's defaults.
	Tx *sql.TxOptions
}

// Statement returns the statement of Check with its arguments: see [Table.Statement]. No row is
// [ErrNoRow].
func (c Column) Statement(row any, token coord.Fence) (text string, args []any, err error) {
	if err := c.Dialect.validate("Column"); err != nil {
		return "", nil, err
	}
	if c.Table == "" || c.Key == "" {
		return "", nil, fmt.Errorf("fence: Column.Table is %q and Column.Key %q: both must be set", c.Table, c.Key)
	}
	if err := check(fmt.Sprint(row), token); err != nil {
		return "", nil, err
	}
	name := c.Name
	if name == "" {
		name = "fence"
	}
	if c.Dialect == MySQL {
		return fmt.Sprintf("UPDATE %s SET %s = LAST_INSERT_ID(GREATEST(COALESCE(%s, 0), ?)) WHERE %s = ?", c.Table, name, name, c.Key),
			[]any{token, row}, nil
	}
	return fmt.Sprintf("UPDATE %s SET %s = CASE WHEN COALESCE(%s, 0) < $1 THEN $1 ELSE %s END WHERE %s = $2 RETURNING %s",
		c.Table, name, name, name, c.Key, name), []any{token, row}, nil
}

// Check is that of [Table], for the row with row in its key column. It returns [ErrNoRow] if there
// is none.
func (c Column) Check(ctx context.Context, tx Tx, row any, token coord.Fence) error {
	if err := inTx(tx); err != nil {
		return err
	}
	return c.put(ctx, tx, row, token)
}

// Put is that of [Table].
func (c Column) Put(ctx context.Context, db *sql.DB, row any, token coord.Fence) error {
	return c.put(ctx, db, row, token)
}

func (c Column) put(ctx context.Context, db Tx, row any, token coord.Fence) error {
	text, args, err := c.Statement(row, token)
	if err != nil {
		return err
	}
	seen, err := c.Dialect.put(ctx, db, text, args...)
	if err != nil {
		return fmt.Errorf("fence: %s %v: %w", c.Table, row, err)
	}
	return Judge(fmt.Sprint(row), token, seen)
}

// DoTx is that of [Table]. It locks key and checks the token of the row.
func (c Column) DoTx(ctx context.Context, locks Locker, db *sql.DB, key string, row any, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return doTx(ctx, c.Dialect, locks, db, c.Tx, key, fn, func(ctx context.Context, tx *sql.Tx, l coord.Lock) error {
		return c.Check(ctx, tx, row, l.Fence())
	})
}
