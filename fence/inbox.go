package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fence/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/unit"
)

// An Inbox is a table of the IDs of executed work: messages of a queue, or jobs. An ID goes into it
// in the transaction that does the work. So the work is done exactly once, however often its
// message is delivered, and whatever dies in between. A call that ends with [ErrUnknown] may be
// made again: the ID tells the outcome. Its methods are safe for concurrent use.
type Inbox struct {
	// Dialect is that of the database. It must be set.
	Dialect Dialect

	// Name is the name of the table, with a schema or without, as SQL has it. Default "inbox".
	Name string

	// Tx are the options of transactions that Once begins. Nil: the driver's defaults.
	Tx *sql.TxOptions
}

// MaxID is the length of the longest ID of an [Inbox], in bytes.
const MaxID = 512

// ErrDone: the work with this ID was executed, and its transaction was committed.
var ErrDone = errors.New("fence: executed before")

func (b Inbox) name() string {
	if b.Name == "" {
		return "inbox"
	}
	return b.Name
}

// Schema returns the statement that makes the table, for a migration. done_at is in Unix seconds.
func (b Inbox) Schema() string {
	kind, more := "TEXT", ""
	if b.Dialect == MySQL {
		kind, more = fmt.Sprintf("VARBINARY(%d)", MaxID), ", seen TINYINT NOT NULL" // text would be compared without regard to case
	}
	return "CREATE TABLE IF NOT EXISTS " + b.name() + " (id " + kind + " NOT NULL PRIMARY KEY, done_at BIGINT NOT NULL" + more + ")"
}

// EnsureTable makes the table if it is not there.
func (b Inbox) EnsureTable(ctx context.Context, db *sql.DB) error {
	if err := b.Dialect.validate("Inbox"); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, b.Schema())
	if err != nil { // PostgreSQL fails if another process does the same now
		_, err = db.ExecContext(ctx, b.Schema())
	}
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	return nil
}

// Mark puts the ID into the table, as part of the caller's transaction. [ErrDone] says that it is
// there: the caller rolls back, and takes the message for executed. While another transaction has
// put it there and is not over, Mark waits for its end. So it should be the first statement. After
// any error the transaction must be rolled back.
func (b Inbox) Mark(ctx context.Context, tx Tx, id string) error {
	if err := b.Dialect.validate("Inbox"); err != nil {
		return err
	}
	if err := checkID(id); err != nil {
		return err
	}
	if err := inTx(tx); err != nil {
		return err
	}
	isNew, err := b.insert(ctx, tx, id, time.Now().Unix())
	switch {
	case err != nil:
		return fmt.Errorf("fence: ID %q: %w", id, err)
	case !isNew:
		return ErrDone
	}
	return nil
}

func checkID(id string) error {
	switch {
	case id == "":
		return errors.New("fence: Inbox: the ID is empty: all messages without one would be taken for the same")
	case len(id) > MaxID:
		return fmt.Errorf("fence: Inbox: the ID has %d bytes, must have %d at most", len(id), MaxID)
	}
	return nil
}

func (b Inbox) insert(ctx context.Context, tx Tx, id string, now int64) (isNew bool, err error) {
	if b.Dialect == MySQL { // the rows that it says to be affected depend on the client's flags
		res, err := tx.ExecContext(ctx, "INSERT INTO "+b.name()+" (id, done_at, seen) VALUES (?, ?, LAST_INSERT_ID(1))"+
			" ON DUPLICATE KEY UPDATE seen = LAST_INSERT_ID(2)", id, now)
		if err != nil {
			return false, err
		}
		n, err := res.LastInsertId()
		return n == 1, err
	}
	res, err := tx.ExecContext(ctx, "INSERT INTO "+b.name()+" (id, done_at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING", id, now)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

// Once calls fn in a transaction that has the ID, and commits; it returns nil if this was done, now
// or before. Calls with the same ID in other processes wait for its lock, "inbox/" and the ID. So
// no transactions wait for each other in the database.
//
// After an error nothing was written, unless that Is [ErrUnknown]; the call may be made again in
// either case. A transaction that is not known to have been committed is looked for by its ID. So
// fn may be called again, and its work is in the database once. fn must do all its work with tx,
// and must neither commit nor roll back. It must heed its context, which ends with ctx and if the
// lock is lost.
func (b Inbox) Once(ctx context.Context, locks Locker, db *sql.DB, id string, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if err := checkID(id); err != nil { // before callers without one wait for each other's lock
		return err
	}
	for n := 1; ; n++ {
		done := false // an ErrDone of fn is another ID's, and this one was rolled back
		err := doTx(ctx, b.Dialect, locks, db, b.Tx, "inbox/"+id, fn, func(ctx context.Context, tx *sql.Tx, _ coord.Lock) error {
			err := b.Mark(ctx, tx, id)
			done = errors.Is(err, ErrDone)
			return err
		})
		if done {
			return nil
		}
		if !errors.Is(err, ErrUnknown) || n == attempt.Tries || ctx.Err() != nil {
			return err
		}
	}
}

// Forget deletes the IDs of work that was executed longer ago than age, and returns their number.
// Call it now and then, with a time that is longer than a message may be delivered again. Less than
// a second is refused.
func (b Inbox) Forget(ctx context.Context, db *sql.DB, age time.Duration) (n int64, err error) {
	if err := b.Dialect.validate("Inbox"); err != nil {
		return 0, err
	}
	if age <= 0 {
		return 0, fmt.Errorf("fence: Inbox.Forget: %v must be positive", age)
	}
	if err := unit.Check("fence: Inbox.Forget: the age", age, time.Second, "7 * 24 * time.Hour"); err != nil {
		return 0, err
	}
	place := "$1"
	if b.Dialect == MySQL {
		place = "?"
	}
	res, err := db.ExecContext(ctx, "DELETE FROM "+b.name()+" WHERE done_at < "+place, time.Now().Add(-age).Unix())
	if err != nil {
		return 0, fmt.Errorf("fence: %w", err)
	}
	return res.RowsAffected()
}
