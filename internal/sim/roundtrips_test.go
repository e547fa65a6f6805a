package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	membership "github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/virtual"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/ring"
)

// A hundred keys of eight other nodes take no longer than eight round trips, whether they are free
// or another node has just used them. Time is that of the network alone: in a bubble computing
// takes none. Free ones take one write to each owner, and one of its own.
func TestLockAllOfEightOwnersTakesFewRoundTrips(t *testing.T) {
	const owners, keys, most = 8, 100, 8
	var hosts []*host
	virtual.Test(t, func(t *testing.T) {
		net := newNetwork(1)
		net.bad = t.Errorf
		a := fallback.NewMemory()
		var nodes []*coord.Coordinator
		for i := range owners + 1 {
			h := net.newHost()
			h.clock = newClock(1, 1, uint64(i))
			hosts = append(hosts, h)
			cluster := &coord.Cluster{
				Membership: func(o ring.Options) (ring.Membership, error) { return membership.StartOn(h, o) }, Takeover: -1,
			}
			wire.Use(cluster, h)
			c, err := coord.New(t.Context(), a, &coord.Options{Namespace: "sim", Name: fmt.Sprint("node", i), Partitions: 61, Cluster: cluster})
			if err != nil {
				t.Fatal(err)
			}
			nodes = append(nodes, c)
			defer func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				_ = c.Close(ctx)
				h.die()
				h.bury()
			}()
		}
		settling, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		for _, c := range nodes {
			if err := c.Settled(settling, len(nodes)); err != nil {
				t.Fatal(err)
			}
		}
		caller, other := nodes[0], nodes[1]
		var list []string
		by := make(map[string]int)
		for i := 0; len(list) < keys; i++ {
			key := fmt.Sprint("key", i)
			if n, ok := caller.Owner(key); ok && !n.Self && by[n.Name] <= keys/owners {
				by[n.Name]++
				list = append(list, key)
			}
		}
		if len(by) != owners {
			t.Fatalf("keys of %d owners: %v", len(by), by)
		}
		const trip = 20 * time.Millisecond // there and back
		net.mu.Lock()
		net.latency, net.exact = trip/2, true
		net.mu.Unlock()
		// still waits for a moment without pings, which nodes send each other once in a second: it
		// looks for a second, and what was still then is so a second later.
		still := func() {
			const step, steps, enough = 5 * time.Millisecond, 200, 12
			var busy []bool
			for last := writes(hosts); len(busy) < steps; {
				time.Sleep(step)
				now := writes(hosts)
				busy, last = append(busy, now != last), now
			}
			around := slices.Concat(busy, busy)
			for i := range steps {
				if !slices.Contains(around[i:i+enough], true) {
					time.Sleep(time.Duration(i+2) * step)
					return
				}
			}
			t.Fatal("the nodes write to each other all the time")
		}
		measure := func(what string, claims []coord.Claim) {
			still()
			begin, asked, wrote := time.Now(), hosts[0].wrote.Load(), writes(hosts)
			locks, err := caller.LockClaims(t.Context(), claims...)
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(begin)
			asked, wrote = hosts[0].wrote.Load()-asked, writes(hosts)-wrote
			t.Logf("%s: %v, which is %.1f round trips; %d writes, %d of them the caller's", what, took, float64(took)/float64(trip), wrote, asked)
			if strings.HasPrefix(what, "free") && (asked != owners || wrote > owners+keys) { // at most one for each answer
				t.Errorf("%s: %d keys of %d owners took %d writes, and %d in all", what, keys, owners, asked, wrote)
			}
			if took < trip || took > most*trip {
				t.Errorf("%s: %d keys of %d owners took %.1f round trips", what, keys, owners, float64(took)/float64(trip))
			}
			if err := locks.Unlock(); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second) // all of it is given back
		}
		measure("free", coord.ForWriting(list...))
		measure("free, for reading", coord.ForReading(list...))
		locks, err := other.LockAll(t.Context(), list...)
		if err != nil {
			t.Fatal(err)
		}
		if err := locks.Unlock(); err != nil {
			t.Error(err)
		}
		measure("just used by another node", coord.ForWriting(list...))
	})
}

// writes returns how often the hosts have written to connections.
func writes(hosts []*host) (n int64) {
	for _, h := range hosts {
		n += h.wrote.Load()
	}
	return n
}
