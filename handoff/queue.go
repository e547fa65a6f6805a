// Package handoff passes a key's lock among the waiters of one process, in memory, while the
// process has a hold on the key: the last and cheapest rung of the ladder.
//
// A hold is a grant to this process, with a block of fencing tokens. The grantor is the arbiter, or
// the key's owner. Under one hold the waiters take turns, first come, first served, each with the
// next token. The hold goes back when no waiter has come for a while (Linger), or when the block is
// used up. The grantor recalls it when another process waits: then it goes back when no waiter is
// left, or the quantum (MaxTurns, MaxHold) is used up.
//
// The package is a state machine without goroutines, channels or a clock: its caller keeps a
// [Queue] under a mutex of its own, passes readings of a clock in, and acts on the answers. A
// reading is the time since a moment that the caller has chosen for all of the queue's life, and is
// not negative. (A time.Time is three times as large, and a process may hold a million keys.)
package handoff

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/guard"
)

// Limits say how long a process may keep a hold. They have no defaults: 0 or less is no limit, or
// no lingering.
type Limits struct {
	// MaxTurns is how many turns may begin under a hold after another process asked for the key,
	// the running one included. 0 or less: not limited by number.
	MaxTurns int

	// MaxHold is for how long turns may begin under a hold after another process asked for the key.
	// 0 or less: not limited by time. While no other process asks, there is no limit.
	MaxHold time.Duration

	// Linger is how long a hold without waiters is kept for waiters to come in this process, while
	// no other process asks for it. 0 or less: not at all.
	Linger time.Duration
}

// State of a Queue.
type State uint8

// States of a Queue.
const (
	Idle      State = iota // no hold; waiters, if any, wait for one
	Turn                   // a waiter has the turn
	Lingering              // there is a hold, and no waiter now
)

var states = [...]string{"idle", "turn", "lingering"}

