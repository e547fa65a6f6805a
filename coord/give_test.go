package coord_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// A node joins, and at the first Demote of the balance the arbiter goes away, or is another server
// that is in Grace. Each node has few partitions under way then, and freezes no other one.
func TestBalance_StopsWhereTheArbiterDoesNotTakePartitionsBack(t *testing.T) {
	takes.Seconds(t)
	for name, ends := range map[string]func(a *fallback.Memory, away *atomic.Bool){
		"it is away": func(_ *fallback.Memory, away *atomic.Bool) { away.Store(true) },
		"Grace":      func(a *fallback.Memory, _ *atomic.Bool) { a.Restore(a.Snapshot()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := fallback.NewMemory()
			options := func() *coord.Options {
				o := unhurried()
				o.Partitions, o.CallTimeout = 251, 300*time.Millisecond
				return o
			}
			begin := func(n *faulty) *coord.Coordinator {
				c, err := coord.New(t.Context(), n, options())
				if err != nil {
					t.Fatal(err)
				}
				return c
			}
			var nets []*faulty
			var nodes []*coord.Coordinator
			for range 4 {
				nets = append(nets, &faulty{Arbiter: a})
			}
			defer func() {
				for _, n := range nets {
					n.mend()
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				for _, c := range nodes {
					_ = c.Close(ctx) // in Grace no partition is taken back
				}
			}()
			for _, n := range nets[:3] {
				nodes = append(nodes, begin(n))
			}
			settled(t, 251, nodes...)
			var away atomic.Bool
			var first sync.Once
			begun := make(chan struct{})
			for _, n := range nets {
				n.set(func(op string) fault {
					if op == "demote" {
						first.Do(func() { ends(a, &away); close(begun) })
					}
					return fault{lost: away.Load()}
				})
			}
			nodes = append(nodes, begin(nets[3]))
			<-begun
			// Not 60 go: two of each node have none, and some more on a busy machine.
			await.Throughout(t, 3*time.Second, "at least 231 of 251 partitions have an owner", func() bool {
				owned := 0
				for _, c := range nodes {
					owned += c.Stats().Owned
				}
				return owned >= 251-20
			})
		})
	}
}

// The arbiter is away, and the streams to a node end that has a key which others want. Its owner
// cannot find out whether that node lives, and keeps the partition, where it has a lock of its own.
func TestAHolderOutOfReachInAnOutage_ThePartitionStays(t *testing.T) {
	takes.Seconds(t)
	a := fallback.NewMemory()
	var gates []*gate
	var nets []*faulty
	var nodes []*coord.Coordinator
	for range 2 {
		g, net := newGate(t), &faulty{Arbiter: a}
		o := quick()
		o.Partitions, o.SessionTTL, o.Grace, o.RenewEvery = 3, 12*time.Second, 14400*time.Millisecond, 500*time.Millisecond
		o.Cluster.Takeover = -1
		o.Cluster.Peer, o.Cluster.PeerAdvertise = g.target, g.addr
		gates, nets, nodes = append(gates, g), append(nets, net), append(nodes, join(t, net, o))
	}
	settled(t, 3, nodes...)
	owner, holder := nodes[0], nodes[1]
	var keys []string // of the owner's partitions
	for i := range 100 {
		if n, ok := owner.Owner(fmt.Sprint("key", i)); ok && n.Self {
			keys = append(keys, fmt.Sprint("key", i))
		}
	}
	own := lock(t, owner, keys[0])
	var held []coord.Lock
	for _, key := range keys[1:] {
		held = append(held, lock(t, holder, key))
	}
	wanted := make(chan struct{})
	go func() {
		defer close(wanted)
		for _, key := range keys[1:] {
			if l, err := owner.Lock(t.Context(), key); err == nil {
				_ = l.Unlock()
			}
		}
	}()
	serves := owner.Stats().Owned
	for _, n := range nets {
		n.set(func(string) fault { return fault{lost: true} })
	}
	stays := func(while time.Duration) {
		await.Throughout(t, while, "the owner serves its partitions, and has its own lock", func() bool {
			return owner.Stats().Owned >= serves && own.Context().Err() == nil
		})
	}
	stays(1500 * time.Millisecond) // until the last word of the arbiter is of long ago
	for _, g := range gates {
		g.close(true)
	}
	stays(3 * time.Second)
	for _, n := range nets {
		n.mend()
	}
	for _, g := range gates {
		g.close(false)
	}
	if err := own.Context().Err(); err != nil {
		t.Error("the owner's own lock is lost: ", err)
	}
	for _, l := range held {
		_ = l.Unlock()
	}
	unlock(t, own)
	<-wanted
	await.Until(t, "all partitions have owners", func() bool { return nodes[0].Stats().Owned+nodes[1].Stats().Owned == 3 })
}

// The stream to a node ends that has a key which others want. Its owner keeps the partition until
// guardians have found out whether that node is dead: a partition of the dead is not given back.
func TestAHolderOutOfReach_ThePartitionStaysUntilItsDeathWouldBeKnown(t *testing.T) {
	takes.Seconds(t)
	a := fallback.NewMemory()
	var gates []*gate
	var nodes []*coord.Coordinator
	for range 2 {
		g := newGate(t)
		o := quick()
		o.Partitions, o.SessionTTL, o.Grace, o.RenewEvery = 3, 12*time.Second, 14400*time.Millisecond, 500*time.Millisecond
		o.Cluster.Keepalive, o.Cluster.Takeover = time.Second, 3*time.Second
		o.Cluster.Peer, o.Cluster.PeerAdvertise = g.target, g.addr
		gates, nodes = append(gates, g), append(nodes, join(t, a, o))
	}
	settled(t, 3, nodes...)
	owner, holder := nodes[0], nodes[1]
	key := keyOwnedBy(t, owner)
	held := lock(t, holder, key)
	asked := make(chan error, 1)
	go func() {
		l, err := owner.Lock(t.Context(), key)
		if err == nil {
			err = l.Unlock()
		}
		asked <- err
	}()
	await.Until(t, "the key is wanted", func() bool { return owner.Stats().Waiting > 0 })
	serves, cut := owner.Stats().Owned, time.Now()
	for _, g := range gates {
		g.close(true)
	}
	await.Within(t, 20*time.Second, "the partition is given back", func() bool { return owner.Stats().Owned < serves })
	if d := time.Since(cut); d < 2500*time.Millisecond {
		t.Errorf("the partition was given back after %v", d)
	}
	unlock(t, held)
	if err := <-asked; err != nil {
		t.Error(err)
	}
	for _, g := range gates {
		g.close(false)
	}
}
