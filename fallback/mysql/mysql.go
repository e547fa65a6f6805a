// Package mysql is an arbiter on MySQL, 8 or later, or MariaDB, 10.6 or later, also with Galera:
// locks with the safety of the database that a service has already. They have the speed of a local
// mutex, since a node asks the database for one renewal and one read in [coord.Options].RenewEvery.
//
//	config, err := driver.ParseDSN(dsn) // of github.com/go-sql-driver/mysql
//	...
//	c, err := coord.New(ctx, mysql.New(config, nil), &coord.Options{Namespace: "orders"})
//
// README.md lists its costs, the privileges that it needs, and the failures that it survives.
package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/fallback"
)

// Options are the options of [New]. The zero value is valid, and so is a nil pointer.
type Options struct {
	// Table is the table of the records, with a database before a dot or without. All namespaces
	// may use the same. Default: holdfast. Attach creates it, where it is missing, as [Table] says;
	// then the user needs the privilege CREATE.
	Table string

	// Conns is how many connections a process has at most for locks, verification and ownership;
	// sessions have eight. Default: 4; negative: refused.
	Conns int

	// Durable says that whichever server takes another one's place has every commit that was
	// acknowledged: Galera, or storage that fails over as a whole. Then there is no Grace, and none
	// is noticed. Replication that is asynchronous or semi-synchronous does not promise that. All
	// processes of the table set it, or none: Attach refuses one that differs.
	Durable bool

	// ColdStart says that a table without the namespace is new: see README.md. For tests, demos and
	// development.
	ColdStart bool
}

// New returns an arbiter on the server that config leads to, and does no I/O. config is one of
// [driver.ParseDSN] or [driver.NewConfig]. The arbiter's connections are its own, so that a service
// that has used up its pool keeps its locks; the driver logs nothing of them, since errors are
// returned. opts may be nil.
//
// Errors about config and server come from Attach. The arbiter has no messages ([fallback.Mute]).
func New(config *driver.Config, opts *Options) fallback.Arbiter {
	s := newStore(config, opts)
	return fallback.NewRecords(s, s.records())
}

// store is the table of the records, a [fallback.Records].
type store struct {
	config  *driver.Config
	opts    Options
	sql     atomic.Pointer[statements] // nil until the kind of server is known
	packets packets
	seen    atomic.Bool // the mark, as this store's own, since it was opened
	rivals  rivals

	mu     sync.Mutex // protects the fields below
	opened int        // that are not closed
	pulse  *sql.DB
	work   *sql.DB
}

func newStore(config *driver.Config, opts *Options) *store {
	s := new(store)
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.Table == "" {
		s.opts.Table = "holdfast"
	}
	if s.opts.Conns == 0 {
		s.opts.Conns = 4
	}
	if config != nil {
		c := config.Clone()
		c.Logger = silent{}
		c.ClientFoundRows, c.MultiStatements, c.RejectReadOnly = false, false, false
		c.InterpolateParams, c.CheckConnLiveness = true, true
		_ = c.Apply(driver.Charset("utf8mb4", "")) // has no error
		s.config = c
	}
	return s
}

func (s *store) records() *fallback.RecordsOptions {
	return &fallback.RecordsOptions{ColdStart: s.opts.ColdStart, Durable: s.opts.Durable, Deposable: true}
}

type silent struct{}

func (silent) Print(...any) {}

// Open implements [fallback.Records].
func (s *store) Open(ctx context.Context) error {
	if err := s.connect(); err != nil {
		return err
	}
	if err := s.prepare(ctx); err != nil {
		return errors.Join(refusedAtStart(err), s.Close())
	}
	return nil
}

