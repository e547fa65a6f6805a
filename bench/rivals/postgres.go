package rivals

import (
	"context"
	"fmt"
	"hash/fnv"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/dbserver"
)

var PostgresKind = &ServerKind{
	Name:   "PostgreSQL",
	Debian: "postgresql",
	Find: func() (string, bool) {
		programs, err := dbserver.FindPostgres()
		return programs, err == nil
	},
	script: dbserver.Script{
		Start: `
"$1/initdb" --pgdata data --username bench --auth trust --no-sync >&2 || exit 1
"$1/postgres" -D data -p %[1]s -k "$2" -c listen_addresses=127.0.0.1 -c max_connections=400 >&2 &`,
		End:     `kill -QUIT $!`, // its other processes end with it
		Account: "postgres",
	},
	conn: "postgres://bench@127.0.0.1:%[1]s/postgres?sslmode=disable",
	version: func(ctx context.Context, conn string) (name string, err error) {
		pool, err := pgxpool.New(ctx, conn)
		if err != nil {
			return "", err
		}
		defer pool.Close()
		err = pool.QueryRow(ctx, "select 'PostgreSQL ' || current_setting('server_version')").Scan(&name)
		return name, err
	},
}

const lockSQL, unlockSQL = "select pg_advisory_lock($1)", "select pg_advisory_unlock($1)"

// openPool opens a pool with a connection per goroutine, and these connections.
func openPool(e Environment) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(e.Server)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(e.Goroutines + 1)
	cfg.ConnConfig.DialFunc = e.Count.Dial
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return nil, err
	}
	if err := fill(context.Background(), pool); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// fill opens the connections that a pool has not, and locks and unlocks on each, which prepares the
// statements. The server starts a process for a connection: that takes from one to twenty
// milliseconds, by the machine.
func fill(ctx context.Context, pool *pgxpool.Pool) error {
	var all []*pgxpool.Conn
	defer func() {
		for _, c := range all {
			c.Release()
		}
	}()
	for range pool.Config().MaxConns {
		c, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		all = append(all, c)
		own := int64(c.Conn().PgConn().PID())
		if _, err := c.Exec(ctx, lockSQL, own); err != nil {
			return err
		}
		if _, err := c.Exec(ctx, unlockSQL, own); err != nil {
			return err
		}
	}
	return nil
}

// openAdvisory uses session locks: each waits in the server, in order of arrival.
func openAdvisory(e Environment) (*Locker, error) {
	pool, err := openPool(e)
	if err != nil {
		return nil, err
	}
	return &Locker{
		Section: func(ctx context.Context, key string, inside func(uint64)) error {
			c, err := pool.Acquire(ctx)
			if err != nil {
				return err
			}
			defer c.Release() // a cancelled call closes its connection, and so its lock ends
			n := hashOf(e.Namespace, key)
			if _, err := c.Exec(ctx, lockSQL, n); err != nil {
				return err
			}
			inside(0)
			_, err = c.Exec(context.WithoutCancel(ctx), unlockSQL, n)
			return err
		},
		ready: func(ctx context.Context) error { return fill(ctx, pool) },
		shut:  pool.Close,
	}, nil
}

// OpenAdvisoryRW opens PostgreSQL's advisory lock of a key, shared by readers, with a connection
// for each goroutine. All wait in the server, in order of arrival.
func OpenAdvisoryRW(e Environment, key string) (*RW, error) {
	pool, err := openPool(e)
	if err != nil {
		return nil, err
	}
	n := hashOf(e.Namespace, key)
	lock := func(lock, done string) func(context.Context) (func() error, error) {
		return func(ctx context.Context) (unlock func() error, err error) {
			c, err := pool.Acquire(ctx)
			if err != nil {
				return nil, err
			}
			if _, err := c.Exec(ctx, lock, n); err != nil {
				c.Release()
				return nil, err
			}
			return func() error {
				defer c.Release()
				_, err := c.Exec(context.Background(), done, n)
				return err
			}, nil
		}
	}
	return &RW{
		RLock: lock("select pg_advisory_lock_shared($1)", "select pg_advisory_unlock_shared($1)"),
		Lock:  lock(lockSQL, unlockSQL),
		shut:  pool.Close,
	}, nil
}

// hashOf is the number that names a lock.
func hashOf(namespace, key string) int64 {
	h := fnv.New64a()
	fmt.Fprint(h, namespace, ":", key)
	return int64(h.Sum64())
}
