//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// An event is a line of a node's journal. It is written before anything else happens, so that it is
// there after SIGKILL, too.
type event struct {
	At     int64  `json:"t"`           // CLOCK_MONOTONIC
	Node   string `json:"n"`           // host
	Life   int    `json:"l"`           // number of the start of the node's process
	Client int    `json:"c,omitempty"` // of that process; 0: of none
	Op     op     `json:"o"`
	Key    string `json:"k,omitempty"`
	Mode   mode   `json:"m,omitempty"`
	N      int    `json:"p,omitempty"` // permits
	Fence  uint64 `json:"f,omitempty"`
	From   uint64 `json:"d,omitempty"` // of a grant by a downgrade: the token of the lock that it takes the place of
	Valid  int64  `json:"v,omitempty"` // the lock was certainly in force then, by its holder's clock
	Text   string `json:"e,omitempty"`

	State *state `json:"s,omitempty"`
}

type op string

// A client's calls and their results, in this order. A process that is killed leaves the rest out:
// a call under way then has an unknown end.
const (
	opLock      op = "lock"      // Lock is called; Text says for how long
	opFailed    op = "failed"    // Lock has returned an error, in Text
	opGranted   op = "granted"   // Lock has returned a lock
	opHeld      op = "held"      // it was found in force at Valid
	opRefused   op = "refused"   // the resource refused the lock's token; At is before the request was sent
	opLost      op = "lost"      // the holder finds that it is not in force any more, for the reason in Text
	opDowngrade op = "downgrade" // Downgrade is called; a grant follows
	opKept      op = "kept"      // or it has returned the error in Text
	opUnlock    op = "unlock"    // Unlock is called
	opUnlocked  op = "unlocked"  // Unlock has returned nil, or the error in Text
	opState     op = "state"     // of the process
	opReady     op = "ready"     // the process has a coordinator
	opClosed    op = "closed"    // it has closed it; Text: the error; State: goroutines left
)

// state is a process's account of itself.
type state struct {
	Session    string
	Owned      int               // partitions
	Goroutines int               // that do not wait for work
	Heap       uint64            // bytes in use
	RSS        uint64            // bytes resident
	Stalled    int64             // ns that the machine did not let it run; a SIGSTOP looks the same
	Linked     int               // other nodes that this one has a stream to
	Lost       map[string]uint64 `json:",omitempty"` // by cause
	Granted    map[string]uint64 `json:",omitempty"` // by path
}

// writer writes events down.
type writer struct {
	node string
	life int

	mu sync.Mutex // one line after the other
	f  *os.File
}

func (w *writer) write(e event) error {
	e.Node, e.Life = w.node, w.life
	if e.At == 0 {
		e.At = int64(now())
	}
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err = w.f.Write(append(line, '\n')) // in one piece
	return err
}

// readEvents reads a node's events. A last line that is not whole was not written.
func readEvents(path string) ([]event, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []event
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return all, fmt.Errorf("%s: %w: %q", path, err, lines.Text())
		}
		all = append(all, e)
	}
	return all, lines.Err()
}
