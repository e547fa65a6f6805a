// Package dbtest starts real databases, and stops clients between any two of their statements.
package dbtest

import (
	"context"
	"database/sql/driver"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"

	"github.com/holdfast-go/holdfast/internal/dbserver"
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
var ErrNotInstalled = dbserver.ErrNotInstalled

// A Database is an empty database of its own server, or its own file.
type Database struct {
	Kind Kind
	DSN  string // for the driver of the kind
	stop func() error

	format string       // of DSN, with the database's name
	count  atomic.Int64 // of databases made
}

// Start starts a server with its defaults, which listens on a socket in a directory of its own. The
// server ends with this process at the latest, as a shell between them waits for the end of its
// stdin.
func Start(ctx context.Context, kind Kind) (*Database, error) {
	if kind == SQLite {
		dir, err := os.MkdirTemp("", "fence-")
		if err != nil {
			return nil, err
		}
		return AtFile(filepath.Join(dir, "db"), func() error { return os.RemoveAll(dir) }), nil
	}
	script := mariadbScript
	bin, err := findMariaDB()
	if kind == Postgres {
		script = postgresScript
		bin, err = dbserver.FindPostgres()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	db, err := start(ctx, kind, script, bin)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	return db, nil
}

// AtFile is the SQLite database in a file.
func AtFile(path string, stop func() error) *Database {
	return &Database{Kind: SQLite, DSN: "file:" + path + "?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)", stop: stop}
}

// Fresh returns an empty database of the server, which lasts as long as that. With SQLite there is
// one database only.
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

var postgresScript = dbserver.Script{
	Start: `
"$1/initdb" --pgdata data --username fence --auth trust --no-sync >&2 || exit 1
"$1/postgres" -D data -k "$2" -c listen_addresses= -c fsync=off -c max_connections=200 >&2 &`,
	End:     `kill -QUIT $!`, // its other processes end with it
	Account: "postgres",
}

var mariadbScript = dbserver.Script{
	Start: `
"$1/mariadb-install-db" --no-defaults --datadir="$2/data" --auth-root-authentication-method=normal --skip-test-db >&2 || exit 1
"$(command -v mariadbd || echo /usr/sbin/mariadbd)" --no-defaults --datadir="$2/data" --socket="$2/socket" --pid-file="$2/pid" \
  --skip-networking --innodb-flush-log-at-trx-commit=0 --max-connections=200 >&2 &`,
	End:     `kill -KILL $!`,
	Account: "mysql",
}

func start(ctx context.Context, kind Kind, script dbserver.Script, bin string) (*Database, error) {
	server, err := dbserver.Start(script, bin, "fence-")
	if err != nil {
		return nil, err
	}
	db := &Database{Kind: kind, stop: server.Stop}
	db.format = "root@unix(" + filepath.Join(server.Dir, "socket") + ")/%s"
	db.DSN = fmt.Sprintf(db.format, "mysql")
	if kind == Postgres {
		db.format = "postgres://fence@/%s?host=" + strings.ReplaceAll(url.QueryEscape(server.Dir), "%", "%%")
		db.DSN = fmt.Sprintf(db.format, "postgres")
	}
	if err := server.Await(ctx, func(ctx context.Context) error { return db.exec(ctx, "SELECT 1") }); err != nil {
		return nil, err
	}
	return db, nil
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

func findMariaDB() (string, error) {
	path, err := exec.LookPath("mariadb-install-db")
	if err != nil {
		return "", ErrNotInstalled
	}
	return filepath.Dir(path), nil
}
