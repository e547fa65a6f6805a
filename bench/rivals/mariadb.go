package rivals

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/internal/dbserver"
)

var mariadbKind = &ServerKind{
	Name:   "MariaDB",
	Debian: "mariadb-server",
	Find:   onPath("mariadb-install-db"),
	script: dbserver.Script{
		Start: `
"$1/mariadb-install-db" --no-defaults --datadir="$2/data" --auth-root-authentication-method=normal --skip-test-db >&2 || exit 1
"$(command -v mariadbd || echo /usr/sbin/mariadbd)" --no-defaults --datadir="$2/data" --port=%[1]s --bind-address=127.0.0.1 \
  --socket="$2/socket" --pid-file="$2/pid" --max-connections=400 >&2 &`,
		End:     `kill -KILL $!`,
		Account: "mysql",
	},
	conn: "root@tcp(127.0.0.1:%[1]s)/",
	version: func(ctx context.Context, conn string) (name string, err error) {
		db, err := openMySQL(conn, new(harness.Counter), false)
		if err != nil {
			return "", err
		}
		defer db.Close()
		err = db.QueryRowContext(ctx, "select concat('MariaDB ', substring_index(version(), '-', 1))").Scan(&name)
		return name, err
	},
}

func openMySQL(conn string, count *harness.Counter, tuned bool) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(conn)
	if err != nil {
		return nil, err
	}
	cfg.Logger, cfg.InterpolateParams, cfg.DialFunc = silent{}, tuned, count.Dial
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(c), nil
}

// longWait is what GET_LOCK waits at most, in seconds. It knows no end of a wait but that, and that
// of the connection.
const longWait = 3600

// openGetLock opens GET_LOCK and RELEASE_LOCK on a connection that is taken from the pool for as
// long as the lock is held, with the settings of database/sql and the driver or, tuned, those that
// the driver's README advises: as many idle connections as open ones, and parameters put in by the
// client, which saves it a round trip to prepare each statement and one to forget it.
func openGetLock(tuned bool) func(Environment) (*Locker, error) {
	return func(e Environment) (*Locker, error) {
		db, err := openMySQL(e.Server, e.Count, tuned)
		if err != nil {
			return nil, err
		}
		if tuned {
			db.SetMaxOpenConns(e.Goroutines + 1)
			db.SetMaxIdleConns(e.Goroutines + 1)
		}
		return &Locker{
			Section: func(ctx context.Context, key string, inside func(uint64)) error {
				c, err := db.Conn(ctx)
				if err != nil {
					return err
				}
				defer c.Close() // a cancelled call closes its connection, and so its lock ends
				name := strconv.FormatUint(hashOf(e.Namespace, key), 16)
				if err := one(c.QueryRowContext(ctx, "select get_lock(?, ?)", name, longWait)); err != nil {
					return err
				}
				inside(0)
				return one(c.QueryRowContext(context.WithoutCancel(ctx), "select release_lock(?)", name))
			},
			shut: func() { _ = db.Close() },
		}, nil
	}
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
