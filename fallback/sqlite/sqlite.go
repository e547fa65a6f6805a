// Package sqlite is an arbiter in a file, for several processes of one machine, without a server.
//
//	c, err := coord.New(ctx, sqlite.New("/var/lib/orders/locks", nil), &coord.Options{Namespace: "orders"})
//
// README.md lists its costs, and the failures that it survives.
package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"

	"github.com/holdfast-go/holdfast/fallback"
)

// Options are the options of [New]. The zero value is valid, and so is a nil pointer.
type Options struct {
	// ColdStart says that a file without the namespace is new. Without it, a namespace in a file
	// that is younger than Grace begins in Grace: an older file may have been deleted while
	// processes used it. For tools, tests and development.
	ColdStart bool
}

// New returns an arbiter in the file at path, and does no I/O. Attach makes the file if it is
// missing; its directory must exist, on a file system of the machine itself. opts may be nil. The
// arbiter has no messages ([fallback.Mute]).
func New(path string, opts *Options) fallback.Arbiter {
	records := new(fallback.RecordsOptions)
	if opts != nil {
		records.ColdStart = opts.ColdStart
	}
	return fallback.NewRecords(&store{path: path}, records)
}

// store is a file with a table of records, a [fallback.Records].
type store struct {
	path string

	mu     sync.Mutex // protects the fields below
	opened int        // that are not closed
	file   *file      // that is in use; nil: none

	leaving sync.WaitGroup // files that others took the place of
}

// file is a file as this process has opened it. It stays the same file when another one has its
// path.
type file struct {
	info    os.FileInfo
	read    *sql.DB // connections that only read
	write   *sql.DB // one connection: a process writes one change after another
	server  string
	created int64 // Unix milliseconds

	users sync.WaitGroup // calls
}

// Open implements [fallback.Records].
func (s *store) Open(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		f, err := open(ctx, s.path)
		if err != nil {
			return err
		}
		s.file = f
	}
	s.opened++
	return nil
}

// Close implements [fallback.Records].
func (s *store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened--; s.opened > 0 || s.file == nil {
		return nil
	}
	f := s.file
	s.file = nil
	s.leaving.Wait()
	return f.close()
}

func (f *file) close() error {
	f.users.Wait()
	return errors.Join(f.read.Close(), f.write.Close())
}

// use returns the file that is at the path now, and counts a call of it. A file that was deleted is
// still there for the processes that have it open: they change to the one that has its place.
func (s *store) use(ctx context.Context) (*file, error) {
	if err := ctx.Err(); err != nil {
		return nil, notSent(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil || !s.file.current(s.path) {
		f, err := open(ctx, s.path)
		if err != nil {
			return nil, notSent(err)
		}
		if was := s.file; was != nil {
			s.leaving.Go(func() { _ = was.close() }) // its data is lost anyway
		}
		s.file = f
	}
	s.file.users.Add(1)
	return s.file, nil
}

// current reports whether the file still has its path.
func (f *file) current(path string) bool {
	now, err := os.Stat(path)
	return err == nil && os.SameFile(f.info, now)
}

func notSent(err error) error { return fmt.Errorf("%w: %w", fallback.ErrNotSent, err) }

func refusal(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{fallback.ErrRefused}, args...)...)
}

// busyFor is for how long a statement waits for the writers of other processes at a time.
const busyFor = 5 * time.Second

// patiently calls f until no other process is in its way, or ctx ends. Writers do not queue: one
// may be passed over.
func patiently(ctx context.Context, f func() error) error {
	for {
		err := f()
		if e, ok := errors.AsType[*sqlite.Error](err); !ok || e.Code()&0xff != 5 || ctx.Err() != nil { // SQLITE_BUSY
			return err
		}
		select {
		case <-time.After(mathrand.N(10 * time.Millisecond)):
		case <-ctx.Done():
			return err
		}
	}
}

const schema = `CREATE TABLE IF NOT EXISTS records (key TEXT PRIMARY KEY, version INTEGER NOT NULL, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS file (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, created INTEGER NOT NULL)`

// checkPath refuses a path that names no file, or one on a file system where the arbiter would not
// be safe.
func checkPath(path string) error {
	if path == "" || strings.HasPrefix(path, ":memory:") {
		return refusal("the path is %q, must be that of a file", path)
	}
	return checkFileSystem(filepath.Dir(path))
}

// dsnOf is the driver's name of a file.
func dsnOf(path string, query url.Values) string {
	query.Add("_pragma", fmt.Sprintf("busy_timeout(%d)", busyFor.Milliseconds()))
	return (&url.URL{Scheme: "file", Opaque: url.PathEscape(path), RawQuery: query.Encode()}).String()
}

