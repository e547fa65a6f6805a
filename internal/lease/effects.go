package lease

import (
	"time"
	"unsafe"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/peer"
)

// Ordered effects are carried out before the partition's mutex is free, in the order of the fields.
type Ordered struct {
	Losses  []Loss       // each End is called with the loss: once the mutex is free a message may give the key away
	Acquire bool         // the phase is Acquiring: the calls are to be made
	Starts  []*Contender // to be run
	Ends    []*Contender // their requests are over
	Pokes   []*Contender // to ask again now
	Doubts  []Doubt
	Linger  *Key    // has begun to linger
	Rumors  []Rumor // from messages: to be looked up
	Again   []Rumor // to be heard again
	// Rows that this node has written and that are to be removed if their sessions are dead.
	Disclaimed []fallback.Release
	Rare       bool // there is one of the above
	Frames     []Sent
}

// Pending returns the ordered effects of the last events, nil if there are none. They are to be
// carried out, and then Done.
func (p *Partition) Pending() *Ordered {
	if !p.ordered {
		return nil
	}
	return p.out
}

// Done forgets the ordered effects. The memory of frames and of a few contenders is kept for the
// next event; that of frames is cleared if there was more than one: most events send one.
func (p *Partition) Done() {
	o := p.out
	if len(o.Frames) > 1 {
		clear(o.Frames)
	}
	frames := o.Frames[:0]
	if o.Rare {
		*o = Ordered{Ends: again(o.Ends), Pokes: again(o.Pokes)}
	}
	o.Frames = frames
	p.ordered = false
}

// again returns the memory of a list for the next event, nil if it is long.
func again(x []*Contender) []*Contender {
	if cap(x) > 4 {
		return nil
	}
	clear(x)
	return x[:0]
}

// order returns the ordered effects, to add one that is no frame.
func (p *Partition) order() *Ordered {
	if p.out == nil {
		p.out = new(Ordered)
	}
	p.ordered, p.out.Rare = true, true
	return p.out
}

// Sent is a frame for another node.
type Sent struct {
	To    Link
	Frame peer.Frame
}

// Flags of frames, by their kind. A Grant without a count of tokens gives no key: the owner answers
// for a hold that the node has (rule 17).
const (
	FlagTry       = 1 // Request: refuse it if the key is not free
	FlagContended = 1 // Grant: another node waits
	FlagBusy      = 1 // Deny: the key is not free; without: the node has not got that hold
	FlagFull      = 2 // Deny: the owner lets this node have no more keys
	FlagSize      = 4 // Deny: the permits of the key are as many as Count says
	FlagYours     = 1 // Moved: the partition should be the receiver's, and as a rule has no owner now
	FlagLeft      = 2 // Moved: the same, as the sender leaves
	FlagTaken     = 3 // Moved: the sender owns the partition, which the receiver has given it
)

// send puts a frame about a hold or a request on a stream, in the order of the decisions. Here it
// is only noted: the shell writes it, when the event is over and before the partition's mutex is
// free (coord.after.carryOut). send returns the frame for its further fields, valid until the next
// one.
func (p *Partition) send(l Link, kind peer.Kind, key string, id fallback.Identity) *peer.Frame {
	if p.out == nil {
		p.out = new(Ordered)
	}
	o := p.out
	p.ordered = true
	n := len(o.Frames)
	if n < cap(o.Frames) {
		o.Frames = o.Frames[:n+1]
	} else {
		o.Frames = append(o.Frames, Sent{})
	}
	s := &o.Frames[n]
	s.To = l
	f := &s.Frame
	*f = peer.Frame{}
	f.Kind, f.Partition, f.Request = kind, p.number, id.Request
	f.Session, f.Key = bytesOf(id.Session), bytesOf(key)
	return f
}

// bytesOf returns a string's bytes, which must not be written to: a frame is encoded, and never
// kept.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// Effects are the actions that events cause outside, once the partition's mutex is free. Events of
// several partitions may add to the same. The zero value is none.
type Effects struct {
	End      func(cause error) // ends the contexts of a turn that was unlocked, before the next one begins
	Wake     *Waiter           // has its turn, or was refused
	Wakes    []*Waiter         // more of them
	Releases []fallback.Release
	Heard    []fallback.Release // the same, of holds that this node has by the word of a message only: some may be left out
	Losses   []Loss             // to be told: their contexts have ended
	Sooner   time.Time          // a hold lapses sooner than the clock is looked at
	Idle     bool               // no other node is known to wait for a hold that is given back
	Adopt    bool               // holds have lost their owner
	Balance  bool               // the record of a partition may name this node: it has to look
	Astray   bool               // a node has asked this one for a key of a partition that the ring places at another
	Absent   bool               // a holder is in the way that cannot be asked: is its session dead?
}

// A Cause is the reason of a lock's loss.
type Cause uint8

// The causes, with the numbers that they have in package coord.
const (
	SessionExpired Cause = iota + 1 // the session was not renewed in time
	LeaseExpired                    // the hold's row, or its owner's word, was not confirmed in time
	Superseded                      // the arbiter does not know the hold, or has another one
	CoordClosed                     // Close did not wait for the caller any longer
	TimeOver                        // the time that LockFor was given is over
	Broken                          // by Break
)

// A Loss is a lock that was lost.
type Loss struct {
	Key   string
	Fence uint64
	Cause Cause
	Why   string            // of Break
	End   func(cause error) // ends the contexts of the turn; nil if there is none
}

// A Doubt is a request of this node's that may still be executed, though its call has failed. After
// some time the row that it may have made is released.
type Doubt struct {
	Key  string
	ID   fallback.Identity
	When time.Time // to look
}

// A Rumor is one message of the arbiter about this node's partition: a hold was released, or,
// without a key, the partition's owner is to demote. Every client of the arbiter that may publish
// can send a message, so the records are read before the node acts: see Heard.
type Rumor struct {
	Key string
	ID  fallback.Identity
}

// wakeUp adds a waiter that has its turn, or was refused.
func (fx *Effects) wakeUp(w *Waiter) {
	if fx.Wake == nil {
		fx.Wake = w
	} else {
		fx.Wakes = append(fx.Wakes, w)
	}
}
