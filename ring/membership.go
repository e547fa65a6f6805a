package ring

import (
	"context"
	"errors"
	"time"
)

// ErrClosed is returned by the methods of a [Membership] that has ended.
var ErrClosed = errors.New("ring: closed")

// ErrOtherKeys is the error of a [Failure] where a node answers under keys that this node does not
// have.
var ErrOtherKeys = errors.New("it has other keys: it uses another arbiter, such as another Redis server, or other GossipKeys")

// A Membership is this node's place among the nodes of a namespace: it tells them of this node, and
// this node of them. The methods are safe for concurrent use, and only Leave blocks. Its answers
// are hints, never trusted for safety.
type Membership interface {
	// View returns the newest View; never nil. Until this node has looked for others it places no
	// node. After the end it is the last one.
	View() *View

	// SetState changes this node's state, and SetSession its session ID. The others hear of it
	// later; the node's own View has it a moment later too. The error is ErrClosed, or names the
	// fault of the value.
	SetState(State) error
	SetSession(string) error

	// SetKeys replaces the keys of [Options]. Messages that are under way may be lost.
	SetKeys(keys [][]byte) error

	// Recheck makes it ask Options.Known again about each node.
	Recheck()

	// Search makes it look for others at once, because Options.Discover knows more than it did.
	Search()

	// Settle makes it place the nodes now for the first time, if it has not yet: another node asks
	// this one for a key, and so has placed it.
	Settle()

	// Failing returns the addresses that could not be joined when they were last tried, in no
	// order. The attempts go on for as long as they are named.
	Failing() []Failure

	// Gossip returns the address to register at the arbiter, for the Discover of others.
	Gossip() string

	// Bound returns the address that is listened on, for logs. Gossip differs from it behind NAT,
	// and if all interfaces are bound.
	Bound() string

	// Leave tells the others that this node leaves, and ends the membership in any case. It blocks
	// until the message is on its way, not beyond the deadline of ctx, and until its goroutines
	// have ended.
	Leave(ctx context.Context) error
}

// A Failure is an address of Seeds or Discover that could not be joined.
type Failure struct {
	Addr       string    // IP:port
	Since      time.Time // of the first attempt to join that failed, of the present series
	Err        error     // of the last one
	Discovered bool      // Discover names it, not only Seeds
}
