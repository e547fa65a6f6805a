package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const advisory = "PostgreSQL advisory lock"

// openAdvisory uses session locks: each waits in the server, in order of arrival.
func openAdvisory(e environment) (locker, error) {
	cfg, err := pgxpool.ParseConfig(e.postgres)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(e.goroutines + 1)
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
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
	defer c.Release() // a connection whose call was cancelled has been closed, and with it its lock
	h := fnv.New64a()
	fmt.Fprint(h, a.namespace, ":", key)
	n := int64(h.Sum64())
	if _, err := c.Exec(ctx, "select pg_advisory_lock($1)", n); err != nil {
		return err
	}
	inside(0)
	_, err = c.Exec(context.WithoutCancel(ctx), "select pg_advisory_unlock($1)", n)
	return err
}

func (a *advisoryLock) close(context.Context) error {
	a.pool.Close()
	return nil
}

// postgres is a server of this run.
type postgres struct {
	conn string // how to connect
	name string
	cmd  *exec.Cmd
	dir  string
}

var errNoPostgres = errors.New("postgres is not installed")

// startPostgres starts a server with its defaults, but for the number of connections. It does not run as root: then it
// is the user postgres's.
func startPostgres(ctx context.Context) (_ *postgres, err error) {
	program, err := findPostgres()
	if err != nil {
		return nil, err
	}
	initdb := filepath.Join(filepath.Dir(program), "initdb")
	dir, err := os.MkdirTemp("", "holdfast-postgres-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	attr, err := asPostgres(dir)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	cmd := exec.CommandContext(ctx, initdb, "--pgdata", data, "--username", "bench", "--auth", "trust", "--no-sync")
	cmd.Dir, cmd.SysProcAttr = dir, attr
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if err := l.Close(); err != nil {
		return nil, err
	}
	p := &postgres{
		conn: "postgres://bench@127.0.0.1:" + port + "/postgres?sslmode=disable", dir: dir,
		cmd: exec.Command(program, "-D", data, "-p", port, "-k", dir, "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=400"),
	}
	p.cmd.Dir, p.cmd.SysProcAttr = dir, attr
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if err = p.ask(ctx); err == nil {
			return p, nil
		}
		if ctx.Err() != nil || time.Since(begin) > 20*time.Second {
			return nil, errors.Join(fmt.Errorf("postgres did not start: %w", err), p.stop())
		}
	}
}

func (p *postgres) ask(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, p.conn)
	if err != nil {
		return err
	}
	defer pool.Close()
	return pool.QueryRow(ctx, "select 'PostgreSQL ' || current_setting('server_version')").Scan(&p.name)
}

// stop ends the server at once: its data is worth nothing.
func (p *postgres) stop() error {
	err := p.cmd.Process.Signal(syscall.SIGQUIT)
	_ = p.cmd.Wait() // it says that it was told to
	return errors.Join(err, os.RemoveAll(p.dir))
}

func findPostgres() (string, error) {
	list, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if path, err := exec.LookPath("postgres"); err == nil {
		list = append(list, path)
	}
	for _, path := range slices.Backward(list) {
		if real, err := filepath.EvalSymlinks(path); err == nil { // initdb is beside the real one
			return real, nil
		}
	}
	return "", errNoPostgres
}

// asPostgres returns what makes a process the user postgres's if this one is root's, and gives it the directory.
func asPostgres(dir string) (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, os.Chown(dir, uid, gid)
}
