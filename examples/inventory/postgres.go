package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// postgres is a client of a PostgreSQL server.
type postgres struct{ pool *pgxpool.Pool }

func openPostgres(p place, conns int) (database, error) {
	cfg, err := pgxpool.ParseConfig(p.Postgres)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(conns)
	cfg.ConnConfig.RuntimeParams["search_path"] = p.Schema
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg) // it does not connect yet
	if err != nil {
		return nil, err
	}
	return postgres{pool}, nil
}

func (p postgres) Close() { p.pool.Close() }

func (p postgres) Query(ctx context.Context, text string, args ...any) ([][]any, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	rows, err := p.pool.Query(context.WithoutCancel(ctx), text, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
}

func (p postgres) Exec(ctx context.Context, text string, args ...any) (int64, error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	tag, err := p.pool.Exec(context.WithoutCancel(ctx), text, args...)
	return tag.RowsAffected(), err
}

// createSchema makes room for a run's tables, and returns what the server calls itself.
func (p place) createSchema(ctx context.Context) (name string, err error) {
	conn, err := pgx.Connect(ctx, p.Postgres)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	if err := conn.QueryRow(ctx, `SELECT 'PostgreSQL ' || split_part(current_setting('server_version'), ' ', 1)`).Scan(&name); err != nil {
		return "", err
	}
	_, err = conn.Exec(ctx, `CREATE SCHEMA `+p.Schema)
	return name, err
}

func (p place) dropSchema(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, p.Postgres)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, `DROP SCHEMA `+p.Schema+` CASCADE`)
	return err
}

var errNoPostgres = errors.New("PostgreSQL is not installed (apt install postgresql)")

// startPostgres starts a server with its defaults, with a socket in a directory of its own. It returns how to connect. When
// this process ends, however it does, so does the server, and its data with it: a shell waits for the end of its stdin.
func startPostgres(ctx context.Context) (dsn string, stop func() error, err error) {
	bin, err := findPostgres()
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "inventory-")
	if err != nil {
		return "", nil, err
	}
	attr, err := asPostgres(dir)
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	const script = `
cd "$2" || exit 1
"$1/initdb" --pgdata data --username inventory --auth trust --no-sync >&2 || exit 1
"$1/postgres" -D data -k "$2" -c listen_addresses= >&2 &
read -r _
kill -QUIT $!
wait
cd / && rm -rf "$2"`
	cmd := exec.Command("sh", "-c", script, "sh", bin, dir)
	cmd.SysProcAttr = attr
	var log bytes.Buffer
	cmd.Stderr = &log
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	stop = func() error {
		_, _ = io.WriteString(stdin, "\n")
		<-ended
		return os.RemoveAll(dir) // if the shell could not
	}
	dsn = "postgres://inventory@/postgres?host=" + url.QueryEscape(dir)
	if err := awaitPostgres(ctx, dsn, ended); err != nil {
		stopped := stop()
		return "", nil, errors.Join(fmt.Errorf("%w\n%s", err, log.Bytes()), stopped)
	}
	return dsn, stop, nil
}

// awaitPostgres waits until the server answers.
func awaitPostgres(ctx context.Context, dsn string, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, dsn)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ended:
			return errors.New("the server did not start")
		case <-ctx.Done():
			return err
		}
	}
}

// findPostgres returns the directory of initdb and postgres: Debian's newest, or where PATH says.
func findPostgres() (string, error) {
	list, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if path, err := exec.LookPath("initdb"); err == nil {
		list = append(list, path)
	}
	for _, path := range slices.Backward(list) {
		if path, err := filepath.EvalSymlinks(path); err == nil { // postgres is beside the real one
			return filepath.Dir(path), nil
		}
	}
	return "", errNoPostgres
}

// asPostgres gives the directory to the user postgres if this process is root's, which the server refuses to be, and returns
// what makes a process his.
func asPostgres(dir string) (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, os.Chown(dir, int(uid), int(gid))
}
