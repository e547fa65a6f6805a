package rivals

import (
	"context"
	"fmt"
	"hash/fnv"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/dbserver"
)

var PostgresKind = &ServerKind{
	Name:   "PostgreSQL",
	Debian: "postgresql",
	user:   "postgres",
	Find:   FindPostgres,
	command: func(ctx context.Context, s *Server) (*exec.Cmd, error) {
		data := filepath.Join(s.dir, "data")
		initdb := filepath.Join(filepath.Dir(s.program), "initdb")
		if err := s.prepare(ctx, initdb, "--pgdata", data, "--username", "bench", "--auth", "trust", "--no-sync"); err != nil {
			return nil, err
		}
		s.Conn = "postgres://bench@127.0.0.1:" + s.port + "/postgres?sslmode=disable"
		return exec.Command(s.program, "-D", data, "-p", s.port, "-k", s.dir,
			"-c", "listen_addresses=127.0.0.1", "-c", "max_connections=400"), nil
	},
	version: func(ctx context.Context, conn string) (name string, err error) {
		pool, err := pgxpool.New(ctx, conn)
		if err != nil {
			return "", err
		}
		defer pool.Close()
		err = pool.QueryRow(ctx, "select 'PostgreSQL ' || current_setting('server_version')").Scan(&name)
		return name, err
	},
	end: syscall.SIGQUIT, // its other processes, too
}

func FindPostgres() (string, bool) {
	dir, err := dbserver.FindPostgres()
	return filepath.Join(dir, "postgres"), err == nil
}

// OpenPool opens a pool with a connection per goroutine.
func OpenPool(e Environment) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(e.Server)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(e.Goroutines + 1)
	cfg.ConnConfig.DialFunc = e.Count.Dial
	return pgxpool.NewWithConfig(context.Background(), cfg)
}

// openAdvisory uses session locks: each waits in the server, in order of arrival.
func openAdvisory(e Environment) (Locker, error) {
	pool, err := OpenPool(e)
	if err != nil {
		return nil, err
	}
	return &advisoryLock{pool, e.Namespace}, nil
}

type advisoryLock struct {
	pool      *pgxpool.Pool
	namespace string
}

func (a *advisoryLock) Section(ctx context.Context, key string, inside func(uint64)) (err error) {
	c, err := a.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release() // a cancelled call closes its connection, and so its lock ends
	n := int64(HashOf(a.namespace, key))
	if _, err := c.Exec(ctx, "select pg_advisory_lock($1)", n); err != nil {
		return err
	}
	inside(0)
	_, err = c.Exec(context.WithoutCancel(ctx), "select pg_advisory_unlock($1)", n)
	return err
}

// HashOf is for servers where names are numbers, or short.
func HashOf(namespace, key string) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, namespace, ":", key)
	return h.Sum64()
}

func (a *advisoryLock) Close(context.Context) error {
	a.pool.Close()
	return nil
}
