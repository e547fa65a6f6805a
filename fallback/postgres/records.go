package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/fallback"
)

// quoted returns a table's name as SQL has it.
func quoted(table string) string { return pgx.Identifier(strings.Split(table, ".")).Sanitize() }

// Table returns the statement that creates the table of the records, for a migration. Half of each
// page is free at first, and no index has a column that changes, so an update leaves the indexes
// alone (HOT).
func Table(table string) string { return create(quoted(table)) }

func create(table string) string {
	return `CREATE TABLE IF NOT EXISTS ` + table + ` (
	key     text COLLATE "C" PRIMARY KEY,
	version bigint NOT NULL,
	value   text NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000)`
}

// server names the server. A restart loses nothing, and leaves it; a promotion and a recovery to a
// point in time begin another timeline. A standby has no place to write, and answers with an error.
const server = `(SELECT system_identifier FROM pg_control_system())::text || '/' || ` + timeline

const timeline = `substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)`

// updates is update of several records. It locks them in the order of their keys, whatever the
// plan, so that two of them do not each wait for the other.
type statements struct {
	table, view, load, update, updates, insert string

	whole bool // the table has its schema
}

func statementsFor(table string) statements {
	return statements{
		table: table,
		view:  `SELECT value FROM ` + table + ` WHERE key = $1`,
		load: `SELECT h.now, h.server, h.kept, r.key, r.version, r.value FROM (
	SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now, ` + server + ` AS server,
		CASE ` + timeline + ` WHEN '00000001' THEN (extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) * 1000)::bigint ELSE 0 END AS kept
) h LEFT JOIN ` + table + ` r ON r.key = ANY($1::text[])`,
		update: `UPDATE ` + table + ` r SET version = c.next, value = c.value
FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[]) c (key, version, next, value)
WHERE r.key = c.key AND r.version = c.version AND ` + server + ` = $1 RETURNING r.key, ` + lasting,
		updates: `WITH c AS MATERIALIZED (
	SELECT r.key, c.version, c.next, c.value FROM ` + table + ` r
	JOIN unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[]) c (key, version, next, value) ON r.key = c.key AND r.version = c.version
	WHERE ` + server + ` = $1 ORDER BY r.key FOR NO KEY UPDATE OF r
) UPDATE ` + table + ` r SET version = c.next, value = c.value FROM c WHERE r.key = c.key AND r.version = c.version RETURNING r.key, ` + lasting,
		insert: `INSERT INTO ` + table + ` (key, version, value)
SELECT c.key, c.next, c.value FROM unnest($2::text[], $3::bigint[], $4::text[]) c (key, next, value)
WHERE ` + server + ` = $1 ON CONFLICT DO NOTHING RETURNING key, ` + lasting,
	}
}

// View implements [fallback.Viewer].
func (s *store) View(ctx context.Context, key string) (value []byte, err error) {
	if err := s.connect(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(refusedAtStart(err), s.Close()) }()
	err = s.do(ctx, key, reading, func(c *pgxpool.Conn) error {
		_, missing, err := s.check(ctx, c)
		if err != nil || missing {
			return err
		}
		var text string
		switch err := c.QueryRow(ctx, s.sql.Load().view, s.plain(), key).Scan(&text); {
		case err == nil:
			value = []byte(text)
		case !errors.Is(err, pgx.ErrNoRows):
			return err
		}
		return nil
	})
	return value, err
}

// Load implements [fallback.Records]. The server takes its snapshot of the table before it reads
// the clock.
func (s *store) Load(ctx context.Context, keys []string) (look fallback.Look, err error) {
	err = s.do(ctx, keys[0], reading, func(c *pgxpool.Conn) error {
		look, err = s.read(ctx, c, keys)
		if codeOf(err) == "42P01" { // another server that has nothing: missing records begin Grace
			if err = s.create(ctx, c); err == nil {
				look, err = s.read(ctx, c, keys)
			}
		}
		return err
	})
	return look, err
}

func (s *store) read(ctx context.Context, c *pgxpool.Conn, keys []string) (look fallback.Look, err error) {
	rows, err := c.Query(ctx, s.sql.Load().load, keys)
	if err != nil {
		return look, err
	}
	var kept int64
	var key, value *string
	var version *int64
	found := make(map[string]fallback.Versioned, len(keys))
	_, err = pgx.ForEachRow(rows, []any{&look.Now, &look.Server, &kept, &key, &version, &value}, func() error {
		if key != nil {
			found[*key] = fallback.Versioned{Version: strconv.FormatInt(*version, 10), Value: []byte(*value)}
		}
		return nil
	})
	look.Kept = time.Duration(kept) * time.Millisecond
	look.Values = make([]fallback.Versioned, len(keys))
	for i, k := range keys {
		look.Values[i] = found[k]
	}
	return look, err
}

func byKey(a, b fallback.Change) int { return strings.Compare(a.Key, b.Key) }

// Swap implements [fallback.Records]. It is one statement, or one transaction of two.
func (s *store) Swap(ctx context.Context, server string, changes []fallback.Change) ([]bool, error) {
	var keys, newKeys, values, newValues []string
	var versions, next, newNext []int64
	at := make(map[string]int, len(changes))
	for i, x := range changes {
		at[x.Key] = i
	}
	for _, x := range slices.SortedFunc(slices.Values(changes), byKey) {
		if x.Version == "" {
			newKeys, newNext, newValues = append(newKeys, x.Key), append(newNext, rand.Int64()), append(newValues, string(x.Value))
			continue
		}
		version, err := strconv.ParseInt(x.Version, 10, 64)
		if err != nil {
			return nil, notSent(err)
		}
		keys, versions = append(keys, x.Key), append(versions, version)
		next, values = append(next, rand.Int64()), append(values, string(x.Value))
	}
	sql, done := s.sql.Load(), make([]bool, len(changes))
	note := func(rows pgx.Rows) error {
		var key string
		_, err := pgx.ForEachRow(rows, []any{&key, nil}, func() error { done[at[key]] = true; return nil })
		return err
	}
	err := s.do(ctx, changes[0].Key, writing, func(c *pgxpool.Conn) error {
		clear(done)
		var b pgx.Batch
		if len(keys) > 0 {
			update := sql.updates
			if len(keys) == 1 {
				update = sql.update
			}
			b.Queue(update, server, keys, versions, next, values).Query(note)
		}
		if len(newKeys) > 0 {
			b.Queue(sql.insert, server, newKeys, newNext, newValues).Query(note)
		}
		return c.SendBatch(ctx, &b).Close()
	})
	switch codeOf(err) {
	case "40001", "40P01": // another transaction was faster, or each waits for the other: this one was rolled back
		return make([]bool, len(changes)), nil
	}
	if err != nil {
		return nil, err
	}
	return done, nil
}
