package postgres

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A pooler in transaction mode, such as pgbouncer's, gives each transaction to any of its
// connections of the server. Other clients leave things there: a SET, a prepared statement. So
// nothing here outlives a transaction, tables have their whole names, and the durability of writes
// is set with each of them.

// lasting has a transaction wait for the server's disk, and for standbys if the role's are waited
// for. Another client of a pooler may have left any synchronous_commit. It counts at the commit.
const lasting = `CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true)
	WHEN 'local' THEN set_config('synchronous_commit', NULL, true) END`

// A session is the state of a connection's server that holds for a session, or would without a
// pooler.
type session struct {
	pid    uint32  // of the server's process
	path   string  // search_path as it was when the session began
	set    bool    // search_path has been set since
	role   bool    // role has been set, since or before
	schema *string // of the table, or in which it would be made
}

// plain is a mode for statements that prepares none for another call.
func (s *store) plain() pgx.QueryExecMode {
	if mode := s.config.ConnConfig.DefaultQueryExecMode; mode == pgx.QueryExecModeSimpleProtocol {
		return mode
	}
	return pgx.QueryExecModeExec
}

// unprepared has new connections of a pool prepare no statements, once a pooler was noticed.
func (s *store) unprepared(c *pgxpool.Config) {
	before := c.BeforeConnect
	c.BeforeConnect = func(ctx context.Context, config *pgx.ConnConfig) error {
		if before != nil {
			if err := before(ctx, config); err != nil {
				return err
			}
		}
		switch config.DefaultQueryExecMode {
		case pgx.QueryExecModeCacheStatement, pgx.QueryExecModeDescribeExec:
			if s.pooled.Load() {
				config.DefaultQueryExecMode = pgx.QueryExecModeExec
			}
		}
		return nil
	}
}

// notice notes that there is a pooler. Connections that prepare statements are given up.
func (s *store) notice() {
	s.pooled.Store(true)
	s.pulse.Reset()
	s.work.Reset()
}

// lacksPrepared reports whether an error tells of a statement that was prepared on another
// connection of a pooler, or by another client on this one. Then nothing was executed.
func lacksPrepared(err error) bool {
	code := codeOf(err)
	return code == "26000" || code == "42P05"
}

// locate gives the table its whole name: search_path may be another one in the next transaction. It
// refuses a search_path if it is not certain that all processes have the same.
func (s *store) locate(x session, missing bool) error {
	sql := s.sql.Load()
	if sql.whole {
		return nil
	}
	config, pooled, why := s.config.ConnConfig, s.pooled.Load(), ""
	own := s.config.AfterConnect != nil || config.AfterConnect != nil || // the hook that has set it is the same in each connection
		s.config.PrepareConn != nil || s.config.BeforeAcquire != nil //nolint:staticcheck // configs have BeforeAcquire yet
	switch wanted := config.RuntimeParams["search_path"]; {
	case x.set && (pooled || !own), x.role && pooled:
		why = "another client of a pooler, or a hook of the config (AfterConnect, PrepareConn, BeforeAcquire), has set search_path or role"
	case pooled && (wanted != "" && wanted != x.path || strings.Contains(config.RuntimeParams["options"], "search_path")):
		why = "the pooler leaves out the config's search_path"
	}
	if why != "" {
		return refusal("%s, so processes may not all find the same table: name its schema in Options.Table, as in %q", why, "public."+s.opts.Table)
	}
	if x.schema != nil && !missing {
		s.pin(sql, *x.schema)
	}
	return nil
}

// pin gives the table its schema, unless it has one.
func (s *store) pin(sql *statements, schema string) {
	whole := statementsFor(pgx.Identifier{schema, s.opts.Table}.Sanitize())
	whole.whole = true
	s.sql.CompareAndSwap(sql, &whole)
}

// refusedByPooler are words of pgbouncer's errors, which have no code of their own, and the texts
// for users.
var refusedByPooler = []struct{ words, text string }{
	{"unsupported startup parameter", "the pooler refuses a parameter of the config: leave it out there, and set it by ALTER ROLE"},
	{"no such database", "the pooler does not have the database"},
	{"no such user", notLetIn},
	{"authentication failed", notLetIn},
}

const notLetIn = "the pooler does not let the role in"

// refusalByPooler returns the text for a refusal of pgbouncer's, "" for other errors.
func refusalByPooler(err error) (text string) {
	if codeOf(err) != "08P01" {
		return ""
	}
	for _, x := range refusedByPooler {
		if strings.Contains(err.Error(), x.words) {
			text = x.text
		}
	}
	return text
}
