// Package gossiphost is where a simulation takes the place of memberlist.
package gossiphost

import (
	"time"

	"github.com/hashicorp/memberlist"
)

// A Host is a node's place in a simulated network.
type Host interface {
	// Gossip begins to tell others of the node, and meta, what it says of itself, whenever
	// [Gossip.UpdateNode] is called. The events are of all nodes, this one among them.
	Gossip(name string, meta func() []byte, events memberlist.EventDelegate) (g Gossip, addr string, err error)
}

// Gossip is what package gossip needs of memberlist, as documented there.
type Gossip interface {
	Join(addrs []string) (int, error)
	UpdateNode(wait time.Duration) error
	Leave(wait time.Duration) error
	Shutdown() error
}
