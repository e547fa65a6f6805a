package mysql

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// quoted returns a table's name as SQL has it.
func quoted(table string) string {
	return "`" + strings.ReplaceAll(strings.ReplaceAll(table, "`", "``"), ".", "`.`") + "`"
}

// Table returns the statement that creates the table of the records, for a migration. Names are bytes: no collation makes two of them
// one.
func Table(table string) string {
	return `CREATE TABLE IF NOT EXISTS ` + quoted(table) + ` (
	name    VARBINARY(255) NOT NULL PRIMARY KEY,
	version BIGINT NOT NULL,
	value   LONGBLOB NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC`
}

// statements are those for one table, on servers of one kind.
type statements struct {
	table    string
	identity string // an expression that names the server
	before   string // each read
	packets  *packets
}

// writable is a condition: the server is no replica. The variable is a number, or a word of MariaDB 12.
const writable = `CAST(@@global.read_only AS CHAR) IN ('0', 'OFF')`

// load reads n records and the mark in one statement. SYSDATE is the clock when a row is handed out, after the
// snapshot of the table was taken, and not when the statement began.
func (q *statements) load(n int) string {
	return q.before + `SELECT ` + q.identity + `, ` + writable + `, @@session.time_zone, @@global.max_allowed_packet,
	TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) DIV 1000, r.name, r.version, r.value
FROM (SELECT 1 AS one) h LEFT JOIN ` + q.table + ` r ON r.name IN (` + strings.Repeat("?, ", n) + `?)`
}

// update writes n records. A new version differs, so a row that is found is a row that is changed. Statements are as plain as can be:
// one that joined the table with itself has crashed a MariaDB 10.11.
func (q *statements) update(n int) string {
	when := `CASE name` + strings.Repeat(` WHEN ? THEN ?`, n) + ` END`
	return `UPDATE ` + q.table + ` SET value = ` + when + `, version = ` + when + ` WHERE name IN (?` + strings.Repeat(`, ?`, n-1) + `)
AND (name = ? AND version = ?` + strings.Repeat(` OR name = ? AND version = ?`, n-1) + `) AND ` + q.identity + ` = ? AND ` + writable
}

// insert makes n records, and leaves existing ones alone.
func (q *statements) insert(n int) string {
	return `INSERT INTO ` + q.table + ` (name, version, value)
SELECT c.name, c.version, c.value
FROM (SELECT ? AS name, ? AS version, ? AS value` + strings.Repeat(` UNION ALL SELECT ?, ?, ?`, n-1) + `) c
WHERE ` + q.identity + ` = ? AND ` + writable + ` ON DUPLICATE KEY UPDATE ` + q.table + `.name = ` + q.table + `.name`
}

// versions reads the versions of n records.
func (q *statements) versions(n int) string {
	return q.before + `SELECT name, version FROM ` + q.table + ` WHERE name IN (?` + strings.Repeat(", ?", n-1) + `)`
}

// markName is the name of a record that tells which server wrote the records: no server writes any
// before it has written the mark. A replica that takes the place of its primary has the primary's
// mark. One that comes back later has the mark of the server in between, if it has anything of it.
// So the name of a server is its identity with the version of its mark. A Swap compares the
// identity only. It may come so late that its server has meanwhile been another one's replica, and
// is back. Then it leaves a record with the earlier name, so Grace begins there.
const markName = "server"

type mark struct {
	version int64  // 0: there is none
	Server  string `json:"server"` // its identity
	Since   int64  `json:"since"`  // Unix milliseconds
}

var errRetry = errors.New("mysql: the server changes again and again: is each of several servers writable?")

// Load implements [fallback.Records].
func (s *store) Load(ctx context.Context, keys []string) (look fallback.Look, err error) {
	err = s.do(ctx, keys[0], reading, func(c *sql.Conn) error {
		q := s.sql.Load()
		for range 4 {
			var identity string
			var m mark
			look, identity, m, err = q.read(ctx, c, keys)
			switch {
			case numberOf(err) == 1146: // another server that has nothing: missing records begin Grace
				err = s.create(ctx, c)
			case err == nil && m.version != 0 && m.Server == identity:
				s.seen.Store(true)
				look.Server = identity + "/" + strconv.FormatInt(m.version, 10)
				look.Kept = time.Duration(max(0, look.Now-m.Since)) * time.Millisecond
				return nil
			case err == nil && m.version != 0 && (m.Server == durable) != s.opts.Durable:
				if !s.seen.Load() {
					return s.differs(m.Server)
				}
				s.rivals.saw(m.version)
				err = q.take(ctx, c, identity, m, look.Now)
			case err == nil:
				err = q.take(ctx, c, identity, m, look.Now)
			}
			if err != nil {
				return err
			}
		}
		return errRetry
	})
	return look, err
}

