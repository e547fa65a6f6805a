// Package history records the calls of clients of locks: the requests, their times, and the
// answers. Afterwards [Check] asks Porcupine whether a lock could have behaved like that.
//
// A client's process has a [Recorder], and notes each call with it. Its Put is the destination of
// the records: [NewLog] keeps them, [WriteTo] writes them as lines of JSON. It writes each before
// its call begins and again after the return, so that a process that is killed leaves a history
// behind. [Read] reads such files, and joins them.
//
// It is a module of its own, so that users of the locks do not depend on the checker.
package history

import "time"

// Op is the operation of a record.
type Op string

// The operations of clients, and the faults of their processes.
const (
	Lock       Op = "lock"
	TryLock    Op = "trylock"
	RLock      Op = "rlock"
	TryRLock   Op = "tryrlock"
	Acquire    Op = "acquire" // of permits
	TryAcquire Op = "tryacquire"
	Downgrade  Op = "downgrade" // of a Lock or TryLock, which a hold for reading takes the place of; refused: it was not done
	Unlock     Op = "unlock"    // refused: it said that the lock had been lost
	Seen       Op = "seen"      // the lock's context was looked at, and had not ended
	Lost       Op = "lost"      // the lock's context ended, some time between Call and Return
	Paused     Op = "paused"    // the process stood still, and until Return may not know of events meanwhile
	Gone       Op = "gone"      // the process was killed, some time between Call and Return
)

// Takes reports whether the operation is one that grants something, unless it is refused.
func (o Op) Takes() bool {
	switch o {
	case Lock, TryLock, RLock, TryRLock, Acquire, TryAcquire, Downgrade:
		return true
	}
	return false
}

func (o Op) shared() bool { return o == RLock || o == TryRLock || o == Downgrade }

func (o Op) counted() bool { return o == Acquire || o == TryAcquire }

// A Record is one operation. Times are by a clock that all processes share.
type Record struct {
	Process string        `json:"process"`
	ID      uint64        `json:"id"` // within the process, from 1
	Client  int           `json:"client"`
	Op      Op            `json:"op"`
	Key     string        `json:"key,omitempty"`
	Hold    uint64        `json:"hold,omitempty"`    // the ID of the record of the grant that it is about, if it is about one
	Fence   uint64        `json:"fence,omitempty"`   // of the granted hold, but for permits
	Permits int           `json:"permits,omitempty"` // of Acquire and TryAcquire
	Of      int           `json:"of,omitempty"`      // the same: how many the semaphore has
	Call    time.Duration `json:"call"`
	Return  time.Duration `json:"return"`
	Unknown bool          `json:"unknown,omitempty"` // it was done or not: Return means nothing
	Refused bool          `json:"refused,omitempty"` // it was not done
}
