//go:build linux

package lab

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/lab/agent"
	"github.com/holdfast-go/holdfast/internal/netns"
)

// together starts README's program on hosts. The nodes have to find each other, connect, settle,
// and lock in memory, here and there, without two holders at once.
func (w *world) together(t *testing.T, hosts []*netns.Host, cluster func(i int) *agent.Addresses) []*node {
	t.Helper()
	var nodes []*node
	for i, h := range hosts {
		nodes = append(nodes, w.start(t, h, cluster(i)))
	}
	settle(t, nodes)
	before := all(nodes, agent.Command{Op: "state"})
	longest, after := work(t, nodes, time.Second)
	if longest > 2*time.Second {
		t.Errorf("a lock was waited for for %v", longest)
	}
	inMemory(t, nodes, before, after)
	if left := after[0].Units; left != 1000-w.started {
		t.Errorf("%d units are left after %d sales of 1,000", left, w.started)
	}
	return nodes
}

func leave(nodes []*node) {
	for _, n := range nodes {
		n.leave()
	}
}

func word(int) *agent.Addresses { return nil }

func same(c agent.Addresses) func(int) *agent.Addresses {
	return func(int) *agent.Addresses { return &c }
}

func TestReadme(t *testing.T) {
	w := begin(t, false)
	leave(w.together(t, []*netns.Host{w.host(t, "10.0.0.1"), w.host(t, "10.0.0.2"), w.host(t, "10.0.0.3")}, word))
}

func TestReadmeIPv6(t *testing.T) {
	w := begin(t, false)
	leave(w.together(t, []*netns.Host{w.host(t, "fd00::1"), w.host(t, "fd00::2"), w.host(t, "fd00::3")}, word))
}

func TestAllInterfaces(t *testing.T) {
	for _, c := range []agent.Addresses{
		{Gossip: ":7946"},
		{Gossip: ":7946", Peer: ":7947"},
		{Gossip: "0.0.0.0:7946", Peer: "0.0.0.0:7947"},
		{Gossip: "[::]:7946", Peer: "[::]:7947"},
		{Peer: ":7947"},
	} {
		t.Run(c.Gossip+" "+c.Peer, func(t *testing.T) {
			w := begin(t, c.Gossip != ":7946" || c.Peer != "")
			leave(w.together(t, []*netns.Host{w.host(t, "10.0.0.11"), w.host(t, "10.0.0.12")}, same(c)))
		})
	}
}
