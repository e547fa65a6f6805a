package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/fallback"
)

// variables are the server's, by their names. One that a server does not have is missing.
type variables map[string]string

func (v variables) mariaDB() bool { return strings.Contains(v["version"], "MariaDB") }
func (v variables) galera() bool  { return v["wsrep_on"] == "ON" }

func look(ctx context.Context, c *sql.Conn, show string) (variables, error) {
	rows, err := c.QueryContext(ctx, show)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	v := make(variables)
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		v[strings.ToLower(name)] = value
	}
	return v, rows.Err()
}

// durable is the identity with Options.Durable, whichever server it is.
const durable = "durable"

// identity returns an expression that names the server, and the beginning of each read. A replica
// has another identity than its primary: replication does not work with two that are the same. All
// members of a Galera cluster are one server, and a read there waits for the commits of others.
func (s *store) identity(v variables) (expression, before string) {
	switch {
	case v.galera():
		before = `SET STATEMENT wsrep_sync_wait = 1 FOR `
		expression = `(SELECT CONCAT('galera-', VARIABLE_VALUE) FROM information_schema.GLOBAL_STATUS
			WHERE VARIABLE_NAME = 'WSREP_CLUSTER_STATE_UUID')`
	case v.mariaDB():
		expression = `CONCAT(@@global.server_id, '@', @@hostname)`
	default:
		expression = `@@server_uuid`
	}
	if s.opts.Durable {
		expression = `'` + durable + `'`
	}
	return expression, before
}

// check refuses settings under which the server may lose an acknowledged write.
func (s *store) check(ctx context.Context, c *sql.Conn) (variables, error) {
	v, err := look(ctx, c, `SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'read_only', 'innodb_read_only',
		'innodb_flush_log_at_trx_commit', 'innodb_flush_method', 'log_bin', 'sync_binlog', 'binlog_format', 'wsrep_on',
		'group_replication_group_name', 'group_replication_single_primary_mode')`)
	if err != nil {
		return nil, err
	}
	redo, err := look(ctx, c, `SHOW GLOBAL STATUS LIKE 'Innodb_redo_log_enabled'`)
	if err != nil {
		return nil, err
	}
	binlog := v["log_bin"] == "ON"
	switch {
	case v.galera() && !v.mariaDB():
		return nil, refusal("the server is %s with Galera, which works with MariaDB only", v["version"])
	case !current(v):
		return nil, refusal("the server's version is %s, must be MySQL 8.0, MariaDB 10.6 or later", v["version"])
	case v["innodb_read_only"] == "ON":
		return nil, refusal("innodb_read_only is ON: set it to OFF")
	case v["read_only"] != "OFF": // it may have been deposed a moment ago
		return nil, errReadOnly
	case v["innodb_flush_log_at_trx_commit"] != "1":
		return nil, refusal("innodb_flush_log_at_trx_commit is %s, so the server acknowledges locks that it may lose when its machine stops: "+
			"set it to 1", v["innodb_flush_log_at_trx_commit"])
	case strings.EqualFold(v["innodb_flush_method"], "nosync"):
		return nil, refusal("innodb_flush_method is %s, so the server may lose locks when its machine stops: set it to O_DIRECT or fsync",
			v["innodb_flush_method"])
	case redo["innodb_redo_log_enabled"] == "OFF":
		return nil, refusal("the redo log is off, so the server may lose everything when it stops: ALTER INSTANCE ENABLE INNODB REDO_LOG")
	case binlog && v["sync_binlog"] != "1":
		return nil, refusal("sync_binlog is %s, so the server rolls back what it has acknowledged if its machine stops before the binary log "+
			"is on the disk: set it to 1", v["sync_binlog"])
	case binlog && v["binlog_format"] == "STATEMENT":
		return nil, refusal("binlog_format is STATEMENT, with which a replica would not get the same records: set it to ROW or MIXED")
	case v["group_replication_group_name"] != "" && v["group_replication_single_primary_mode"] == "OFF":
		return nil, refusal("group_replication_single_primary_mode is OFF, so two servers write at the same time: set it to ON")
	}
	return v, nil
}

