package once

import (
	"crypto/sha256"
	"errors"
	"fmt"
)

// State is the progress or the outcome of a job.
type State byte

// The states.
const (
	Started  State = 1 + iota // it runs, or its process has died
	Answered                  // its answer is in the record
	NotKept                   // it was executed, and the answer is too large
	Failed                    // it may be executed again
)

// String returns the name of the state.
func (s State) String() string {
	names := [...]string{"", "started", "answered", "not kept", "failed"}
	if int(s) < len(names) && s != 0 {
		return names[s]
	}
	return fmt.Sprintf("state(%d)", byte(s))
}

// A Print is the fingerprint that a repeated job must share with the first one.
type Print [sha256.Size]byte

// A Record is the stored record of a job.
type Record struct {
	State   State
	Print   Print
	Payload []byte // the job's own, of Answered and NotKept
}

// version begins a record. Another one is not understood, and its job not executed.
const version = 1

// ErrRecord is the error for stored bytes that are no record, or one of another version.
var ErrRecord = errors.New("the stored record cannot be read")

// Encode begins a record: version, state, room for the print. The payload is to be appended.
func Encode(s State, p Print) []byte { return append([]byte{version, byte(s)}, p[:]...) }

const header = 2 + len(Print{})

// Decode is the inverse of Encode. The payload is a part of b.
func Decode(b []byte) (Record, error) {
	r := Record{}
	if len(b) >= header && b[0] == version {
		r = Record{State(b[1]), Print(b[2:header]), b[header:]}
	}
	switch r.State {
	case Answered, NotKept:
		return r, nil
	case Started, Failed:
		if len(r.Payload) == 0 {
			return r, nil
		}
	}
	return r, fmt.Errorf("%w: %d bytes, %v", ErrRecord, len(b), r.State)
}