// read reads records, the server's identity, and the mark.
func (q *statements) read(ctx context.Context, c *sql.Conn, keys []string) (look fallback.Look, identity string, m mark, err error) {
	args := make([]any, 0, len(keys)+1)
	for _, k := range keys {
		args = append(args, []byte(k))
	}
	rows, err := c.QueryContext(ctx, q.load(len(keys)), append(args, []byte(markName))...)
	if err != nil {
		return look, "", m, err
	}
	defer rows.Close()
	found := make(map[string]fallback.Versioned, len(keys))
	for rows.Next() {
		var primary bool
		var zone string
		var packet int64
		var name, value []byte
		var version *int64
		if err := rows.Scan(&identity, &primary, &zone, &packet, &look.Now, &name, &version, &value); err != nil {
			return look, "", m, err
		}
		q.packets.saw(packet)
		switch {
		case !primary:
			return look, "", m, errReadOnly
		case zone != "+00:00":
			return look, "", m, fmt.Errorf("mysql: the session's time zone is %s, and was set to +00:00: a proxy has changed it", zone)
		case version == nil:
		case string(name) == markName:
			if err := json.Unmarshal(value, &m); err != nil {
				return look, "", m, fmt.Errorf("mysql: record %q: %w", markName, err)
			}
			m.version = *version
		default:
			found[string(name)] = fallback.Versioned{Version: strconv.FormatInt(*version, 10), Value: value}
		}
	}
	look.Values = make([]fallback.Versioned, len(keys))
	for i, k := range keys {
		look.Values[i] = found[k]
	}
	return look, identity, m, rows.Err()
}

// take makes the mark that of a server, unless another process was faster.
func (q *statements) take(ctx context.Context, c *sql.Conn, identity string, was mark, now int64) error {
	text, err := json.Marshal(mark{Server: identity, Since: now})
	if err != nil {
		return err
	}
	where := ` WHERE ` + q.identity + ` = ? AND ` + writable
	if was.version == 0 {
		_, err = c.ExecContext(ctx, `INSERT INTO `+q.table+` (name, version, value) SELECT '`+markName+`', ?, ? FROM (SELECT 1 AS one) h`+where+
			` ON DUPLICATE KEY UPDATE `+q.table+`.name = `+q.table+`.name`, newVersion(), text, []byte(identity))
	} else {
		_, err = c.ExecContext(ctx, `UPDATE `+q.table+` SET version = ?, value = ?`+where+` AND name = '`+markName+`' AND version = ?`,
			newVersion(), text, []byte(identity), was.version)
	}
	if conflict(err) {
		return nil
	}
	return err
}

// newVersion returns the version of a value. It is never that of another one, and never 0.
func newVersion() int64 { return 1 + rand.Int64N(1<<62) }

// A write is a Change with its new version.
type write struct {
	at       int // in the changes of Swap
	key      []byte
	from, to int64 // versions
	value    []byte
}

