// Package attempt runs a transaction under a lock until it is known to be committed, or may not be
// tried again.
package attempt

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// Errors of package fence.
var (
	ErrStale   = errors.New("fence: stale token")
	ErrUnknown = errors.New("fence: outcome of the commit unknown")
)

// A StaleError reports a token that is lower than the highest one of its key.
type StaleError struct {
	Key   string
	Fence coord.Fence // the token that was refused
	Seen  coord.Fence // the highest one of the key
}

// Error returns key and tokens, for logs.
func (e *StaleError) Error() string {
	return fmt.Sprintf("%v: key %q has seen token %d, after %d", ErrStale, e.Key, e.Seen, e.Fence)
}

// Is makes errors.Is(e, ErrStale) true.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Judge returns a StaleError if seen is above the token.
func Judge(key string, token, seen coord.Fence) error {
	if seen > token {
		return &StaleError{Key: key, Fence: token, Seen: seen}
	}
	return nil
}

// A Locker locks keys. A *coord.Coordinator is one.
type Locker interface {
	Do(ctx context.Context, key string, fn func(ctx context.Context, l coord.Lock) error) error
}

// An Outcome is the knowledge of how a transaction has ended.
type Outcome uint8

// The outcomes.
const (
	RolledBack Outcome = iota // nothing was written
	Committed
	Unknown // the answer to the commit is missing
)

// Tries is how often a transaction is begun at most.
const Tries = 10

// Run locks the key and calls once, which begins a transaction and ends it. It does so again if
// nothing was written because the lock was lost, or because of other transactions.
func Run(ctx context.Context, locks Locker, key string, once func(context.Context, coord.Lock) (Outcome, error)) error {
	for n := 1; ; n++ {
		o := RolledBack
		err := locks.Do(ctx, key, func(ctx context.Context, l coord.Lock) (err error) {
			o, err = once(ctx, l)
			return err
		})
		switch {
		case o == Committed:
			return nil // even if the lock was lost meanwhile: the token was checked
		case o == Unknown:
			return fmt.Errorf("%w: %w", ErrUnknown, err)
		case n == Tries || !again(err) || !Pause(ctx, n):
			return err
		}
	}
}

// Over returns the cause of a context that has ended. An inner one may end a little after the outer
// one.
func Over(outer, inner context.Context) error {
	if outer.Err() != nil {
		return context.Cause(outer)
	}
	if inner.Err() != nil {
		return context.Cause(inner)
	}
	return nil
}

