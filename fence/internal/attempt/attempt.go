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

// Run locks the key and calls once, which begins a transaction and ends it. It does so again if nothing
// was written because the lock was lost, or because of other transactions.
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

// Over returns the cause of a context that has ended. An inner one may end a little after the outer one.
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

// Ended returns the outcome of a transaction after its commit has returned an error. Only a database that
// says so has rolled back.
func Ended(err error) Outcome {
	var state interface{ SQLState() string } // pgx, lib/pq
	switch {
	case err == nil:
		return Committed
	case errors.As(err, &state):
		if s := state.SQLState(); s == serializationFailure || s == deadlock || strings.HasPrefix(s, constraint) {
			return RolledBack
		}
	case mysqlError(err, mysqlDeadlock), strings.Contains(err.Error(), pgxRolledBack):
		return RolledBack
	}
	return Unknown
}

const (
	serializationFailure = "40001"
	deadlock             = "40P01"
	constraint           = "23" // class of those that a commit checks

	// pgxRolledBack is the text of pgx.ErrTxCommitRollback: the function has hidden a failed statement.
	pgxRolledBack = "commit unexpectedly resulted in rollback"

	mysqlDeadlock = 1213
	mysqlTimeout  = 1205 // of a wait for a row
	mysqlChanged  = 1020 // MariaDB, with innodb_snapshot_isolation

	sqliteBusy   = 5
	sqliteLocked = 6
)

// conflict reports whether a transaction has failed because of others that ran beside it. The drivers'
// types are not imported: each program has one of them.
func conflict(err error) bool {
	if err == nil {
		return false
	}
	var state interface{ SQLState() string } // pgx, lib/pq
	if errors.As(err, &state) {
		return state.SQLState() == serializationFailure || state.SQLState() == deadlock
	}
	var code interface{ Code() int } // modernc.org/sqlite
	if errors.As(err, &code) {
		low := code.Code() & 0xff
		return low == sqliteBusy || low == sqliteLocked
	}
	return mysqlError(err, mysqlDeadlock) || mysqlError(err, mysqlTimeout) || mysqlError(err, mysqlChanged) ||
		strings.Contains(err.Error(), "database is locked") // mattn/go-sqlite3
}

// mysqlError reports whether the text of an error is that of an error of go-sql-driver/mysql.
func mysqlError(err error, number int) bool {
	return strings.Contains(err.Error(), fmt.Sprintf("Error %d", number))
}
