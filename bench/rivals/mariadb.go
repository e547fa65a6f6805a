package rivals

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/bench/harness"
)

var mariadbKind = &ServerKind{
	Name:   "MariaDB",
	Debian: "mariadb-server",
	user:   "mysql",
	Find: func() (string, bool) {
		if _, err := exec.LookPath("mariadb-install-db"); err != nil {
			return "", false
		}
		return onPath("mariadbd")()
	},
	command: func(ctx context.Context, s *Server) (*exec.Cmd, error) {
		data := filepath.Join(s.dir, "data")
		if err := s.prepare(ctx, "mariadb-install-db", "--no-defaults", "--datadir="+data,
			"--auth-root-authentication-method=normal", "--skip-test-db"); err != nil {
			return nil, err
		}
		s.Conn = "root@tcp(127.0.0.1:" + s.port + ")/"
		return exec.Command(s.program, "--no-defaults", "--datadir="+data, "--port="+s.port, "--bind-address=127.0.0.1",
			"--socket="+filepath.Join(s.dir, "socket"), "--pid-file="+filepath.Join(s.dir, "pid"), "--max-connections=400"), nil
	},
	version: func(ctx context.Context, conn string) (name string, err error) {
		db, err := openMySQL(conn, new(harness.Counter), false)
		if err != nil {
			return "", err
		}
		defer db.Close()
		err = db.QueryRowContext(ctx, "select concat('MariaDB ', substring_index(version(), '-', 1))").Scan(&name)
		return name, err
	},
	end: syscall.SIGKILL,
}

func openMySQL(conn string, count *harness.Counter, tuned bool) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(conn)
	if err != nil {
		return nil, err
	}
	cfg.Logger = silent{}
	cfg.InterpolateParams = tuned
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return count.Dial(ctx, network, addr)
	}
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(c), nil
}

// getLock is GET_LOCK and RELEASE_LOCK on a connection that is taken from the pool for as long as
// the lock is held.
type getLock struct {
	db        *sql.DB
	namespace string
}

// openGetLock opens GET_LOCK with the settings of database/sql and the driver or, tuned, those that
// the driver's README advises: as many idle connections as open ones, and parameters put in by the
// client, which saves it a round trip to prepare each statement and one to forget it.
func openGetLock(tuned bool) func(Environment) (Locker, error) {
	return func(e Environment) (Locker, error) {
		db, err := openMySQL(e.Server, e.Count, tuned)
		if err != nil {
			return nil, err
		}
		if tuned {
			db.SetMaxOpenConns(e.Goroutines + 1)
			db.SetMaxIdleConns(e.Goroutines + 1)
		}
		return &getLock{db, e.Namespace}, nil
	}
}

// longWait is what GET_LOCK waits at most, in seconds. It knows no end of a wait but that, and that
// of the connection.
const longWait = 3600

func (g *getLock) Section(ctx context.Context, key string, inside func(uint64)) (err error) {
	c, err := g.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close() // a cancelled call closes its connection, and so its lock ends
	name := strconv.FormatUint(HashOf(g.namespace, key), 16)
	if err := one(c.QueryRowContext(ctx, "select get_lock(?, ?)", name, longWait)); err != nil {
		return err
	}
	inside(0)
	return one(c.QueryRowContext(context.WithoutCancel(ctx), "select release_lock(?)", name))
}

// one is an error unless the answer is 1.
func one(row *sql.Row) error {
	var n sql.NullInt64
	if err := row.Scan(&n); err != nil {
		return err
	}
	if n.Int64 != 1 {
		return fmt.Errorf("mariadb answers %v", n)
	}
	return nil
}

func (g *getLock) Close(context.Context) error { return g.db.Close() }