// Swap implements [fallback.Records]. It is one statement for existing records, and one for new
// ones, and no transaction: the server would keep the records of one locked for hours, if this
// process vanished or stood still before it had committed.
func (s *store) Swap(ctx context.Context, server string, changes []fallback.Change) ([]bool, error) {
	i := strings.LastIndexByte(server, '/')
	if i < 0 {
		return nil, notSent(fmt.Errorf("mysql: no server is named %q", server))
	}
	if err := s.packets.fits(changes); err != nil {
		return nil, err
	}
	identity := []byte(server[:i])
	var updates, inserts []write
	for at, x := range changes {
		w := write{at: at, key: []byte(x.Key), to: newVersion(), value: x.Value}
		if x.Version == "" {
			inserts = append(inserts, w)
			continue
		}
		var err error
		if w.from, err = strconv.ParseInt(x.Version, 10, 64); err != nil {
			return nil, notSent(err)
		}
		updates = append(updates, w)
	}
	done, errs := make([]bool, len(changes)), make([]error, len(changes))
	var failed error // later parts are not sent
	for _, part := range s.packets.parts(updates, inserts) {
		all, err := slices.Concat(part.updates, part.inserts), failed
		if err == nil {
			err = s.writePart(ctx, changes, part, all, identity, done)
		}
		for _, w := range all {
			if !done[w.at] {
				errs[w.at] = err
			}
		}
		if err != nil && failed == nil && !errors.Is(err, errOvertaken) {
			failed = notSent(err)
		}
	}
	return fallback.Swapped(done, errs)
}

// writePart writes a part of changes, and notes which of all its writes it has done.
func (s *store) writePart(ctx context.Context, changes []fallback.Change, x part, all []write, identity []byte, done []bool) error {
	n, err := s.write(ctx, changes[0].Key, x, identity)
	if tooLarge(err) {
		return fmt.Errorf("%w: %w", tooLargeFor(changes), err)
	}
	if err != nil {
		return err
	}
	return s.note(ctx, changes[0].Key, all, n, done)
}

// write sends one statement, for updates or for inserts, and returns how many records it has written. They are in the order of their
// keys, so that two statements do not each wait for the other.
func (s *store) write(ctx context.Context, key string, x part, identity []byte) (n int64, err error) {
	for _, all := range [][]write{x.updates, x.inserts} {
		slices.SortFunc(all, func(a, b write) int { return slices.Compare(a.key, b.key) })
	}
	err = s.do(ctx, key, writing, func(c *sql.Conn) (err error) {
		if err = s.packets.agreed(ctx, c, x.size); err == nil {
			n, err = s.sql.Load().write(ctx, c, x.updates, x.inserts, identity)
		}
		return err
	})
	if conflict(err) { // another transaction was in the way, and this one was rolled back
		return 0, nil
	}
	return n, err
}

func (q *statements) write(ctx context.Context, c *sql.Conn, updates, inserts []write, identity []byte) (int64, error) {
	var text string
	var args []any
	if n := len(updates); n > 0 {
		text = q.update(n)
		var values, versions, names, found []any
		for _, w := range updates {
			values, versions = append(values, w.key, w.value), append(versions, w.key, w.to)
			names, found = append(names, w.key), append(found, w.key, w.from)
		}
		args = slices.Concat(values, versions, names, found)
	} else {
		text = q.insert(len(inserts))
		for _, w := range inserts {
			args = append(args, w.key, w.to, w.value)
		}
	}
	r, err := c.ExecContext(ctx, text, append(args, identity)...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

var errOvertaken = errors.New("mysql: a record was written again before it was known whether this process had written it")

// note tells which of the writes a statement has done that has done n of them. With an error that
// is unknown of those which done leaves out.
func (s *store) note(ctx context.Context, key string, all []write, n int64, done []bool) error {
	if n == 0 || n == int64(len(all)) {
		for _, w := range all {
			done[w.at] = n > 0
		}
		return nil
	}
	var found int64
	err := s.do(ctx, key, reading, func(c *sql.Conn) (err error) {
		found, err = s.sql.Load().note(ctx, c, all, done)
		return err
	})
	switch {
	case err != nil:
		return errors.New(err.Error()) // of the reading: it says nothing of the write before
	case found < n:
		return errOvertaken
	}
	return nil
}

// note tells which of the writes are there still, and how many.
func (q *statements) note(ctx context.Context, c *sql.Conn, all []write, done []bool) (found int64, err error) {
	to := make(map[string]write, len(all))
	args := make([]any, len(all))
	for i, w := range all {
		to[string(w.key)], args[i] = w, w.key
	}
	rows, err := c.QueryContext(ctx, q.versions(len(all)), args...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var name []byte
		var version int64
		if err := rows.Scan(&name, &version); err != nil {
			return 0, err
		}
		if w := to[string(name)]; version == w.to {
			done[w.at] = true
			found++
		}
	}
	return found, rows.Err()
}
