package coord

import (
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/ring"
)

// NodeInfo describes a node of the cluster, as gossip says. State "dead", Peer, Service and Takeover
// are as the arbiter lists them.
type NodeInfo struct {
	Name    string `json:"name"` // of the process: Options.Name; two processes may have the same
	ID      string `json:"id"`   // of this start of the process, unique: the name, a slash and a random text
	Session string `json:"session,omitempty"`
	Peer    string `json:"peer,omitempty"`    // address of its peer port
	Service string `json:"service,omitempty"` // its Cluster.Service
	State   string `json:"state"`             // joining, active, leaving, dead: the arbiter says so, and the gossip will; or unlisted: it gossips, and the arbiter does not know its session. To an observer: listed
	Self    bool   `json:"self,omitempty"`
	Linked  bool   `json:"linked,omitempty"` // there is a stream to it

	// Refused says why there is no stream to it although it is reached: this node or that one
	// refuses the other, as a rule because of a setting such as another key in Cluster.PeerKeys. Of
	// Nodes only; empty: not so.
	Refused string `json:"refused,omitempty"`

	// Takeover is the node's Cluster.Takeover, as the arbiter lists it; 0: it takes no part. Only
	// nodes with the same one guard each other.
	Takeover time.Duration `json:"takeover,omitempty"`

	// With Takeover, of Nodes only. A node is dead when enough of its guardians' promises have
	// passed.
	Guardian bool          `json:"guardian,omitempty"` // it guards this node
	Promise  time.Duration `json:"promise,omitempty"`  // for how long its promise to this node counts
	Ward     time.Duration `json:"ward,omitempty"`     // for how long this node's promise to it lasts; 0: this node does not guard it
}

// Owner returns the node that should own the key's partition, as the ring says; its Self tells
// whether that is this one. It takes no lock and does not block. ok is false without a cluster, or
// as long as the ring has not settled.
func (c *Coordinator) Owner(key string) (node NodeInfo, ok bool) {
	if c.cluster == nil {
		return NodeInfo{}, false
	}
	n, found := c.cluster.ring.View().Owner(c.partitionOf(key).Number())
	if !found || n.Gone {
		return NodeInfo{}, false
	}
	return c.cluster.info(n), true
}

// Nodes returns the nodes of the cluster, this one among them, sorted by ID; nil without a cluster.
func (c *Coordinator) Nodes() []NodeInfo {
	if c.cluster == nil {
		return nil
	}
	var all []NodeInfo
	s, refused := c.sessions.current(), c.cluster.refused()
	for _, n := range c.cluster.ring.View().Live() {
		i := c.cluster.info(&n)
		if err := refused[n.Name]; err != nil && !i.Linked {
			i.Refused = err.Error()
		}
		if s != nil {
			s.guarded.guarding(n.Session, &i)
		}
		all = append(all, i)
	}
	return all
}

func (x *cluster) info(n *ring.Node) NodeInfo {
	i := NodeInfo{
		Name: ring.Process(n.Name), ID: n.Name, Session: n.Session, Peer: n.Peer, State: strings.ToLower(n.State.String()),
		Self: n.Name == x.self.name, Linked: x.net.Stream(n.Name) != nil,
	}
	switch {
	case n.Unlisted && x.members.died(n.Name):
		i.State = "dead"
	case n.Unlisted:
		i.State = "unlisted"
	case x.self.observing != nil:
		i.State = "listed"
	}
	if k, ok := x.members.card(n.Name); ok {
		i.Peer, i.Service, i.Takeover = k.Peer, k.Service, k.Takeover
	} else if i.Self {
		i.Service = x.c.opts.Cluster.Service
	}
	return i
}