// Pause waits for a moment, at random, as writers that collided would collide again. After more
// tries it is longer, 64 ms at most. It reports false if ctx has ended.
func Pause(ctx context.Context, n int) bool {
	t := time.NewTimer(rand.N(time.Millisecond << min(n, 6)))
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func again(err error) bool {
	return errors.Is(err, ErrStale) || errors.Is(err, coord.ErrLost) || conflict(err)
}

// Ended returns the outcome of a transaction after its commit has returned an error. Only a
// database that says so has rolled back, or SQLite where it lacked a lock or a deferred constraint:
// it writes after that. With postgres the states of errors have PostgreSQL's meaning.
func Ended(err error, postgres bool) Outcome {
	var state sqlError
	switch {
	case err == nil:
		return Committed
	case errors.As(err, &state):
		if s := state.SQLState(); s == serializationFailure || s == deadlock || s[:min(2, len(s))] == constraint ||
			postgres && rolledBack(state) {
			return RolledBack
		}
	case mysqlError(err, mysqlDeadlock), mysqlError(err, mysqlRolledBack),
		strings.Contains(err.Error(), pgxRolledBack), strings.Contains(strings.ToLower(err.Error()), pqRolledBack),
		!postgres && sqliteError(err, sqliteConstraint, sqliteForeignKey), !postgres && sqliteLocks(err):
		return RolledBack
	}
	return Unknown
}

// A sqlError is an error of pgx or lib/pq. One of go-sql-driver/mysql has its state in a field.
type sqlError interface {
	error
	SQLState() string
}

// rolledBack reports whether an answer of PostgreSQL to COMMIT says that nothing was written. The
// answer of a deferred trigger says so, and its state may be any. A server that has written the
// commit's record reports no errors but those below: it or a proxy ends the session, or it notices
// late that a query is cancelled, or it runs out of something.
func rolledBack(err sqlError) bool {
	state := err.SQLState()
	if len(state) != 5 || ends(err) {
		return false
	}
	switch state {
	case "25P03", "25P04", // the session is ended: it was idle, or the transaction took too long
		"40003", // the completion is unknown
		"55P03": // cancelled after lock_timeout
		return false
	}
	switch state[:2] {
	case "00", // no error
		"08", // of the connection
		"28", // of the authorization, which a proxy ends sessions for
		"53", // no memory, disk or connections
		"57", // a query or a session was cancelled
		"58", // of the system
		"F0", // of the configuration
		"XX": // internal
		return false
	}
	return true
}

// ends reports whether an error may be one that ends the session: pgx puts the severity first, in
// the server's language, and lib/pq has methods.
func ends(err sqlError) bool {
	pq, ok := err.(interface {
		Fatal() bool
		Get(byte) string
	})
	if !ok {
		return !strings.HasPrefix(err.Error(), "ERROR")
	}
	const severity = 'S'
	return pq.Fatal() || pq.Get(severity) != "ERROR"
}

const (
	serializationFailure = "40001"
	deadlock             = "40P01"
	constraint           = "23" // class of those that a commit checks

	// Texts of pgx.ErrTxCommitRollback and pq.ErrInFailedTransaction: the function has hidden a
	// failed statement. Both are returned when the server has answered that it has rolled back.
	pgxRolledBack = "commit unexpectedly resulted in rollback"
	pqRolledBack  = "could not complete operation in a failed transaction"

	mysqlDeadlock   = 1213
	mysqlTimeout    = 1205 // of a wait for a row
	mysqlChanged    = 1020 // MariaDB, with innodb_snapshot_isolation
	mysqlRolledBack = 3101 // by group replication, at the commit: another server has changed a row

	sqliteBusy       = 5
	sqliteLocked     = 6
	sqliteConstraint = 19

	// Texts of SQLite, for drivers whose errors have no method Code.
	sqliteIsLocked   = "database is locked"
	sqliteForeignKey = "FOREIGN KEY constraint failed"
)

// conflict reports whether a transaction has failed because of others that ran beside it. The
// drivers' types are not imported: each program has one of them.
func conflict(err error) bool {
	if err == nil {
		return false
	}
	var state sqlError
	if errors.As(err, &state) {
		return state.SQLState() == serializationFailure || state.SQLState() == deadlock
	}
	return sqliteLocks(err) || mysqlError(err, mysqlDeadlock) || mysqlError(err, mysqlTimeout) || mysqlError(err, mysqlChanged) ||
		mysqlError(err, mysqlRolledBack)
}

// sqliteLocks reports whether an error is one of SQLite, which did not get a lock on the database.
func sqliteLocks(err error) bool {
	return sqliteError(err, sqliteBusy, sqliteIsLocked) || sqliteError(err, sqliteLocked, sqliteIsLocked)
}

// sqliteError reports whether an error has that code of SQLite, as those of modernc.org/sqlite, or,
// as those of mattn/go-sqlite3, that text.
func sqliteError(err error, number int, text string) bool {
	var code interface{ Code() int }
	if errors.As(err, &code) {
		return code.Code()&0xff == number
	}
	return strings.Contains(err.Error(), text)
}

// mysqlError reports whether the text of an error is that of an error of go-sql-driver/mysql.
func mysqlError(err error, number int) bool {
	return strings.Contains(err.Error(), fmt.Sprintf("Error %d", number))
}
