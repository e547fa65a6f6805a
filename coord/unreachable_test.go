package coord_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// Callers that wait for less than RenewEvery get a key of an owner that their node cannot reach,
// too: it is the node that has been waiting, not the single caller.
func TestTheImpatientGetAKeyWhoseOwnerIsUnreachable(t *testing.T) {
	t.Parallel()
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

// A node that is new asks the arbiter until it has streams to the others. A request of that time
// goes to the owner as soon as there is a stream, and not after RetryEvery.
func TestWhatWasAskedBeforeThereWasAStream(t *testing.T) {
	t.Parallel()
	o := unhurried()
	o.SessionTTL, o.RenewEvery, o.Grace = 10*time.Minute, 150*time.Second, 12*time.Minute // and so RetryEvery 30 s
	a := fallback.NewMemory()
	settle(t, 61, join(t, a, o))
	net := &faulty{Arbiter: a}
	net.cut("list") // does not tell which others there are
	c := join(t, net, o)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	locked := make(chan error, 1)
	go func() {
		l, err := c.Lock(ctx, "key")
		if err == nil {
			err = l.Unlock()
		}
		locked <- err
	}()
	for c.Stats().Calls[coord.OpLock] == 0 { // it is told that there is an owner
		select {
		case err := <-locked:
			t.Fatalf("locked without the owner: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	net.mend()
	if err := <-locked; err != nil {
		t.Error(err)
	}
	// On a busy machine the partition may have come to this node before the stream did.
	if g := c.Stats().Granted; g[coord.PathForwarded]+g[coord.PathOwn] != 1 || g[coord.PathArbiter] > 0 {
		t.Errorf("granted %v, want once by the owner", g)
	}
}
