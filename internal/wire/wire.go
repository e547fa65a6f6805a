// Package wire lets a simulation take the place of the network between nodes. Package gossiphost is
// for gossip.
package wire

import (
	"context"
	"errors"
	"net"
	"time"
)

// A Host is a node's place in a simulated network.
type Host interface {
	// Listen returns where streams of other nodes arrive. It is called once.
	Listen() (net.Listener, error)

	// Dial connects to the address of another host's listener.
	Dial(ctx context.Context, addr string) (net.Conn, error)
}

// A Clock is the Host of a node with a clock of its own. It is looked at with the build tag
// simulation only.
type Clock interface {
	// Now is the time by that clock. It may take long, as the node may stand still; with that tag
	// no mutex of package coord keeps others from noticing.
	Now() time.Time
}

// A Witness is the Host of a node that is told why its streams end.
type Witness interface{ Ended(err error) }

// A Neighbour is the Host of a node that other nodes of its machine see end.
type Neighbour interface {
	// Place names the machine; "" if no other node sees this one.
	Place() string

	// Show lets other nodes of the machine see the end of this one, by its name, until Hide.
	Show(node string) error
	Hide()

	// Tidy is to be called now and then.
	Tidy()

	// Watch blocks until a node of this machine has ended, and returns nil then. An error proves
	// nothing: ctx has ended, the node was not there, or [ErrBroke].
	Watch(ctx context.Context, node string) error
}

// ErrBroke is the error of a Neighbour that cannot be seen any more, and may live.
var ErrBroke = errors.New("the connection to the other process broke")

// A Hold is a key that a node has.
type Hold struct {
	Session string
	Request uint64
	Own     bool   // it rests on the node's own partition
	Owned   uint32 // else: the epoch of the owner that it rests on, 0 for none
}

// Seen is the result of [Look]: the epoch of a node's ownership of a partition, and the request of
// its hold of a name. Each is 0 for none, with deadlines by the node's clock.
type Seen struct {
	Epoch       uint32
	ServesUntil time.Time
	Request     uint64
	HasUntil    time.Time
}

// Set by package coord.
var (
	// Use makes a *coord.Cluster use a Host.
	Use func(cluster any, h Host)

	// Clocks reports whether a [Clock] is looked at.
	Clocks bool

	// Session tells the session of a *coord.Coordinator, and until when it is good by the
	// coordinator's own clock. Empty: none.
	Session func(coordinator any) (id string, until time.Time)

	// Serves tells until when a *coord.Coordinator may grant a partition's keys, by its own clock,
	// and the epoch. It says that it may not if it is busy.
	Serves func(coordinator any, partition uint32) (epoch uint32, until time.Time)

	// Owned tells how many partitions a *coord.Coordinator owns, takes or gives away. A busy one
	// counts.
	Owned func(coordinator any) int

	// Holding tells the hold that a *coord.Coordinator has of a key, and until when by its own
	// clock. The zero time: none, or it is busy.
	Holding func(coordinator any, key string) (Hold, time.Time)

	// Look returns the state of a partition, and of a hold by its name, at a *coord.Coordinator. ok
	// is false if it is busy.
	Look func(coordinator any, partition uint32, name string) (x Seen, ok bool)

	// Granted tells the holder that a *coord.Coordinator has given a key to, and the epoch of its
	// ownership of the key's partition. until is the end of that ownership by its own clock. The
	// zero time: it does not serve the partition, or it is busy.
	Granted func(coordinator any, key string) (epoch uint32, session string, request uint64, until time.Time)

	// Forget makes a *coord.Coordinator take a key of its own partitions for free, whatever node
	// has it: a mistake, to be noticed.
	Forget func(coordinator any, key string)

	// State tells a *coord.Coordinator's knowledge of a key.
	State func(coordinator any, key string) string
)
