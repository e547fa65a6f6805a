// Package wire is where a simulation takes the place of the network between nodes. Package
// gossiphost is for gossip.
package wire

import (
	"context"
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

// A Hold is a key that a node has.
type Hold struct {
	Session string
	Request uint64
	Own     bool   // it rests on the node's own partition
	Owned   uint32 // else: the epoch of the owner that it rests on, 0 for none
}

// Seen is what [Look] finds: the epoch at which a node serves a partition, and the request of its
// hold of a name, each 0 for none, with deadlines by the node's clock.
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

	// Clocks tells whether a [Clock] is looked at.
	Clocks bool

	// Session tells what session a *coord.Coordinator has, and until when by its own clock. Empty:
	// none.
	Session func(coordinator any) (id string, until time.Time)

	// Serves tells until when a *coord.Coordinator may grant a partition's keys, by its own clock,
	// and at which epoch. It says that it may not if it is busy.
	Serves func(coordinator any, partition uint32) (epoch uint32, until time.Time)

	// Owned tells how many partitions a *coord.Coordinator owns, takes or gives away. A busy one
	// counts.
	Owned func(coordinator any) int

	// Holding tells what hold of a key a *coord.Coordinator has, and until when by its own clock.
	// The zero time: none, or it is busy.
	Holding func(coordinator any, key string) (Hold, time.Time)

	// Look finds out what a *coord.Coordinator does with a partition, and with a hold's name.
	// ok is false if it is busy.
	Look func(coordinator any, partition uint32, name string) (x Seen, ok bool)

	// Granted tells to which node a *coord.Coordinator has given a key of a partition that it
	// serves, at which epoch, and until when by its own clock it serves it. The zero time: it does
	// not, or it is busy.
	Granted func(coordinator any, key string) (epoch uint32, session string, request uint64, until time.Time)

	// Forget makes a *coord.Coordinator take a key of its own partitions for free, whatever node
	// has it: a mistake, to be noticed.
	Forget func(coordinator any, key string)

	// State tells what a *coord.Coordinator knows of a key.
	State func(coordinator any, key string) string
)
