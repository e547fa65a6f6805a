// Package dbtest starts real databases, and stops clients between any two of their statements.
package dbtest

import (
	"bytes"
	"context"
	"database/sql/driver"
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
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"
)

// A Kind is a kind of database.
type Kind string

// The kinds.
const (
	Postgres Kind = "PostgreSQL"
	MariaDB  Kind = "MariaDB"
	SQLite   Kind = "SQLite"
)

// Kinds are all kinds.
var Kinds = []Kind{Postgres, MariaDB, SQLite}

// ErrNotInstalled reports that the machine does not have the server of a kind.
var ErrNotInstalled = errors.New("not installed")

// startTime limits the start of a server.
const startTime = time.Minute

// A Database is an empty database of its own server, or its own file.
type Database struct {
	Kind Kind
	DSN  string // for the driver of the kind
	stop func() error

	format string       // of DSN, with the database's name
	count  atomic.Int64 // of databases made
}

// Start starts a server with its defaults, which listens on a socket in a directory of its own. The
// server ends with this process at the latest, as a shell between them waits for the end of its stdin.
func Start(ctx context.Context, kind Kind) (*Database, error) {
	if kind == SQLite {
		dir, err := os.MkdirTemp("", "fence-")
		if err != nil {
			return nil, err
		}
		return AtFile(filepath.Join(dir, "db"), func() error { return os.RemoveAll(dir) }), nil
	}
	program, account := mariadbScript, "mysql"
	bin, err := findMariaDB()
	if kind == Postgres {
		program, account = postgresScript, "postgres"
		bin, err = findPostgres()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	dir, err := os.MkdirTemp("", "fence-")
	if err != nil {
		return nil, err
	}
	db, err := start(ctx, kind, program, account, bin, dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, errors.Join(err, os.RemoveAll(dir)))
	}
	return db, nil
}

// AtFile is the SQLite database in a file.
func AtFile(path string, stop func() error) *Database {
	return &Database{Kind: SQLite, DSN: "file:" + path + "?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)", stop: stop}
}

// Fresh returns an empty database of the server, which lasts as long as that. With SQLite there is one
// database only.
func (d *Database) Fresh(ctx context.Context) (*Database, error) {
	if d.Kind == SQLite {
		return d, nil
	}
	name := fmt.Sprintf("fresh%d", d.count.Add(1))
	if err := d.exec(ctx, "CREATE DATABASE "+name); err != nil {
		return nil, err
	}
	return &Database{Kind: d.Kind, DSN: fmt.Sprintf(d.format, name), stop: func() error { return nil }}, nil
}

// Close ends the server and removes its data.
func (d *Database) Close() error { return d.stop() }

const postgresScript = `
"$1/initdb" --pgdata data --username fence --auth trust --no-sync >&2 || exit 1
"$1/postgres" -D data -k "$2" -c listen_addresses= -c fsync=off -c max_connections=200 >&2 &`

const mariadbScript = `
"$1/mariadb-install-db" --no-defaults --datadir="$2/data" --auth-root-authentication-method=normal --skip-test-db >&2 || exit 1
"$(command -v mariadbd || echo /usr/sbin/mariadbd)" --no-defaults --datadir="$2/data" --socket="$2/socket" --pid-file="$2/pid" \
  --skip-networking --innodb-flush-log-at-trx-commit=0 --max-connections=200 >&2 &`

func start(ctx context.Context, kind Kind, program, account, bin, dir string) (*Database, error) {
	attr, err := asAccount(account, dir)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("sh", "-c", `cd "$2" || exit 1`+program+`
read -r _
kill -QUIT $! # PostgreSQL's other processes end with it
[ -d data/pg_wal ] || kill -KILL $!
wait
cd / && rm -rf "$2"`, "sh", bin, dir)
	cmd.SysProcAttr = attr
	var log bytes.Buffer
	cmd.Stderr = &log
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	db := &Database{Kind: kind, stop: func() error {
		_, _ = io.WriteString(stdin, "\n")
		<-ended
		return os.RemoveAll(dir) // where the shell could not
	}}
	db.format = "root@unix(" + filepath.Join(dir, "socket") + ")/%s"
	db.DSN = fmt.Sprintf(db.format, "mysql")
	if kind == Postgres {
		db.format = "postgres://fence@/%s?host=" + strings.ReplaceAll(url.QueryEscape(dir), "%", "%%")
		db.DSN = fmt.Sprintf(db.format, "postgres")
	}
	if err := db.await(ctx, ended); err != nil {
		stopped := db.stop()
		return nil, errors.Join(fmt.Errorf("%w\n%s", err, log.Bytes()), stopped)
	}
	return db, nil
}

// await waits until the server answers.
func (d *Database) await(ctx context.Context, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		err := d.exec(ctx, "SELECT 1")
		if err == nil {
			return nil
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

func (d *Database) exec(ctx context.Context, text string) error {
	db, err := d.Open(nil)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, text)
	return err
}

// connector returns the driver's connector.
func (d *Database) connector() (driver.Connector, error) {
	switch d.Kind {
	case Postgres:
		cfg, err := pgx.ParseConfig(d.DSN)
		if err != nil {
			return nil, err
		}
		return stdlib.GetConnector(*cfg), nil
	case MariaDB:
		cfg, err := mysql.ParseDSN(d.DSN)
		if err != nil {
			return nil, err
		}
		cfg.Logger = silent{}
		return mysql.NewConnector(cfg)
	default:
		return fileConnector(d.DSN), nil
	}
}

type silent struct{}

func (silent) Print(...any) {}

// fileConnector opens a file with SQLite.
type fileConnector string

func (c fileConnector) Connect(context.Context) (driver.Conn, error) {
	return c.Driver().Open(string(c))
}

func (c fileConnector) Driver() driver.Driver { return new(sqlite.Driver) }

// findPostgres returns the directory of initdb and postgres: Debian's newest, or that in PATH.
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
	return "", ErrNotInstalled
}

func findMariaDB() (string, error) {
	path, err := exec.LookPath("mariadb-install-db")
	if err != nil {
		return "", ErrNotInstalled
	}
	return filepath.Dir(path), nil
}

// asAccount gives the directory to an account if this process is root's, as the servers refuse to be.
func asAccount(name, dir string) (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(name)
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
	credential := &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return &syscall.SysProcAttr{Credential: credential}, os.Chown(dir, int(uid), int(gid))
}
