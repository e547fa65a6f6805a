package ring

import (
	"context"
	"log/slog"
	"time"
)

// Options of a [Membership]. Name, Partitions and Label are required. The fields on addresses, keys
// and seeds have the meaning of package gossip; another membership may leave them out.
type Options struct {
	// Name of this process start: at most 128 printable ASCII characters. It must never be used
	// again, also not by the same machine after a crash: make it at random.
	Name string

	// Partitions is their number, 1 to 65,536, the same at all nodes of a namespace. Nodes with
	// another number are Incompatible to each other.
	Partitions int

	// Label keeps namespaces apart: gossip with another label is refused. 1 to 255 bytes. It is no
	// secret.
	Label string

	// Bind is the IP:port to gossip on, by UDP and TCP with the same port. Port 0: any free one.
	// ":7946", "0.0.0.0:7946" or "[::]:7946": all interfaces. Empty: any free port of the address
	// that leads to the first IP of Seeds. Without such a Seed it is the one that leads to the
	// Internet, or else the first one: of the private addresses, if there are any. Without Keys it
	// is never a public one, but a loopback address in its place.
	Bind string

	// Advertise is the IP:port that others are told. Empty: the address of Bind, and for all
	// interfaces the address that an empty Bind would choose. Port 0: the port that was bound.
	Advertise string

	// Peer is where others reach this node's peer port, host:port of at most 255 bytes; only passed
	// on.
	Peer string

	// Known reports whether a node may be placed. A node that is not known is shown as Unlisted; 64
	// at most are kept. Known is called whenever the membership changes,
	// after Recheck, and from several goroutines when a new node is heard of; it must not block.
	// This node is always known. Nil: every node is.
	Known func(name string) bool

	// Gone reports whether a node is known to own nothing any more, because its session has ended.
	// Such a node, and one that leaves, is not placed from that moment on, without Debounce: its
	// partitions are free. It is called whenever the membership changes, and must not block. Nil: a
	// node that is silent is placed until the membership has been unchanged for Debounce.
	Gone func(name string) bool

	// Session is the session ID at first: at most 128 printable ASCII characters, may be empty; see
	// [Membership.SetSession].
	Session string

	// Seeds are gossip addresses of others: IP, IP:port, name, name:port. A name may stand for
	// many, as that of a headless Kubernetes service does, and is looked up each time. The default
	// port is Bind's, or gossip.DefaultPort if that is 0. One's own address among them does no harm.
	Seeds []string

	// Keys encrypt the gossip: the first one encrypts, all decrypt. 16, 24 or 32 bytes each
	// (AES-128, -192, -256). None: nothing is encrypted, and every sender of packets to this port
	// can claim to be a node; a membership of package gossip changes them by SetKeys.
	Keys [][]byte

	// Provisional: no other node has Keys yet. Until SetKeys changes them, a membership of package
	// gossip joins no node, and its records about packets that it cannot read are of level Debug.
	Provisional bool

	// Discover returns the gossip addresses that are registered at the arbiter, written as Seeds
	// are, one's own among them or not. Nil: none. It is called by one goroutine of the ring, soon
	// and then ever more rarely after the start and after [Membership.Search], then every
	// RediscoverEvery. Its context ends after 5 s, and when the ring does, which waits for it.
	// While it fails before another node was found, the node does not assume that it is alone until
	// MaxDebounce is over.
	//
	// A node that is in it or in Seeds and is not a member is asked to join again: the gossip gives
	// up on nodes that it lost for long, so a network partition would last for ever.
	Discover func(context.Context) ([]string, error)

	// RediscoverEvery is how often, give or take a fifth. 0: 5 s; at least 1 ms.
	RediscoverEvery time.Duration

	// Debounce is how long the membership has to be unchanged until there is a new placement. 0: 2
	// s; at least 1 ms.
	Debounce time.Duration

	// MaxDebounce limits how long a changing membership can delay a placement, counted from its
	// first change. It also limits how long a node that finds no other one to ask waits before it
	// assumes that it is alone. 0: 10 s, or Debounce if that is longer.
	MaxDebounce time.Duration

	// Logger gets records of oddities in the gossip, at levels Debug and Warn. Nil: silent.
	Logger *slog.Logger
}

// An OptionError is the fault of a field of Options.
type OptionError struct {
	Option string // the field
	Err    error
}

// Error names the field and its fault.
func (e *OptionError) Error() string { return "ring: Options." + e.Option + " " + e.Err.Error() }

// Unwrap returns Err.
func (e *OptionError) Unwrap() error { return e.Err }
