package rivals

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// AdvisoryRW is PostgreSQL's advisory lock of a key, shared by readers. Who waits does so in the server, in order of arrival.
type AdvisoryRW struct {
	pool *pgxpool.Pool
	key  int64
}

// OpenAdvisoryRW opens one, with a connection for each goroutine.
func OpenAdvisoryRW(e Environment, key string) (*AdvisoryRW, error) {
	pool, err := OpenPool(e)
	if err != nil {
		return nil, err
	}
	return &AdvisoryRW{pool, int64(HashOf(e.Namespace, key))}, nil
}

// RLock waits for the lock for reading, and returns what unlocks it.
func (a *AdvisoryRW) RLock(ctx context.Context) (unlock func() error, err error) {
	return a.lock(ctx, "select pg_advisory_lock_shared($1)", "select pg_advisory_unlock_shared($1)")
}

// Lock waits for the lock for writing, and returns what unlocks it.
func (a *AdvisoryRW) Lock(ctx context.Context) (unlock func() error, err error) {
	return a.lock(ctx, "select pg_advisory_lock($1)", "select pg_advisory_unlock($1)")
}

func (a *AdvisoryRW) lock(ctx context.Context, lock, done string) (unlock func() error, err error) {
	c, err := a.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := c.Exec(ctx, lock, a.key); err != nil {
		c.Release() // a cancelled call closes its connection, and so its lock ends
		return nil, err
	}
	return func() error {
		defer c.Release()
		_, err := c.Exec(context.Background(), done, a.key)
		return err
	}, nil
}

// Close closes the connections.
func (a *AdvisoryRW) Close() error {
	a.pool.Close()
	return nil
}
