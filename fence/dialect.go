package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/coord"
)

// A Dialect is a kind of SQL.
type Dialect uint8

// The dialects.
const (
	Postgres Dialect = iota + 1
	MySQL            // MariaDB as well
	SQLite           // 3.35 or later
)

var dialects = [...]string{"", "Postgres", "MySQL", "SQLite"}

// String returns the name of the constant.
func (d Dialect) String() string {
	if d > 0 && int(d) < len(dialects) {
		return dialects[d]
	}
	return fmt.Sprintf("Dialect(%d)", uint8(d))
}

func (d Dialect) validate(of string) error {
	if d == 0 || int(d) >= len(dialects) {
		return fmt.Errorf("fence: %s.Dialect is %v, must be Postgres, MySQL or SQLite", of, d)
	}
	return nil
}

// A Tx is a transaction: *sql.Tx, *sqlx.Tx, bun.Tx, or the ConnPool of gorm's Statement.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// put raises the stored token, and returns the highest one. Its statement is the only one, so the
// row is locked when it returns, until the transaction ends.
func (d Dialect) put(ctx context.Context, db Tx, text string, args ...any) (seen coord.Fence, err error) {
	var n int64
	if d == MySQL {
		result, err := db.ExecContext(ctx, text, args...)
		if err != nil {
			return 0, err
		}
		if n, err = result.LastInsertId(); err != nil {
			return 0, err
		}
		if n == 0 {
			return 0, ErrNoRow
		}
		return coord.Fence(n), nil
	}
	err = db.QueryRowContext(ctx, text, args...).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, ErrNoRow
	}
	return coord.Fence(n), err
}

// inTx returns an error if tx is a pool of connections, where each statement is a transaction.
func inTx(tx Tx) error {
	if _, ok := tx.(interface{ Stats() sql.DBStats }); ok {
		return errors.New("fence: Check needs the transaction that reads and writes, not the database: see Put")
	}
	return nil
}
