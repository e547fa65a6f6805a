package coord

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/hostaddr"
)

// Both ports have the address that other machines reach, unless the options say otherwise; and no
// node tells the others of all interfaces.
func TestClusterAddresses(t *testing.T) {
	for _, c := range []struct {
		Cluster
		gossip, gossipTold, peer, peerTold string
	}{
		{Cluster{}, "10.1.2.3:0", "10.1.2.3:0", "10.1.2.3:0", "10.1.2.3:0"},
		{Cluster{Gossip: ":7946"}, ":7946", "10.1.2.3:0", ":0", "10.1.2.3:0"},
		{Cluster{Gossip: ":7946", Peer: ":7947"}, ":7946", "10.1.2.3:0", ":7947", "10.1.2.3:0"},
		{Cluster{Gossip: "0.0.0.0:7946"}, "0.0.0.0:7946", "10.1.2.3:0", "0.0.0.0:0", "10.1.2.3:0"},
		{Cluster{Gossip: "[::]:7946"}, "[::]:7946", "10.1.2.3:0", "[::]:0", "10.1.2.3:0"},
		{Cluster{Gossip: "[fd00::1]:7946"}, "[fd00::1]:7946", "[fd00::1]:0", "[fd00::1]:0", "[fd00::1]:0"},
		{Cluster{Gossip: "127.0.0.1:0"}, "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"},
		{Cluster{Peer: ":7947"}, "10.1.2.3:0", "10.1.2.3:0", ":7947", "10.1.2.3:0"},
		{Cluster{Peer: "10.9.9.9:7947"}, "10.9.9.9:0", "10.9.9.9:0", "10.9.9.9:7947", "10.9.9.9:0"},
		{Cluster{Peer: "node.example:7947"}, "10.1.2.3:0", "10.1.2.3:0", "node.example:7947", "node.example:0"},
		{Cluster{Gossip: ":7946", Peer: "10.9.9.9:7947"}, ":7946", "10.9.9.9:0", "10.9.9.9:7947", "10.9.9.9:0"},
		{Cluster{Gossip: "10.9.9.9:7946", Peer: ":7947"}, "10.9.9.9:7946", "10.9.9.9:0", ":7947", "10.9.9.9:0"},
		{Cluster{Gossip: "10.9.9.9:7946", Peer: "10.8.8.8:7947"}, "10.9.9.9:7946", "10.9.9.9:0", "10.8.8.8:7947", "10.8.8.8:0"},
		{Cluster{Gossip: ":7946", GossipAdvertise: "203.0.113.5:17946"}, ":7946", "203.0.113.5:17946", ":0", "203.0.113.5:0"},
		{Cluster{GossipAdvertise: "203.0.113.5:0"}, "10.1.2.3:0", "203.0.113.5:0", "10.1.2.3:0", "203.0.113.5:0"},
		{Cluster{PeerAdvertise: "203.0.113.5:17947"}, "10.1.2.3:0", "203.0.113.5:0", "10.1.2.3:0", "203.0.113.5:17947"},
		{Cluster{Gossip: "127.0.0.1:0", PeerAdvertise: "203.0.113.5:1"}, "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", "203.0.113.5:1"},
		{Cluster{GossipAdvertise: "203.0.113.5:1", Peer: "10.9.9.9:0"}, "10.9.9.9:0", "203.0.113.5:1", "10.9.9.9:0", "10.9.9.9:0"},
		{Cluster{PeerAdvertise: "node.example:17947"}, "10.1.2.3:0", "10.1.2.3:0", "10.1.2.3:0", "node.example:17947"},
	} {
		chosen := 0
		a := c.addresses(func() hostaddr.Choice {
			chosen++
			return hostaddr.Choice{Addr: netip.MustParseAddr("10.1.2.3"), Reason: "a test"}
		})
		if a.gossip != c.gossip || a.gossipTold != c.gossipTold || a.peer != c.peer || a.peerTold != c.peerTold {
			t.Errorf("%+v: %+v", c.Cluster, a)
		}
		used := strings.Contains(a.gossip+a.gossipTold+a.peerTold, "10.1.2.3")
		if (a.reason != "") != used || chosen > 1 || (chosen > 0) != used {
			t.Errorf("%+v: chosen %d times: %+v", c.Cluster, chosen, a)
		}
	}
}

func TestClusterAddressesRefused(t *testing.T) {
	for _, c := range []struct {
		Cluster
		text string
	}{
		{Cluster{GossipAdvertise: "0.0.0.0:7946"}, "Cluster.GossipAdvertise"},
		{Cluster{GossipAdvertise: "node.example:7946"}, "Cluster.GossipAdvertise"},
		{Cluster{PeerAdvertise: "[::]:7947"}, "Cluster.PeerAdvertise"},
		{Cluster{PeerAdvertise: ":7947"}, "Cluster.PeerAdvertise"},
		{Cluster{PeerAdvertise: "10.0.0.1"}, "Cluster.PeerAdvertise"},
		{Cluster{Peer: "10.0.0.1"}, "Cluster.Peer "},
		{Cluster{Gossip: "node.example:7946"}, "Cluster.Gossip "},
		{Cluster{Gossip: "7946"}, "Cluster.Gossip "},
	} {
		c.Membership = gossip.Start
		n, err := New(t.Context(), fallback.NewMemory(), &Options{Cluster: &c.Cluster})
		if err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: %v", c.Cluster, err)
		}
		if err == nil {
			n.Close(t.Context())
		}
	}
}
