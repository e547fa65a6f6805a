package fence

import (
	"context"
	"database/sql"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fence/internal/attempt"
)

// A Locker locks keys. A [*coord.Coordinator] is one.
type Locker = attempt.Locker

func doTx(ctx context.Context, d Dialect, locks Locker, db *sql.DB, opts *sql.TxOptions, key string,
	fn func(context.Context, *sql.Tx) error, check func(context.Context, *sql.Tx, coord.Lock) error) error {
	outer := ctx
	return attempt.Run(ctx, locks, key, func(ctx context.Context, l coord.Lock) (attempt.Outcome, error) {
		tx, err := db.BeginTx(ctx, opts)
		if err != nil {
			return attempt.RolledBack, err
		}
		defer func() { _ = tx.Rollback() }() // unless it was committed
		if err := check(ctx, tx, l); err != nil {
			return attempt.RolledBack, err
		}
		if err := fn(ctx, tx); err != nil {
			return attempt.RolledBack, err
		}
		if err := attempt.Over(outer, ctx); err != nil {
			return attempt.RolledBack, err
		}
		err = tx.Commit()
		return attempt.Ended(err, d == Postgres), err
	})
}
