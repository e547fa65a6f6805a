//go:build linux

package lab

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/lab/agent"
	"github.com/holdfast-go/holdfast/internal/netns"
)

// refuse drops the packets that come in at a port.
func refuse(t *testing.T, h *netns.Host, protocol, port string) {
	t.Helper()
	run(t, h, "iptables", "-A", "INPUT", "-p", protocol, "--dport", port, "-j", "DROP")
}

// A network policy drops one of the two ports at all hosts. Settled's error and one line of the log
// name each member that is out of reach, its address and the option; and keys are locked all the
// same, by one holder at a time.
func TestPolicy(t *testing.T) {
	for _, c := range []struct {
		option    string
		port      string
		protocols []string
	}{
		{"Peer", "7947", []string{"tcp"}},
		{"Gossip", "7946", []string{"tcp", "udp"}},
	} {
		t.Run(c.option, func(t *testing.T) {
			w := begin(t, c.option == "Gossip")
			var nodes []*node
			for i := range 3 {
				h := w.host(t, fmt.Sprint("10.0.0.", 61+i))
				for _, p := range c.protocols {
					refuse(t, h, p, c.port)
				}
				nodes = append(nodes, w.start(t, h, &agent.Addresses{Gossip: ":7946", Peer: ":7947"}))
			}
			for i, a := range all(nodes, agent.Command{Op: "settled", Nodes: 3, Limit: 13 * time.Second}) {
				for j := range nodes {
					member := fmt.Sprint("10.0.0.", 61+j, ":", c.port)
					if got := strings.Contains(a.Err, "not reachable at "+member); got != (i != j) {
						t.Errorf("%s and %s: %v", nodes[i].name, member, a.Err)
					}
				}
				if !strings.Contains(a.Err, "Cluster."+c.option+"Advertise") {
					t.Error(a.Err)
				}
			}
			first, _ := work(t, nodes, 3*time.Second)
			next, _ := work(t, nodes, 3*time.Second)
			t.Logf("a lock was waited for for at most %v, and then for %v", first, next)
			if bound := 10 * time.Second; first > bound || next > bound {
				t.Errorf("a lock was waited for for %v, and then for %v", first, next)
			}
			for i, n := range nodes {
				for j := range nodes {
					want := 1
					if i == j {
						want = 0
					}
					member := fmt.Sprint("address=10.0.0.", 61+j, ":", c.port)
					count := 0
					for _, line := range n.records("not reachable") {
						if strings.Contains(line, member) {
							count++
						}
					}
					if count != want {
						t.Errorf("%s: %d lines with %s, not %d", n.name, count, member, want)
					}
				}
			}
			leave(nodes)
		})
	}
}

// Gossip goes on by TCP where UDP is dropped, and a stream needs one way only: at one host all that
// comes in is dropped but answers and gossip.
func TestPolicyThatLeavesAWay(t *testing.T) {
	w := begin(t, true)
	var hosts []*netns.Host
	for i := range 3 {
		h := w.host(t, fmt.Sprint("10.0.0.", 71+i))
		refuse(t, h, "udp", "7946")
		hosts = append(hosts, h)
	}
	refuse(t, hosts[0], "tcp", "7947")
	nodes := w.together(t, hosts, same(agent.Addresses{Gossip: ":7946", Peer: ":7947"}))
	for _, n := range nodes {
		if lines := n.records("not reachable"); len(lines) > 0 {
			t.Errorf("%s: %q", n.name, lines)
		}
	}
	leave(nodes)
}
