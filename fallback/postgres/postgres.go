// Package postgres is an arbiter on PostgreSQL, 13 or later: locks with the safety of the database
// that a service has already. They have the speed of a local mutex, since a node asks the database
// for one renewal and one read in [coord.Options].RenewEvery.
//
//	config, err := pgxpool.ParseConfig(dsn)
//	...
//	c, err := coord.New(ctx, postgres.New(config, nil), &coord.Options{Namespace: "orders"})
//
// README.md lists its costs, the privileges that it needs, and the failures that it survives.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/fallback"
)

// Options are the options of [New]. The zero value is valid, and so is a nil pointer.
type Options struct {
	// Table is the table of the records, with a schema before a dot or without. All namespaces may
	// use the same. Default: holdfast. Attach creates it, where it is missing, as [Table] says;
	// then the role needs the privilege to create tables in the schema.
	Table string

	// Conns is how many connections a process has at most for locks, verification and ownership;
	// sessions have eight, and messages one. Default: 4; negative: refused.
	Conns int

	// Listen tells how to connect for messages (LISTEN). It is needed where New's config leads
	// through a pooler in transaction or statement mode, such as pgbouncer's, which loses them.
	// Nil: as New's config.
	Listen *pgx.ConnConfig

	// Mute leaves messages out. A caller that waits for a key of the arbiter asks again every
	// coord.Options.RetryEvery.
	Mute bool

	// ColdStart says that a server without the namespace is new: see README.md. For tests, demos
	// and development.
	ColdStart bool
}

// New returns an arbiter on the server that config leads to, and does no I/O. config is one of
// [pgxpool.ParseConfig]. The arbiter's connections are its own, so that a service that has used up
// its pool keeps its locks. opts may be nil.
//
// Errors about config and server come from Attach.
func New(config *pgxpool.Config, opts *Options) fallback.Arbiter {
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
		s.config = config.Copy()
		if s.opts.Listen == nil {
			s.opts.Listen = s.config.ConnConfig.Copy()
		}
	}
	sql := statementsFor(quoted(s.opts.Table))
	sql.whole = strings.Contains(s.opts.Table, ".")
	s.sql.Store(&sql)
	records := &fallback.RecordsOptions{ColdStart: s.opts.ColdStart, Deposable: true}
	if s.opts.Mute {
		return fallback.NewRecords(s, records)
	}
	return fallback.NewRecords(&talker{store: s}, records)
}

// store is the table of the records, a [fallback.Records].
type store struct {
	config *pgxpool.Config
	opts   Options
	sql    atomic.Pointer[statements]
	pooled atomic.Bool // there is a pooler between

	mu     sync.Mutex // protects the fields below
	opened int        // that are not closed
	pulse  *pgxpool.Pool
	work   *pgxpool.Pool
}

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
		return refusal("the config is nil: make one with pgxpool.ParseConfig")
	case s.opts.Conns < 0:
		return refusal("Options.Conns is %d, must be more than 0, or 0 for 4", s.opts.Conns)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened == 0 {
		pulse, err := s.pool(pulseConns)
		if err != nil {
			return err
		}
		work, err := s.pool(int32(s.opts.Conns))
		if err != nil {
			pulse.Close()
			return err
		}
		s.pulse, s.work = pulse, work
	}
	s.opened++
	return nil
}

// pulseConns is how many connections sessions have at most: one or two, as a rule, and further ones
// while earlier calls hang.
const pulseConns = 8

func (s *store) pool(conns int32) (*pgxpool.Pool, error) {
	c := s.config.Copy()
	limit(c.ConnConfig)
	s.unprepared(c)
	c.MaxConns, c.MinConns, c.MinIdleConns = conns, 0, 0
	p, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", fallback.ErrRefused, err)
	}
	return p, nil
}