// String returns the state's name: idle, turn or lingering.
func (s State) String() string {
	if int(s) < len(states) {
		return states[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Next is the caller's next step with the hold.
type Next uint8

// The next steps with the hold.
const (
	Stay     Next = iota // it stays
	GiveBack             // the queue has let go of it and is Idle: give it back now, and if waiters are left, get another
)

// A Waiter is a place in a Queue. Its zero value is ready; after it left or had its turn it can be
// used again.
type Waiter[T any] struct {
	Value      T // the caller's
	fence      uint64
	queued     bool
	prev, next *Waiter[T]
}

// Fence returns the token of the waiter's turn; 0 until it has one.
func (w *Waiter[T]) Fence() uint64 { return w.fence }

// A Queue is the waiters of one process for one key, and the process's hold on it. The zero Queue
// is Idle and empty. It is not safe for concurrent use.
type Queue[T any] struct {
	first, last *Waiter[T]
	mark        *Waiter[T] // where Walk goes on
	waiting     int32
	state       State

	token    uint64        // the next turn's
	left     uint64        // turns left in the block
	recalled time.Duration // 1 more than when another process has asked for the key; 0: none has
	turns    int           // that began under the hold, or since its recall, with the running one
}

// State returns the queue's state.
func (q *Queue[T]) State() State { return q.state }

// Waiting returns the number of waiters that have no turn yet.
func (q *Queue[T]) Waiting() int { return int(q.waiting) }

// Turns returns the number of turns that began under the hold, or since it was recalled.
func (q *Queue[T]) Turns() int { return q.turns }

// Recalled reports whether another process has asked for the key under this hold.
func (q *Queue[T]) Recalled() bool { return q.recalled > 0 }

// RecalledFor returns for how long another process has asked for the key under this hold, 0 if none
// has.
func (q *Queue[T]) RecalledFor(now time.Duration) time.Duration {
	if !q.Recalled() {
		return 0
	}
	return now + 1 - q.recalled
}

// Enter takes a lingering hold's next turn without waiting, if there is one.
func (q *Queue[T]) Enter() (fence uint64, ok bool) {
	if q.state != Lingering {
		return 0, false
	}
	return q.begin(), true
}

// Join queues a waiter, which must not be in a queue. It takes no turn by itself: that comes by
// Take or Done. In state Lingering call Enter instead: the turn is free.
func (q *Queue[T]) Join(w *Waiter[T]) {
	w.prev, w.next, w.queued, w.fence = q.last, nil, true, 0
	if q.last == nil {
		q.first = w
	} else {
		q.last.next = w
	}
	q.last = w
	q.waiting++
}

// Leave removes a waiter. It reports false if the waiter is not queued: it has been given the turn,
// or was removed by Drain. A waiter that leaves with a turn has to end it by Done, or the turn is
// lost for all.
func (q *Queue[T]) Leave(w *Waiter[T]) bool {
	if !w.queued {
		return false
	}
	if w == q.mark {
		q.mark = w.next
	}
	if w.prev == nil {
		q.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.queued = nil, nil, false
	q.waiting--
	return true
}

// Drain removes the waiters that drop selects (all, if it is nil) and calls each with them, in
// order.
func (q *Queue[T]) Drain(drop func(*Waiter[T]) bool, each func(*Waiter[T])) {
	for w := q.first; w != nil; {
		next := w.next // w is its caller's again once it left
		if drop == nil || drop(w) {
			q.Leave(w)
			each(w)
		}
		w = next
	}
}

// Any reports whether any waiter satisfies f.
func (q *Queue[T]) Any(f func(*Waiter[T]) bool) bool {
	for w := q.first; w != nil; w = w.next {
		if f(w) {
			return true
		}
	}
	return false
}

// Walk calls f with each waiter, in order, and pause after each of them. Pause may do anything to
// the queue but walk. Walk goes on with the waiter that is next then, and ends early if pause
// returns false. A waiter that joins in the pause after the last one is not visited.
func (q *Queue[T]) Walk(pause func() bool, f func(*Waiter[T])) {
	defer func() { q.mark = nil }()
	for w := q.first; w != nil; w = q.mark {
		q.mark = w.next
		f(w)
		if !pause() {
			return
		}
	}
}

// Take gives the queue a hold with the tokens from first to first+n-1, and the first waiter the
// turn. contended is true if another process waits already. If there is no waiter, or a hold
// already, it returns nil and does not take this one: the caller gives it back. So a grant and "a
// waiter exists" are one step (rule 11).
func (q *Queue[T]) Take(first, n uint64, contended bool, now time.Duration) *Waiter[T] {
	if q.state != Idle || q.waiting == 0 || n == 0 {
		return nil
	}
	q.token, q.left, q.recalled, q.turns = first, n, 0, 0
	if contended {
		q.recalled = now + 1
	}
	return q.pop()
}

// Begin gives the queue a hold with one token, and the caller the turn, if the queue is Idle and
// has no waiters: Join and Take in one. It reports whether it did.
func (q *Queue[T]) Begin(token uint64) bool {
	if q.state != Idle || q.waiting > 0 {
		return false
	}
	q.token, q.left, q.recalled, q.turns = token, 1, 0, 0
	q.begin()
	return true
}

// Supply sets the token of the next turn, and allows that one only: for a process that grants its
// own hold. Call it before Enter and Done.
func (q *Queue[T]) Supply(token uint64) { q.token, q.left = token, 1 }

// Rest ends the running turn if there are no waiters and the hold was not recalled, as Done does if
// there is to be lingering. It reports whether it did.
func (q *Queue[T]) Rest() bool {
	if q.state != Turn || q.waiting > 0 || q.Recalled() {
		return false
	}
	q.state = Lingering
	return true
}

// Keep is Rest under a hold that has a turn left.
func (q *Queue[T]) Keep() bool { return q.left > 0 && q.Rest() }

// Pass ends the running turn and gives the next one, with a token of the caller's, to the first
// waiter: Supply and Done in one. It does nothing and returns nil if no turn runs, there is no
// waiter, or the hold was recalled.
func (q *Queue[T]) Pass(token uint64) *Waiter[T] {
	w := q.first
	if q.state != Turn || w == nil || q.Recalled() {
		return nil
	}
	if w == q.mark {
		q.mark = w.next
	}
	if q.first = w.next; q.first == nil {
		q.last = nil
	} else {
		q.first.prev = nil
	}
	w.next, w.queued, w.fence = nil, false, token
	q.waiting--
	q.turns++
	q.token, q.left = token+1, 0
	return w
}

// Again takes a lingering hold's next turn with a token of the caller's: Supply and Enter in one.
// It reports false if there is no lingering hold.
func (q *Queue[T]) Again(token uint64) bool {
	if q.state != Lingering {
		return false
	}
	q.state, q.token, q.left = Turn, token+1, 0
	q.turns++
	return true
}

// Done ends the running turn, if there is one. It returns the waiter that has the next turn, or nil
// and the next step with the hold: if it stays and a turn ran, the queue is Lingering now.
func (q *Queue[T]) Done(now time.Duration, l Limits) (*Waiter[T], Next) {
	switch {
	case q.state != Turn:
		return nil, Stay
	case q.left == 0 || q.exhausted(now, l):
		q.Drop()
		return nil, GiveBack
	case q.waiting > 0:
		return q.pop(), Stay
	case q.Recalled() || l.Linger <= 0:
		q.Drop()
		return nil, GiveBack
	}
	q.state = Lingering
	return nil, Stay
}

// exhausted reports whether the quantum is used up.
func (q *Queue[T]) exhausted(now time.Duration, l Limits) bool {
	if !q.Recalled() || !guard.Quantum {
		return false
	}
	return l.MaxTurns > 0 && q.turns >= l.MaxTurns || l.MaxHold > 0 && q.RecalledFor(now) >= l.MaxHold
}

// Recall notes that another process waits for the key. A lingering hold is to be given back at
// once; one in use when Done says so: after the running turn if no waiter is left, else at the end
// of the quantum, which counts from the first recall under the hold.
func (q *Queue[T]) Recall(now time.Duration) Next {
	switch {
	case q.state == Lingering:
		q.Drop()
		return GiveBack
	case q.state == Turn && !q.Recalled():
		q.recalled, q.turns = now+1, 1
	}
	return Stay
}

// Relax ends lingering.
func (q *Queue[T]) Relax() Next {
	if q.state != Lingering {
		return Stay
	}
	q.Drop()
	return GiveBack
}

// Drop makes the queue forget its hold, because it was lost or is given back, and the turn that
// runs under it. The waiters stay.
func (q *Queue[T]) Drop() {
	q.state, q.token, q.left, q.recalled, q.turns = Idle, 0, 0, 0, 0
}

func (q *Queue[T]) pop() *Waiter[T] {
	w := q.first
	q.Leave(w)
	w.fence = q.begin()
	return w
}

func (q *Queue[T]) begin() uint64 {
	fence := q.token
	q.token++
	q.left--
	q.turns++
	q.state = Turn
	return fence
}
