package main

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

var postgresKind = &serverKind{
	name:   "PostgreSQL",
	debian: "postgresql",
	user:   "postgres",
	find:   findPostgres,
	command: func(ctx context.Context, s *server) (*exec.Cmd, error) {
		data := filepath.Join(s.dir, "data")
		initdb := filepath.Join(filepath.Dir(s.program), "initdb")
		if err := s.prepare(ctx, initdb, "--pgdata", data, "--username", "bench", "--auth", "trust", "--no-sync"); err != nil {
			return nil, err
		}
		s.conn = "postgres://bench@127.0.0.1:" + s.port + "/postgres?sslmode=disable"
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

func findPostgres() (string, bool) {
	dir, err := dbserver.FindPostgres()
	return filepath.Join(dir, "postgres"), err == nil
}

// openPool opens a pool with a connection per goroutine.
func openPool(e environment) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(e.server)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(e.goroutines + 1)
	cfg.ConnConfig.DialFunc = e.count.dial
	return pgxpool.NewWithConfig(context.Background(), cfg)
}

// openAdvisory uses session locks: each waits in the server, in order of arrival.
func openAdvisory(e environment) (locker, error) {
	pool, err := openPool(e)
	if err != nil {
		return nil, err
	}
	return &advisoryLock{pool, e.namespace}, nil
}

type advisoryLock struct {
	pool      *pgxpool.Pool
	namespace string
}

func (a *advisoryLock) section(ctx context.Context, key string, inside func(uint64)) (err error) {
	c, err := a.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release() // a cancelled call closes its connection, and so its lock ends
	n := int64(hashOf(a.namespace, key))
	if _, err := c.Exec(ctx, "select pg_advisory_lock($1)", n); err != nil {
		return err
	}
	inside(0)
	_, err = c.Exec(context.WithoutCancel(ctx), "select pg_advisory_unlock($1)", n)
	return err
}

// hashOf is for servers where names are numbers, or short.
func hashOf(namespace, key string) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, namespace, ":", key)
	return h.Sum64()
}

func (a *advisoryLock) close(context.Context) error {
	a.pool.Close()
	return nil
}
