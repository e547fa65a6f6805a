package coord_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// Several servers have the partitions' data. All come back without what they had, and then one dies: what the others lost is
// reclaimed in time.
func TestADeadServerHoldsUpNoClaims(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		o := &coord.Options{Partitions: 61}
		here := start(t, net, o)
		held := make(map[string]coord.Lock)
		for i := range 4000 {
			key := fmt.Sprint("key-", i)
			held[key] = lock(t, here, key)
		}
		net.stop(func(p uint32, op string) bool { return p%2 == 0 && op == "reclaim" })
		a.Restore(nil)
		time.Sleep(10 * time.Second) // T; what is not known by then was lost
		n, lost := 0, 0
		for key, l := range held {
			dead := xxhash.Sum64String(key)%61%2 == 0
			if !dead {
				n++
				if l.Context().Err() != nil {
					lost++
				}
			}
			if l.Context().Err() == nil && dead {
				t.Fatalf("%s is held, although nobody knows of it", key)
			}
		}
		if lost > 0 || n < 1000 {
			t.Errorf("%d of %d were lost whose server is well", lost, n)
		}
		net.stop(nil)
		for _, l := range held {
			_ = l.Unlock()
		}
	})
}

// A node joins while the server of every other partition does not answer. It gets the rest at once.
func TestADeadServerHoldsUpNoPartitions(t *testing.T) {
	if testing.Short() {
		t.Skip("real sockets, and some seconds")
	}
	const partitions = 509 // each node gives more than balancers of those that nobody answers for
	opts := func() *coord.Options {
		o := quick()
		o.Partitions, o.SessionTTL, o.Grace = partitions, time.Minute, 0 // for so long a node asks to give one back
		return o
	}
	net := &faulty{Arbiter: fallback.NewMemory()}
	nodes := []*coord.Coordinator{join(t, net, opts()), join(t, net, opts())}
	settle(t, partitions, nodes...)
	net.stop(func(p uint32, op string) bool { return p%2 == 0 })
	defer net.stop(nil)
	third := join(t, net, opts())
	keys := make(map[uint32]string)
	for i := 0; len(keys) < partitions; i++ {
		key := fmt.Sprint(i)
		keys[uint32(xxhash.Sum64String(key)%partitions)] = key
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for owned, want := 0, 0; want == 0 || owned < want; time.Sleep(10 * time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("it owns %d partitions, and should own %d", owned, want)
		}
		owned, want = third.Stats().Owned, 0
		for p, key := range keys {
			if n, ok := third.Owner(key); ok && n.Self && p%2 != 0 && len(third.Nodes()) == 3 {
				want++
			}
		}
		if want >= partitions*2/5 { // not all are there yet
			want = 0
		}
	}
}