// open opens the file, and makes it if it is missing.
func open(ctx context.Context, path string) (f *file, err error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	// With synchronous=FULL a commit is on the disk before it is acknowledged, also in WAL mode.
	dsn := dsnOf(path, url.Values{"_pragma": {"journal_mode(WAL)", "synchronous(FULL)"}})
	f = new(file)
	if f.write, err = sql.Open("sqlite", dsn+"&_txlock=immediate"); err != nil {
		return nil, refusal("%w", err)
	}
	f.write.SetMaxOpenConns(1)
	if f.read, err = sql.Open("sqlite", dsn); err != nil {
		return nil, errors.Join(refusal("%w", err), f.write.Close())
	}
	f.read.SetMaxOpenConns(2)
	if err := f.prepare(ctx, path); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// errMoved: another file has taken the path while it was opened.
var errMoved = errors.New("another file has taken the path of this one")

func (f *file) prepare(ctx context.Context, path string) error {
	if made, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600); err == nil { // it has a secret. Else SQLite names the fault
		_ = made.Close()
	}
	info, statErr := os.Stat(path) // a file that is there before and after is the one that the connection has opened
	var mode, id string
	err := patiently(ctx, func() error {
		if err := f.write.QueryRowContext(ctx, `PRAGMA journal_mode`).Scan(&mode); err != nil || mode != "wal" {
			return err
		}
		if _, err := f.write.ExecContext(ctx, schema); err != nil {
			return err
		}
		_, err := f.write.ExecContext(ctx, `INSERT INTO file VALUES (1, ?, ?) ON CONFLICT DO NOTHING`, rand.Text(), time.Now().UnixMilli())
		if err != nil {
			return err
		}
		return f.write.QueryRowContext(ctx, `SELECT id, created FROM file`).Scan(&id, &f.created)
	})
	if err != nil {
		return explain(err)
	}
	if mode != "wal" {
		return refusal("the file's journal mode is %s, must be wal: its file system may lack shared memory", mode)
	}
	if statErr != nil {
		return statErr
	}
	f.info, f.server = info, id+fileNumber(path, info) // a copy has the same ID
	if !f.current(path) {
		return errMoved
	}
	return nil
}

// explain marks errors that an operator has to see to.
func explain(err error) error {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return err
	}
	switch e.Code() & 0xff {
	case 3, 8, 14, 23: // SQLITE_PERM, READONLY, CANTOPEN, AUTH
		return refusal("the file cannot be opened or written: it is for the user alone that made it (0600), so run the process as that user, with the right to write in the file's directory; "+
			"README.md of fallback/sqlite says how a group may have it: %w", err)
	case 11, 26: // SQLITE_CORRUPT, NOTADB
		return refusal("the file is no SQLite database, or damaged: delete it while no process uses it: %w", err)
	}
	return err
}

// Load implements [fallback.Records].
func (s *store) Load(ctx context.Context, keys []string) (fallback.Look, error) {
	for {
		f, err := s.use(ctx)
		if err != nil {
			return fallback.Look{}, err
		}
		look, err := f.load(ctx, keys)
		same := f.current(s.path) // else a connection that was made meanwhile may have read another file
		f.users.Done()
		if err != nil || same {
			return look, err
		}
	}
}

func (f *file) load(ctx context.Context, keys []string) (look fallback.Look, err error) {
	var found map[string]fallback.Versioned
	if err := patiently(ctx, func() (err error) { found, err = f.find(ctx, keys); return err }); err != nil {
		return look, explain(err)
	}
	look.Now, look.Server = time.Now().UnixMilli(), f.server
	look.Kept = time.Duration(max(0, look.Now-f.created)) * time.Millisecond
	look.Values = make([]fallback.Versioned, len(keys))
	for i, k := range keys {
		look.Values[i] = found[k]
	}
	return look, nil
}

func (f *file) find(ctx context.Context, keys []string) (map[string]fallback.Versioned, error) {
	args := make([]any, len(keys))
	for i, k := range keys {
		args[i] = k
	}
	rows, err := f.read.QueryContext(ctx, `SELECT key, version, value FROM records WHERE key IN (?`+strings.Repeat(", ?", len(keys)-1)+`)`, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := make(map[string]fallback.Versioned, len(keys))
	for rows.Next() {
		var key, value string
		var version int64
		if err := rows.Scan(&key, &version, &value); err != nil {
			return nil, err
		}
		found[key] = fallback.Versioned{Version: strconv.FormatInt(version, 10), Value: []byte(value)}
	}
	return found, rows.Err()
}

// Swap implements [fallback.Records]. It is one transaction.
func (s *store) Swap(ctx context.Context, server string, changes []fallback.Change) (done []bool, err error) {
	f, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer f.users.Done()
	if f.server != server {
		return make([]bool, len(changes)), nil
	}
	var tx *sql.Tx
	if err := patiently(ctx, func() (err error) { tx, err = f.write.BeginTx(ctx, nil); return err }); err != nil {
		return nil, notSent(explain(err))
	}
	defer func() { _ = tx.Rollback() }() // without effect after a commit
	if done, err = apply(ctx, tx, changes); err != nil {
		return nil, notSent(explain(err))
	}
	if !f.current(s.path) {
		return make([]bool, len(changes)), nil
	}
	if err := tx.Commit(); err != nil {
		return nil, explain(err)
	}
	return done, nil
}

func apply(ctx context.Context, tx *sql.Tx, changes []fallback.Change) ([]bool, error) {
	done := make([]bool, len(changes))
	for i, c := range changes {
		var r sql.Result
		var err error
		if c.Version == "" {
			r, err = tx.ExecContext(ctx, `INSERT INTO records VALUES (?, ?, ?) ON CONFLICT DO NOTHING`, c.Key, mathrand.Int64(), string(c.Value))
		} else {
			r, err = tx.ExecContext(ctx, `UPDATE records SET version = ?, value = ? WHERE key = ? AND version = ?`, mathrand.Int64(), string(c.Value), c.Key, c.Version)
		}
		if err != nil {
			return nil, err
		}
		n, err := r.RowsAffected()
		if err != nil {
			return nil, err
		}
		done[i] = n == 1
	}
	return done, nil
}
