//go:build linux

package lab

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/lab/agent"
	"github.com/holdfast-go/holdfast/internal/netns"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// advertised fails the test if the log of a node does not say, once, that it advertises an address
// for gossip and peers.
func advertised(t *testing.T, n *node, host string) {
	t.Helper()
	lines := n.records("_advertised=")
	if len(lines) != 1 || !strings.Contains(lines[0], " gossip_advertised="+host+":") || !strings.Contains(lines[0], " peer_advertised="+host+":") {
		t.Errorf("%s: not %s: %q", n.name, host, lines)
	}
}

// The address that leads to Redis is the one that others reach, whatever the first one is, and
// wherever the default route leads.
func TestTwoNetworks(t *testing.T) {
	takes.Seconds(t)
	w := begin(t, false)
	var hosts []*netns.Host
	for i := range 3 {
		h := w.bare(t, redis4)
		plug(t, h, w.island(t), "172.17.0.1") // each host has the same one
		plug(t, h, w.outside, fmt.Sprint("10.0.0.", 21+i))
		if err := h.IP("route", "add", "default", "via", "172.17.0.254"); err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, h)
	}
	nodes := w.together(t, hosts, same(agent.Addresses{}))
	for i, n := range nodes {
		advertised(t, n, fmt.Sprint("10.0.0.", 21+i))
	}
	leave(nodes)
}

// Seeds lead to the other nodes more surely than Redis does.
func TestTwoNetworksWithSeeds(t *testing.T) {
	w := begin(t, true)
	between := w.island(t)
	var hosts []*netns.Host
	for i := range 2 {
		h := w.bare(t, redis4)
		plug(t, h, w.outside, fmt.Sprint("10.0.0.", 21+i))
		plug(t, h, between, fmt.Sprint("10.2.0.", 21+i))
		hosts = append(hosts, h)
	}
	nodes := w.together(t, hosts, same(agent.Addresses{Gossip: ":7946", Seeds: []string{"10.2.0.21"}}))
	for i, n := range nodes {
		advertised(t, n, fmt.Sprint("10.2.0.", 21+i))
	}
	leave(nodes)
}

// Redis is had from a proxy on each host's loopback interface. The default route tells the address.
func TestSidecar(t *testing.T) {
	w := begin(t, true)
	var hosts []*netns.Host
	for i := range 2 {
		h := w.bare(t, "127.0.0.1")
		plug(t, h, w.island(t), "172.17.0.1")
		plug(t, h, w.outside, fmt.Sprint("10.0.0.", 21+i))
		if err := h.IP("route", "add", "default", "via", "10.0.0.254"); err != nil {
			t.Fatal(err)
		}
		w.proxy(t, h)
		hosts = append(hosts, h)
	}
	nodes := w.together(t, hosts, same(agent.Addresses{}))
	for i, n := range nodes {
		advertised(t, n, fmt.Sprint("10.0.0.", 21+i))
	}
	leave(nodes)
}

// Several processes of one machine find each other, with and without a network.
func TestOneMachine(t *testing.T) {
	w := begin(t, true)
	h := w.host(t, "10.0.0.41")
	nodes := w.together(t, []*netns.Host{h, h, h}, same(agent.Addresses{}))
	advertised(t, nodes[2], "10.0.0.41")
	leave(nodes)
}

func TestOneMachineAlone(t *testing.T) {
	w := begin(t, true)
	h := w.bare(t, "127.0.0.1")
	w.proxy(t, h)
	nodes := w.together(t, []*netns.Host{h, h}, same(agent.Addresses{}))
	advertised(t, nodes[1], "127.0.0.1")
	leave(nodes)
}

// A public address is used where there is no private one.
func TestPublicAddresses(t *testing.T) {
	w := begin(t, true)
	if err := w.server.IP("route", "replace", "203.0.113.0/24", "dev", "eth0"); err != nil {
		t.Fatal(err)
	}
	var hosts []*netns.Host
	for i := range 2 {
		h := w.bare(t, redis4)
		plug(t, h, w.outside, fmt.Sprint("203.0.113.", 1+i))
		if err := h.IP("route", "add", redis4, "dev", "eth0"); err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, h)
	}
	nodes := w.together(t, hosts, same(agent.Addresses{}))
	advertised(t, nodes[0], "203.0.113.1")
	leave(nodes)
}

// A node behind a router with DNAT advertises the router's address and ports.
func TestNAT(t *testing.T) {
	w := begin(t, false)
	router := w.bare(t, redis4)
	plug(t, router, w.outside, "10.0.0.50")
	plug(t, router, w.inside, "10.1.0.254")
	run(t, router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	run(t, router, "iptables", "-t", "nat", "-A", "POSTROUTING", "-s", "10.1.0.0/24", "-o", "eth0", "-j", "MASQUERADE")
	for _, x := range [][]string{{"udp", "17946", "7946"}, {"tcp", "17946", "7946"}, {"tcp", "17947", "7947"}} {
		run(t, router, "iptables", "-t", "nat", "-A", "PREROUTING", "-d", "10.0.0.50", "-p", x[0], "--dport", x[1],
			"-j", "DNAT", "--to-destination", "10.1.0.1:"+x[2])
	}
	behind := w.bare(t, redis4)
	plug(t, behind, w.inside, "10.1.0.1")
	if err := behind.IP("route", "add", "default", "via", "10.1.0.254"); err != nil {
		t.Fatal(err)
	}
	hosts := []*netns.Host{behind, w.host(t, "10.0.0.51"), w.host(t, "10.0.0.52")}
	nodes := w.together(t, hosts, func(i int) *agent.Addresses {
		if i > 0 {
			return &agent.Addresses{}
		}
		return &agent.Addresses{Gossip: ":7946", GossipAdvertise: "10.0.0.50:17946", Peer: ":7947", PeerAdvertise: "10.0.0.50:17947"}
	})
	advertised(t, nodes[0], "10.0.0.50")
	leave(nodes)
}