// Close implements [fallback.Records].
func (s *store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened--; s.opened == 0 {
		s.pulse.Close()
		s.work.Close()
	}
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
func (s *store) do(ctx context.Context, key string, h how, f func(*pgxpool.Conn) error) (err error) {
	p := s.work
	if strings.HasSuffix(key, "/s") {
		p = s.pulse
	}
	for range max(s.opts.Conns, pulseConns) + 1 {
		if err := ctx.Err(); err != nil {
			return notSent(err)
		}
		c, acquired := p.Acquire(ctx)
		if acquired != nil {
			return notSent(denied(unreached(ctx, s.config.ConnConfig, acquired)))
		}
		err = f(c)
		ended := err != nil && c.Conn().IsClosed()
		if readOnly(err) {
			err = fmt.Errorf("%w: %w", fallback.ErrReadOnly, err)
			p.Reset() // the name in the config may lead to the new primary by now, and no connection of before does
		}
		c.Release()
		if lacksPrepared(err) {
			s.notice()
			continue
		}
		if !ended || ctx.Err() != nil || h == writing && !pgconn.SafeToRetry(err) {
			break
		}
	}
	return failed(err)
}

func notSent(err error) error { return fmt.Errorf("%w: %w", fallback.ErrNotSent, err) }

// prepare checks the server's settings, and makes the table if it is missing.
func (s *store) prepare(ctx context.Context) error {
	return s.do(ctx, "/s", reading, func(c *pgxpool.Conn) error {
		x, missing, err := s.check(ctx, c)
		if err == nil && missing {
			if sql := s.sql.Load(); !sql.whole && x.schema != nil {
				s.pin(sql, *x.schema)
			}
			err = s.create(ctx, c)
		}
		return err
	})
}

func (s *store) create(ctx context.Context, c *pgxpool.Conn) error {
	_, err := c.Exec(ctx, create(s.sql.Load().table))
	if code := codeOf(err); code == "23505" || code == "42P07" {
		return nil // another process was faster
	}
	return err
}

// codeOf returns the SQLSTATE of an error, or "".
func codeOf(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// check refuses settings under which the server may lose an acknowledged write, notices a pooler,
// and finds the table.
func (s *store) check(ctx context.Context, c *pgxpool.Conn) (x session, missing bool, err error) {
	var version int
	var fsync string
	var off, standby bool
	var persistence *string
	err = c.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('fsync'),
		current_setting('synchronous_commit') = 'off' AND `+atStart("synchronous_commit")+` = 'off', pg_is_in_recovery(),
		pg_backend_pid(), `+atStart("search_path")+`, current_setting('search_path') <> `+atStart("search_path")+`, current_setting('role') <> 'none',
		COALESCE(n.nspname, current_schema())::text, t.relpersistence::text
		FROM (SELECT to_regclass($1) AS oid) r LEFT JOIN pg_class t ON t.oid = r.oid LEFT JOIN pg_namespace n ON n.oid = t.relnamespace`, s.plain(), s.sql.Load().table).
		Scan(&version, &fsync, &off, &standby, &x.pid, &x.path, &x.set, &x.role, &x.schema, &persistence)
	if err == nil && x.pid != c.Conn().PgConn().PID() && !s.pooled.Load() {
		s.notice()
	}
	switch {
	case err != nil:
		return x, false, err
	case standby: // it may have been deposed a moment ago
		return x, false, errStandby
	case version < 130000:
		return x, false, refusal("the server's version is %d, must be 130000 or later", version)
	case fsync == "off":
		return x, false, refusal("fsync is off, so the server may lose locks when its machine stops: set it to on")
	case off:
		return x, false, refusal("synchronous_commit is off, so the server acknowledges locks that it may lose: set it to on, for this role at least")
	case persistence != nil && *persistence != "p":
		return x, false, refusal("table %s is unlogged or temporary, so the server loses it when it stops: ALTER TABLE ... SET LOGGED", s.opts.Table)
	}
	missing = persistence == nil
	return x, missing, s.locate(x, missing)
}

// atStart is a setting as it was when the session began: a later value may be of another client of
// a pooler.
func atStart(setting string) string {
	return `(SELECT reset_val FROM pg_settings WHERE name = '` + setting + `')`
}

var errStandby = errors.New("postgres: the server is a standby: give the config its primary (target_session_attrs=read-write)")

// readOnly reports whether an error says that the server takes no writes.
func readOnly(err error) bool {
	code := codeOf(err)
	return code == "55000" || code == "25006" || errors.Is(err, errStandby)
}

func refusal(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{fallback.ErrRefused}, args...)...)
}

// Advise tells of settings that make locks less safe than they could be.
func (s *store) Advise(ctx context.Context) (advice []string, err error) {
	err = s.do(ctx, "/s", reading, func(c *pgxpool.Conn) error {
		advice = nil
		if _, _, err := s.check(ctx, c); err != nil {
			return err
		}
		var names, commit, cure string
		var standbys int
		err := c.QueryRow(ctx, `SELECT current_setting('synchronous_standby_names'), `+atStart("synchronous_commit")+`,
			(SELECT count(*) FROM pg_stat_replication)`, s.plain()).Scan(&names, &commit, &standbys)
		switch {
		case err != nil || standbys == 0:
			return err
		case names == "":
			cure = "set synchronous_standby_names"
		case commit == "local": // it waits for none
			cure = "set synchronous_commit to on, for this role at least"
		default:
			return nil
		}
		advice = []string{fmt.Sprintf("%s has standbys, and acknowledges locks that none of them has: while it is cut off and another one is promoted, "+
			"two processes may hold the same lock: %s", c.Conn().Config().Host, cure)}
		return nil
	})
	return advice, err
}

// refusals are errors that another try does not change, by SQLSTATE.
var refusals = map[string]string{
	"42501": "the role lacks a privilege (see README.md of fallback/postgres)",
	"42P01": "the table is gone",
	"42703": "the table has other columns (see postgres.Table)",
	"3F000": "the schema does not exist",
}

// denials refuse a process that starts: it need not try again. Later they are an outage.
var denials = map[string]string{
	"28P01": "the password is wrong",
	"28000": "the server does not let the role in",
	"3D000": "the database does not exist",
}

func refusedAtStart(err error) error {
	if text := cmp.Or(refusalByPooler(err), denials[codeOf(err)]); text != "" {
		return fmt.Errorf("%w: %s: %w", fallback.ErrRefused, text, err)
	}
	return err
}

// denied marks the answer of a server that does not let this client in, or refuses it a right.
func denied(err error) error {
	switch code := codeOf(err); {
	case code == "28P01", code == "28000", code == "42501", refusalByPooler(err) == notLetIn:
		return fmt.Errorf("%w: %w", fallback.ErrDenied, err)
	}
	return err
}

// failed marks the error of a statement by whether it was executed.
func failed(err error) error {
	switch text := refusals[codeOf(err)]; {
	case err == nil || errors.Is(err, fallback.ErrRefused):
		return err
	case codeOf(err) == "53100":
		return fmt.Errorf("%w: the server's disk is full: %w", fallback.ErrFull, err)
	case text != "":
		return fmt.Errorf("%w: %s: %w", fallback.ErrRefused, text, denied(err))
	case pgconn.SafeToRetry(err):
		return notSent(err)
	default:
		return err
	}
}
