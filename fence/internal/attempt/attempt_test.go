package attempt_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/fence/internal/attempt"
)

// stated is an error with a state of SQL, as those of pgx and lib/pq.
type stated struct{ severity, state string }

func (e stated) Error() string    { return fmt.Sprintf("%s: no (SQLSTATE %s)", e.severity, e.state) }
func (e stated) SQLState() string { return e.state }

// pqError is an error as lib/pq has them, whose text does not tell the severity.
type pqError struct{ severity, state string }

func (e pqError) Error() string    { return fmt.Sprintf("pq: no (%s)", e.state) }
func (e pqError) SQLState() string { return e.state }
func (e pqError) Fatal() bool      { return e.severity == "FATAL" }
func (e pqError) Get(k byte) string {
	if k == 'S' {
		return e.severity
	}
	return ""
}

// coded is an error with a code, as those of modernc.org/sqlite.
type coded int

func (e coded) Error() string { return fmt.Sprintf("no (%d)", int(e)) }
func (e coded) Code() int     { return int(e) }

// Only an answer that cannot come after the commit says that a transaction was rolled back.
func TestEnded(t *testing.T) {
	for _, tt := range []struct {
		err      error
		postgres attempt.Outcome
		others   attempt.Outcome // of the same error from another database
	}{
		{nil, attempt.Committed, attempt.Committed},
		{stated{"ERROR", "P0001"}, attempt.RolledBack, attempt.Unknown},
		{stated{"ERROR", "22012"}, attempt.RolledBack, attempt.Unknown},
		{stated{"ERROR", "45000"}, attempt.RolledBack, attempt.Unknown},
		{stated{"ERROR", "40001"}, attempt.RolledBack, attempt.RolledBack},
		{stated{"ERROR", "40P01"}, attempt.RolledBack, attempt.RolledBack},
		{stated{"ERROR", "23505"}, attempt.RolledBack, attempt.RolledBack},
		{fmt.Errorf("wrapped: %w", stated{"ERROR", "P0001"}), attempt.RolledBack, attempt.Unknown},
		{stated{"ERROR", "40003"}, attempt.Unknown, attempt.Unknown},
		{stated{"ERROR", "08006"}, attempt.Unknown, attempt.Unknown},
		{stated{"ERROR", "53200"}, attempt.Unknown, attempt.Unknown},
		{stated{"ERROR", "55P03"}, attempt.Unknown, attempt.Unknown},
		{stated{"ERROR", "57014"}, attempt.Unknown, attempt.Unknown},
		{stated{"ERROR", "58030"}, attempt.Unknown, attempt.Unknown},
		{stated{"ERROR", "XXUUU"}, attempt.Unknown, attempt.Unknown},
		{stated{"FATAL", "25P04"}, attempt.Unknown, attempt.Unknown},
		{stated{"FATAL", "0A000"}, attempt.Unknown, attempt.Unknown},
		{stated{"ERROR", ""}, attempt.Unknown, attempt.Unknown},
		{stated{"FEHLER", "P0001"}, attempt.Unknown, attempt.Unknown},
		{pqError{"ERROR", "P0001"}, attempt.RolledBack, attempt.Unknown},
		{pqError{"FATAL", "0A000"}, attempt.Unknown, attempt.Unknown},
		{pqError{"PANIC", "0A000"}, attempt.Unknown, attempt.Unknown},
		{errors.New("pq: Could not complete operation in a failed transaction"), attempt.RolledBack, attempt.RolledBack},
		{errors.New("pq: could not complete operation in a failed transaction"), attempt.RolledBack, attempt.RolledBack},
		{errors.New("commit unexpectedly resulted in rollback"), attempt.RolledBack, attempt.RolledBack},
		{errors.New("Error 1213 (40001): Deadlock found"), attempt.RolledBack, attempt.RolledBack},
		{errors.New("Error 3101 (HY000): Plugin instructed the server to rollback"), attempt.RolledBack, attempt.RolledBack},
		{coded(5), attempt.Unknown, attempt.RolledBack},         // SQLITE_BUSY
		{coded(6), attempt.Unknown, attempt.RolledBack},         // SQLITE_LOCKED
		{coded(19 | 3<<8), attempt.Unknown, attempt.RolledBack}, // SQLITE_CONSTRAINT_FOREIGNKEY
		{coded(10 | 4<<8), attempt.Unknown, attempt.Unknown},    // SQLITE_IOERR_FSYNC
		{coded(13), attempt.Unknown, attempt.Unknown},           // SQLITE_FULL
		{errors.New("database is locked"), attempt.Unknown, attempt.RolledBack},
		{errors.New("FOREIGN KEY constraint failed"), attempt.Unknown, attempt.RolledBack},
		{errors.New("Error 1180 (HY000): Got error 5 during COMMIT"), attempt.Unknown, attempt.Unknown},
		{errors.New("unexpected EOF"), attempt.Unknown, attempt.Unknown},
	} {
		if is, others := attempt.Ended(tt.err, true), attempt.Ended(tt.err, false); is != tt.postgres || others != tt.others {
			t.Errorf("%v: %d in PostgreSQL, %d elsewhere, want %d and %d", tt.err, is, others, tt.postgres, tt.others)
		}
	}
}
