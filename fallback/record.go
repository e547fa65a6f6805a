package fallback

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Errors of Attach and of operations that were not executed.
var (
	// ErrRefused: the server cannot be used as it is set up, or refuses this process. Trying again
	// is of no use until an operator changes a setting; the text says which.
	ErrRefused = errors.New("fallback: refused")
	// ErrFull: the server has no room for more, such as at its memory limit. It is an ErrRefused:
	// existing locks stay, and new ones are refused, until an operator makes room.
	ErrFull = fmt.Errorf("%w: no room", ErrRefused)
	// ErrDenied: the server does not let this process in, or refuses its command: a password, a
	// permission. A permission that is missing is an ErrRefused, too; a password may be right again
	// soon.
	ErrDenied = errors.New("denied")
	// ErrReadOnly: the server takes no changes, as a replica does. It may have been deposed, and
	// the client not know of the new primary yet.
	ErrReadOnly = errors.New("read-only")
	// ErrReplicas: the server answers, and too few of its replicas have acknowledged the change. It
	// does not count until they have.
	ErrReplicas = errors.New("fallback: too few replicas acknowledged")
	// ErrNotSent: the call ended before it was sent. It was not executed, and may be tried again.
	ErrNotSent = errors.New("fallback: the call was not sent")
	// ErrMismatch: the namespace was formatted with other settings.
	ErrMismatch = errors.New("fallback: settings differ from the namespace's")
)

// PromiseFor is how long a free key is kept for the waiter that was woken for it.
const PromiseFor = 500 * time.Millisecond

// epochZero is the fixed date that epochs count seconds from: 2000-01-01 00:00:00 UTC, in Unix
// seconds. It is not later than the clock of a synctest bubble begins, so tokens rise there, too,
// when a Memory loses its data.
const epochZero = 946684800

// EpochAt returns the lowest epoch that a transition at that time begins. Epochs are ahead of it
// only where a partition has more than one transition per second.
func EpochAt(t time.Time) int64 { return t.Unix() - epochZero }

// MaxEpoch is the last epoch. All tokens of it are below 2^63, so that they are positive as signed
// numbers of 64 bits. The clock reaches it in 2068.
const MaxEpoch = math.MaxInt32

// maxAhead is by how many seconds a server's clock may be ahead of a record's epoch: ten years.
const maxAhead = 10 * 365 * 24 * 60 * 60

// A Token is a fencing token: the epoch in the upper half, a number within it in the lower.
// Tokens handed out for a key strictly increase (I2).
type Token uint64

// MakeToken puts a token together.
func MakeToken(epoch, seq uint32) Token { return Token(epoch)<<32 | Token(seq) }

// Epoch returns the token's epoch.
func (t Token) Epoch() uint32 { return uint32(t >> 32) }

// Seq returns the token's number within its epoch.
func (t Token) Seq() uint32 { return uint32(t) }

// String returns epoch and number, with a dot between them, for logs.
func (t Token) String() string { return fmt.Sprintf("%d.%d", t.Epoch(), t.Seq()) }

// An Identity names a hold or a request for one: exact, and never used again.
type Identity struct {
	Session string // the session's ID
	Request uint64 // its number within the session
}

// A Row is a hold as the arbiter knows it. The zero Row is no hold.
type Row struct {
	Identity
	Token Token // the first of its block; it never changes under the hold (rule 16)
}

// A Record is the state of a partition in an answer.
type Record struct {
	Owner   string        // session; empty without an owner
	Epoch   uint32        // rises with every transition
	Grace   time.Duration // left of Grace, 0 outside
	Revoked bool          // the owner was asked to demote
}

// Verdict is the decision of an operation.
type Verdict uint8

// Verdicts.
const (
	Granted  Verdict = iota + 1 // done; or it had been done before
	Held                        // another hold is in force
	Promised                    // it has no holder, but is kept for a waiter that came earlier
	Owned                       // the partition has an owner: ask that one. The request waits no more, also if it had been queued before
	InGrace                     // nothing may be taken now
	Conflict                    // the record is not as expected
	Stale                       // the record does not name me at that epoch
	Lost                        // another hold, or a later epoch, has come after mine. Of Restore outside Grace also: the row is gone, and mine is not of an owner at the record's epoch
)

var verdicts = [...]string{"", "granted", "held", "promised", "owned", "in grace", "conflict", "stale", "lost"}

// ParseVerdict is the inverse of Verdict.String.
func ParseVerdict(text string) (v Verdict, ok bool) {
	i := slices.Index(verdicts[1:], text)
	return Verdict(i + 1), i >= 0
}

// String returns the verdict in words, such as "granted".
func (v Verdict) String() string {
	if int(v) < len(verdicts) && v != 0 {
		return verdicts[v]
	}
	return fmt.Sprintf("Verdict(%d)", uint8(v))
}
