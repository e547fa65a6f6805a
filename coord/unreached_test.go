package coord_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// Callers who wait for less than RenewEvery get a key of an owner that their node cannot reach, too: it is the node that
// has been waiting, not the single caller.
func TestTheImpatientGetAKeyWhoseOwnerIsUnreachable(t *testing.T) {
	a := fallback.NewMemory()
	var gates []*gate
	var nodes []*coord.Coordinator
	for range 2 {
		g := newGate(t)
		o := quick()
		o.Cluster.Peer, o.Cluster.PeerAdvertise = g.target, g.addr
		gates, nodes = append(gates, g), append(nodes, join(t, a, o))
	}
	settle(t, 61, nodes...)
	key := ""
	for k := 0; key == ""; k++ {
		if n, _ := nodes[0].Owner(fmt.Sprint(k)); !n.Self {
			key = fmt.Sprint(k)
		}
	}
	for _, g := range gates {
		g.close(true)
	}
	begin, tries := time.Now(), 0
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond) // RenewEvery is 750 ms
		l, err := nodes[0].Lock(ctx, key)
		cancel()
		if err == nil {
			unlock(t, l)
			t.Logf("after %v and %d attempts that were given up", time.Since(begin), tries)
			return
		}
		if tries++; time.Since(begin) > 10*time.Second {
			t.Fatalf("not after %d attempts: %v", tries, err)
		}
	}
}
