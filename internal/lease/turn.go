package lease

import (
	"time"

	"github.com/holdfast-go/holdfast/handoff"
)

// A Turn is one goroutine's lock. A key uses the same turn again and again: a lock names the one
// that it means by the token. Tokens are unique in a partition, and so are turns, so a stale lock
// is never taken for a fresh one.
type Turn struct {
	key   *Key
	fence uint64 // 0: unlocked
	lost  *Loss
	began Moment            // or Unmeasured
	end   func(cause error) // ends the contexts of the turn; nil if there are none

	pledge *Pledge // nil: callers do not share it

	Context any // the shell's
}

// A Seat is a caller's place in the queue of a key.
type Seat struct {
	Turn       *Turn
	Valid      Deadlines // of the hold, as known when the turn was given
	QuickUntil Moment    // until then the monotonic clock alone decides; zero: both clocks do
	Path       Path
	Refused    bool   // the caller is sent away, for the reason
	Reason     error  // why the key is not to be had; nil: it is locked
	Try        bool   // the caller does not wait for other callers or nodes
	told       bool   // a record was written of the wait
	since      Moment // when the wait began, or was first looked at; 0: not yet

	// The shell's.
	Ready chan struct{} // capacity 1: gets one value when the caller has the turn, or is refused
	Tag   any
}

// Reset makes a seat ready for another wait.
func (s *Seat) Reset() {
	s.Reason, s.Refused, s.Turn, s.since, s.told, s.Tag = nil, false, nil, 0, false, nil
}

// Began notes when the wait began.
func (s *Seat) Began(at Moment) { s.since = max(at, 1) }

// Waiter is a caller in the queue of a key.
type Waiter = handoff.Waiter[*Seat]

// waits and tries choose waiters by whether they wait for others.
func waits(w *Waiter) bool { return !w.Value.Try }

func tries(w *Waiter) bool { return w.Value.Try }

// A TurnState is the fate of a lock's turn.
type TurnState uint8

// The states of a turn.
const (
	TurnRuns     TurnState = iota // it runs; for Unlock: it did
	TurnUnlocked                  // it was unlocked before
	TurnLost                      // it was lost
)

// TurnState looks whether a turn runs, by the clock.
func (p *Partition) TurnState(t *Turn, fence uint64, now time.Time, fx *Effects) TurnState {
	if t.fence == fence && t.lost == nil {
		p.InForce(t.key, now, fx)
	}
	switch {
	case t.fence != fence:
		return TurnUnlocked
	case t.lost != nil:
		return TurnLost
	default:
		return TurnRuns
	}
}

// Lost returns why the turn was lost, nil if it was not.
func (t *Turn) Lost() *Loss { return t.lost }

// Is reports whether the turn is the one that began with a token, and was not unlocked.
func (t *Turn) Is(fence uint64) bool { return t.fence == fence }

// Key returns the key that the turn is of, nil if it was unlocked or lost, or the key is not in
// use.
func (t *Turn) Key(fence uint64) *Key {
	if t.fence != fence || t.lost != nil || !t.key.known {
		return nil
	}
	return t.key
}

// forget takes a context off the turn that nothing has to end.
func (t *Turn) forget() {
	if t.Context != nil { // as a rule there is none, and to look at pointers is cheaper than to write them
		t.Context = nil
	}
}

// OnEnd adds a function that ends a context with the turn. It must run no code of the user's.
func (t *Turn) OnEnd(end func(cause error)) {
	if first := t.end; first != nil {
		t.end = func(cause error) {
			first(cause)
			end(cause)
		}
		return
	}
	t.end = end
}
