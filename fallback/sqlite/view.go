package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"

	"modernc.org/sqlite"
)

// View implements [fallback.Viewer]. A file of another program stays as it is, and one that is
// missing is not made.
func (s *store) View(ctx context.Context, key string) (value []byte, err error) {
	if err := checkPath(s.path); err != nil {
		return nil, err
	}
	path, err := filepath.EvalSymlinks(s.path) // the log is beside the file that a link leads to
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, refusal("%w", err)
	}
	for {
		// Without a log no process has changes in it. SQLite makes one for a reader, and leaves it,
		// unless it is told that the file does not change.
		logged := exists(path + "-wal")
		value, err = view(ctx, path, key, logged)
		if logged || !exists(path+"-wal") {
			return value, err
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrNotExist)
}

// view reads a record by a connection that can only read.
func view(ctx context.Context, path, key string, changes bool) (value []byte, err error) {
	query := url.Values{"mode": {"ro"}}
	if !changes {
		query.Set("immutable", "1")
	}
	db, err := sql.Open("sqlite", dsnOf(path, query))
	if err != nil {
		return nil, refusal("%w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = patiently(ctx, func() error {
		return db.QueryRowContext(ctx, `SELECT value FROM records WHERE key = ?`, key).Scan(&value)
	})
	if errors.Is(err, sql.ErrNoRows) || hasNoRecords(err) {
		return nil, nil
	}
	return value, explain(err)
}

// hasNoRecords reports whether an error says that a database has no table of records, or another
// one.
func hasNoRecords(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code() == 1 // SQLITE_ERROR: the statement does not fit
}
