package sim

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	membership "github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/virtual"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/ring"
)

// settled starts nodes, with Cluster.Takeover as it is said, and waits until they have settled.
func settled(t *testing.T, net *network, n int, takeover time.Duration) (nodes []*coord.Coordinator, hosts []*host, stop func()) {
	t.Helper()
	return settledAt(t, net, fallback.NewMemory(), n, &coord.Options{Cluster: &coord.Cluster{Takeover: takeover}})
}

// startOne starts a process, the ith with a clock that is i thousandths fast.
func startOne(t *testing.T, net *network, a fallback.Arbiter, i int, name string, o *coord.Options) (*coord.Coordinator, *host) {
	t.Helper()
	h := net.newHost()
	h.clock = newClock(1+float64(i)/1000, 1, uint64(i))
	cluster := &coord.Cluster{
		Membership: func(o ring.Options) (ring.Membership, error) { return membership.StartOn(h, o) }, Takeover: o.Cluster.Takeover,
	}
	wire.Use(cluster, h)
	its := *o
	its.Namespace, its.Name, its.Partitions, its.Cluster = "sim", name, 61, cluster
	c, err := coord.New(t.Context(), a, &its)
	if err != nil {
		panic(err) // perhaps not in the test's goroutine
	}
	return c, h
}

// settledAt is settled with an arbiter, and other options.
func settledAt(t *testing.T, net *network, a fallback.Arbiter, n int, o *coord.Options) (nodes []*coord.Coordinator, hosts []*host, stop func()) {
	t.Helper()
	for i := range n {
		c, h := startOne(t, net, a, i, fmt.Sprint("node", i), o)
		nodes, hosts = append(nodes, c), append(hosts, h)
	}
	settling, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for _, c := range nodes {
		if err := c.Settled(settling, len(nodes)); err != nil {
			t.Fatal(err)
		}
	}
	return nodes, hosts, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for i, c := range slices.Backward(nodes) {
			_ = c.Close(ctx)
			hosts[i].die()
			hosts[i].bury()
		}
	}
}

// Nodes that guard each other ask two questions with one write: for a promise, and how long the
// other one answers for its grants. They answer both with one write: each six times in Takeover.
func TestNodesPingEachOtherByOneWrite(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		net := newNetwork(1)
		net.bad = t.Errorf
		const takeover, while = 3 * time.Second, time.Minute
		_, hosts, stop := settled(t, net, 2, takeover)
		defer stop()
		time.Sleep(while) // each has the other as its guardian
		before := writes(hosts)
		time.Sleep(while)
		got, want := float64(writes(hosts)-before), float64(len(hosts)*2*6)*float64(while)/float64(takeover)
		t.Logf("%.0f writes in %v", got, while)
		if got > 1.1*want || got < 0.9*want {
			t.Errorf("%.0f writes in %v, expected %.0f", got, while, want)
		}
	})
}