// connect makes the pools for the first Open. They connect when they are used.
func (s *store) connect() error {
	switch {
	case s.config == nil:
		return refusal("the config is nil: make one with ParseDSN of the driver")
	case s.opts.Conns < 0:
		return refusal("Options.Conns is %d, must be more than 0, or 0 for 4", s.opts.Conns)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened == 0 {
		c, err := driver.NewConnector(s.config)
		if err != nil {
			return refusal("%w", err)
		}
		limited := connector{c, max(connectFor, s.config.Timeout)}
		s.pulse, s.work = pool(limited, pulseConns), pool(limited, s.opts.Conns)
		s.seen.Store(false)
	}
	s.opened++
	return nil
}

// idleFor is when a connection is closed that is not used: before servers and proxies end it.
const idleFor = time.Minute

// pulseConns is how many connections sessions have at most: one or two, as a rule, and further ones
// while earlier calls hang.
const pulseConns = 8

// connectFor is for how long a connection may be made, unless the config's Timeout is longer.
// database/sql makes some for calls that it has kept waiting, without their contexts: a server that
// has died without a word, or does not greet, would keep their places.
const connectFor = 2 * time.Second

func pool(c connector, conns int) *sql.DB {
	p := sql.OpenDB(c)
	p.SetMaxOpenConns(conns)
	p.SetMaxIdleConns(conns)
	p.SetConnMaxIdleTime(idleFor)
	return p
}

// connector makes connections whose statements mean the same under any defaults of the server. A
// statement that waits for another transaction, or for a lock of the table, gives up after two
// seconds: the server does not notice that its client has left.
type connector struct {
	sqldriver.Connector
	most time.Duration // that a connection may take
}

// session is one statement, as a process that has given many calls up connects often. MariaDB and
// MySQL have different names of the isolation: each takes the other's for a comment.
const session = `SET autocommit = 1, time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES', sql_safe_updates = 0,
	innodb_lock_wait_timeout = 2, lock_wait_timeout = 2, /*M! tx_isolation *//*!80000 transaction_isolation */ = 'READ-COMMITTED',
	/*M! tx_read_only *//*!80000 transaction_read_only */ = 0`

// Connect implements [sqldriver.Connector].
func (c connector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.most)
	defer cancel()
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.(sqldriver.ExecerContext).ExecContext(ctx, session, nil); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// Close implements [fallback.Records].
func (s *store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened--; s.opened > 0 {
		return nil
	}
	_, _ = s.pulse.Close(), s.work.Close() // their errors are of connections that the server has ended
	return nil
}

// how tells whether a statement may be sent again although it may have been executed.
type how bool

const (
	reading how = true
	writing how = false
)

// do calls f with a connection for a key. Sessions have their own, so that lock calls cannot take
// those that keep them alive. A connection that the server has ended shows when it is used: then f
// is called with another one.
func (s *store) do(ctx context.Context, key string, h how, f func(*sql.Conn) error) (err error) {
	p := s.work
	if strings.HasSuffix(key, "/s") {
		p = s.pulse
	}
	for range max(s.opts.Conns, pulseConns) + 1 {
		if err := ctx.Err(); err != nil {
			return notSent(err)
		}
		c, connected := p.Conn(ctx)
		if connected != nil {
			return notSent(denied(connected))
		}
		err = f(c)
		if readOnly(err) {
			err = fmt.Errorf("%w: %w", fallback.ErrReadOnly, err)
			// The name in the config may lead to the new primary by now, and this connection does
			// not.
			_ = c.Raw(func(any) error { return sqldriver.ErrBadConn })
		}
		_ = c.Close()
		ended := errors.Is(err, sqldriver.ErrBadConn) || h == reading && errors.Is(err, driver.ErrInvalidConn)
		if !ended || ctx.Err() != nil {
			break
		}
	}
	return failed(err)
}

// prepare checks the server's settings, and makes the table if it is missing.
func (s *store) prepare(ctx context.Context) error {
	return s.do(ctx, "/s", reading, func(c *sql.Conn) error {
		q, missing, err := s.inspect(ctx, c)
		if err != nil {
			return err
		}
		s.sql.Store(q)
		if missing {
			err = s.create(ctx, c)
		}
		return err
	})
}

// inspect checks the server's settings and the table, and tells if there is none.
func (s *store) inspect(ctx context.Context, c *sql.Conn) (q *statements, missing bool, err error) {
	v, err := s.check(ctx, c)
	if err != nil {
		return nil, false, err
	}
	identity, before := s.identity(v)
	missing, err = s.checkTable(ctx, c)
	return &statements{quoted(s.opts.Table), identity, before, &s.packets}, missing, err
}

// View implements [fallback.Viewer].
func (s *store) View(ctx context.Context, key string) (value []byte, err error) {
	if err := s.connect(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(refusedAtStart(err), s.Close()) }()
	err = s.do(ctx, key, reading, func(c *sql.Conn) error {
		q, missing, err := s.inspect(ctx, c)
		if err != nil {
			return err
		}
		if missing { // or the user may not see it
			if _, err := c.ExecContext(ctx, `SELECT 1 FROM `+q.table+` LIMIT 0`); numberOf(err) != 1146 {
				return err
			}
			return nil
		}
		err = c.QueryRowContext(ctx, q.before+`SELECT value FROM `+q.table+` WHERE name = ?`, []byte(key)).Scan(&value)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return value, err
}

func (s *store) create(ctx context.Context, c *sql.Conn) error {
	_, err := c.ExecContext(ctx, Table(s.opts.Table))
	return err
}

func notSent(err error) error { return fmt.Errorf("%w: %w", fallback.ErrNotSent, err) }

func refusal(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{fallback.ErrRefused}, args...)...)
}