// current reports whether the server is new enough.
func current(v variables) bool {
	text, least := v["version"], [2]int{8, 0}
	if v.mariaDB() {
		text, least = strings.TrimPrefix(text, "5.5.5-"), [2]int{10, 6}
	}
	major, rest, _ := strings.Cut(text, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, _ := strconv.Atoi(major) // a text that is no number is too old
	b, _ := strconv.Atoi(minor)
	return a > least[0] || a == least[0] && b >= least[1]
}

// checkTable refuses a table in which records would not be safe, and tells if there is none.
func (s *store) checkTable(ctx context.Context, c *sql.Conn) (missing bool, err error) {
	schema, name, ok := strings.Cut(s.opts.Table, ".")
	if !ok {
		schema, name = "", schema
	}
	var database, engine, columns sql.NullString
	err = c.QueryRowContext(ctx, `SELECT COALESCE(NULLIF(?, ''), DATABASE()),
		(SELECT COALESCE(ENGINE, 'none') FROM information_schema.TABLES WHERE TABLE_SCHEMA = COALESCE(NULLIF(?, ''), DATABASE()) AND TABLE_NAME = ?),
		(SELECT GROUP_CONCAT(CONCAT(COLUMN_NAME, ' ', DATA_TYPE) ORDER BY COLUMN_NAME SEPARATOR ', ') FROM information_schema.COLUMNS
			WHERE TABLE_SCHEMA = COALESCE(NULLIF(?, ''), DATABASE()) AND TABLE_NAME = ?)`, schema, schema, name, schema, name).
		Scan(&database, &engine, &columns)
	const want = "name varbinary, value longblob, version bigint"
	switch {
	case err != nil:
		return false, err
	case !database.Valid:
		return false, refusal("no database is named: give the config's DBName, or a database before a dot in Options.Table")
	case !engine.Valid || !columns.Valid: // or another process made it between the two looks
		return true, nil
	case !strings.EqualFold(engine.String, "InnoDB"):
		return false, refusal("table %s is of the engine %s, must be InnoDB", s.opts.Table, engine.String)
	case !strings.EqualFold(columns.String, want):
		return false, refusal("table %s has the columns %s, must have %s (see mysql.Table)", s.opts.Table, columns.String, want)
	}
	return false, nil
}

// Advise tells of settings that make locks less safe than they could be.
func (s *store) Advise(ctx context.Context) (advice []string, err error) {
	err = s.do(ctx, "/s", reading, func(c *sql.Conn) error {
		advice = nil
		if _, err := s.check(ctx, c); err != nil {
			return err
		}
		v, err := look(ctx, c, `SHOW GLOBAL STATUS WHERE Variable_name IN
			('Slaves_connected', 'Rpl_semi_sync_master_status', 'Rpl_semi_sync_source_status')`)
		if err != nil {
			return err
		}
		replicas, ok := v["slaves_connected"]
		if !ok { // MySQL shows them to users that may see them: else nothing is known
			const dumps = `SELECT COUNT(*) FROM performance_schema.threads WHERE PROCESSLIST_COMMAND LIKE 'Binlog Dump%'`
			_ = c.QueryRowContext(ctx, dumps).Scan(&replicas)
		}
		if n, _ := strconv.Atoi(replicas); n == 0 {
			return nil
		}
		if v["rpl_semi_sync_master_status"] != "ON" && v["rpl_semi_sync_source_status"] != "ON" {
			advice = []string{fmt.Sprintf("%s has replicas, and acknowledges locks that none of them has: while it is cut off and another one is "+
				"promoted, two processes may hold the same lock: use semi-synchronous replication, or Galera", s.config.Addr)}
			return nil
		}
		v, err = look(ctx, c, `SHOW GLOBAL VARIABLES WHERE Variable_name IN ('rpl_semi_sync_master_timeout', 'rpl_semi_sync_source_timeout')`)
		for name, text := range v {
			if ms, err := strconv.ParseInt(text, 10, 64); err == nil && ms < leastTimeout.Milliseconds() {
				advice = append(advice, fmt.Sprintf("%s has replicas, and after %v without an answer of theirs it acknowledges locks that none of them has: "+
					"while it is cut off and another one is promoted, two processes may hold the same lock: set %s to days (in ms)",
					s.config.Addr, time.Duration(ms)*time.Millisecond, name))
			}
		}
		return err
	})
	return append(advice, s.adviseOnRivals()...), err
}

// leastTimeout is the least advised timeout of semi-synchronous replication. A deposed primary that
// is cut off should have been stopped by then.
const leastTimeout = 24 * time.Hour

// numberOf returns the server's number of an error, or 0.
func numberOf(err error) uint16 {
	if e, ok := errors.AsType[*driver.MySQLError](err); ok {
		return e.Number
	}
	return 0
}

// conflict reports whether another transaction was in the way: a deadlock, or a lock that this one
// has waited for in vain. It was rolled back.
func conflict(err error) bool {
	n := numberOf(err)
	return n == 1213 || n == 1205
}

var errReadOnly = errors.New("mysql: the server is a replica, or read_only for another reason: give the config the primary's address")

// tooLarge reports whether a record is larger than max_allowed_packet.
func tooLarge(err error) bool {
	return errors.Is(err, driver.ErrPktTooLarge) || numberOf(err) == 1153
}

// readOnly reports whether an error says that the server takes no writes.
func readOnly(err error) bool {
	switch numberOf(err) {
	case 1290, 1792, 1836:
		return true
	}
	return errors.Is(err, errReadOnly)
}

// refusals are errors that another try does not change, by the server's number.
var refusals = map[uint16]string{
	1142: "the user lacks a privilege (see README.md of fallback/mysql)",
	1143: "the user lacks a privilege for a column (see README.md of fallback/mysql)",
	1044: "the user may not use the database",
	1046: "no database is named",
	1049: "the database does not exist",
	1054: "the table has other columns (see mysql.Table)",
}

// denials refuse a process that starts, where it cannot even connect: it need not try again. Later
// they are an outage.
var denials = map[uint16]string{
	1044: refusals[1044],
	1049: refusals[1049],
	1045: "the server does not let the user in",
	1698: "the server does not let the user in",
	1862: "the user's password has expired",
	3118: "the user's account is locked",
	4151: "the user's account is locked", // as MariaDB says
}

func refusedAtStart(err error) error {
	if text := denials[numberOf(err)]; text != "" {
		return fmt.Errorf("%w: %s: %w", fallback.ErrRefused, text, err)
	}
	return err
}

// denied marks the answer of a server that does not let this client in, or refuses it a right.
func denied(err error) error {
	switch numberOf(err) {
	case 1044, 1045, 1142, 1143, 1698, 1862, 3118, 4151:
		return fmt.Errorf("%w: %w", fallback.ErrDenied, err)
	}
	return err
}

// failed marks the error of a statement by whether it was executed. An error of the server says
// that it was not, unless it may come from a commit.
func failed(err error) error {
	text := refusals[numberOf(err)]
	switch {
	case err == nil || errors.Is(err, fallback.ErrRefused) || conflict(err):
		return err
	case tooLarge(err):
		return fmt.Errorf("%w: %w", fallback.ErrRefused, err) // Swap names the record
	case text != "":
		return fmt.Errorf("%w: %s: %w", fallback.ErrRefused, text, denied(err))
	case numberOf(err) == 1021 || numberOf(err) == 1114: // of a statement, and of no commit
		return fmt.Errorf("%w: the server's disk, or the table's space, is full: %w", fallback.ErrFull, err)
	case errors.Is(err, fallback.ErrNotSent):
		return err
	case errors.Is(err, sqldriver.ErrBadConn) || readOnly(err) || unavailable[numberOf(err)]:
		return notSent(err)
	default:
		return err
	}
}

// unavailable are errors of a server that has not begun to execute, by its number.
var unavailable = map[uint16]bool{
	1040: true, // too many connections
	1047: true, // a member of Galera that is cut off
	1203: true, // too many connections of the user
	1223: true, // a read lock on all tables
	1226: true, // a limit of the user
}
