package lease

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/peer"
)

// Effects are what has to happen outside because of an event. The zero value is none.
type Effects struct {
	// Ordered effects are carried out before the partition's mutex is free, in this order.

	Losses  []Loss       // each End is called with the loss: once the mutex is free a message may give the key away
	Acquire bool         // the phase is Acquiring: the calls are to be made
	Starts  []*Contender // to be run
	Ends    []*Contender // whose requests are over
	Pokes   []*Contender // to ask again now
	Doubts  []Doubt
	Linger  *Key    // has begun to linger
	Rumors  []Rumor // to be looked up
	Again   []Rumor // to be heard again
	sent    int
	first   [2]Sent
	more    []Sent

	// Deferred effects are carried out afterwards.

	End      func(cause error) // ends the contexts of a turn that was unlocked, before the next one begins
	Wake     *Waiter           // has its turn, or was refused
	Wakes    []*Waiter         // more of them
	Releases []fallback.Release
	Sooner   time.Time // a hold lapses sooner than the clock is looked at
	Idle     bool      // no other node is known to wait for a hold that is given back
	Adopt    bool      // holds have lost their owner
	Balance  bool      // the record of a partition may name this node: it has to look
}

// Sent is a frame for another node.
type Sent struct {
	To    Link
	Frame peer.Frame
}

// A Loss is a lock that was lost.
type Loss struct {
	Key   string
	Fence uint64
	Cause Cause
	End   func(cause error) // ends the contexts of the turn; nil if there is none
}

// A Doubt is a request of this node's that may still be executed, though its call has failed. After some time the row that it
// may have made is released.
type Doubt struct {
	Key  string
	ID   fallback.Identity
	When time.Time // to look
}

// send puts a frame on a stream, in the order in which it was decided.
func (fx *Effects) send(l Link, f peer.Frame) {
	if fx.sent < len(fx.first) {
		fx.first[fx.sent] = Sent{l, f}
	} else {
		fx.more = append(fx.more, Sent{l, f})
	}
	fx.sent++
}

// Frames returns the number of frames.
func (fx *Effects) Frames() int { return fx.sent }

// Frame returns the frame with a number: they are in the order in which they were decided.
func (fx *Effects) Frame(i int) *Sent {
	if i < len(fx.first) {
		return &fx.first[i]
	}
	return &fx.more[i-len(fx.first)]
}

// Ordered forgets the ordered effects, which were carried out. Losses stay, to be told.
func (fx *Effects) Ordered() {
	if fx.sent > 0 {
		clear(fx.first[:])
	}
	fx.Acquire, fx.Starts, fx.Ends, fx.Pokes, fx.Doubts, fx.Linger, fx.Rumors, fx.Again, fx.sent, fx.more = false, nil, nil, nil, nil, nil, nil, nil, 0, nil
}

// wakeUp is for a waiter that has its turn, or was refused.
func (fx *Effects) wakeUp(w *Waiter) {
	if fx.Wake == nil {
		fx.Wake = w
	} else {
		fx.Wakes = append(fx.Wakes, w)
	}
}
