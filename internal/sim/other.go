package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	membership "github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/ring"
)

// twoArbiters is how nodes of two arbiters come to hear of each other.
type twoArbiters struct {
	seeds  bool // the nodes of the second one have those of the first one as Seeds
	copied bool // its server was started from a copy of the first one's data
	moves  bool // its nodes take the places of the first one's, one after the other: the address in the program changed
}

// config: two nodes of another arbiter reach the nodes of this one, and their gossip. No key has
// two holders among the nodes of one arbiter, and each cluster comes to rest without the other's
// nodes.
func (kind twoArbiters) config(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, History: true, Nodes: 3, Clients: 4, Keys: 4, script: func(w *world) {
		time.Sleep(15 * time.Second)
		other := fallback.NewMemory()
		if n, err := other.Attach(context.Background(), w.s.settings()); err != nil {
			w.h.say("%v", err)
			return
		} else if kind.copied {
			other.Restore(w.s.Snapshot())
			defer n.Close()
		}
		var seeds []string
		for _, n := range w.nodes {
			if kind.seeds {
				seeds = append(seeds, n.now.h.addr)
			}
		}
		var strangers []*stranger
		for number := range 2 {
			if kind.moves {
				w.nodes[number].leave()()
			}
			strangers = append(strangers, w.stranger(other, number, seeds))
			time.Sleep(10 * time.Second)
		}
		time.Sleep(40 * time.Second)
		for _, x := range strangers {
			x.leave()
		}
		for _, n := range w.nodes {
			if n.now == nil {
				<-n.start().ready
			}
		}
		time.Sleep(10 * time.Second)
	}}
}

// stranger is a process that uses another arbiter.
type stranger struct {
	w    *world
	h    *host
	c    *coord.Coordinator
	stop context.CancelFunc
	done chan struct{}
}

func (w *world) stranger(arbiter fallback.Arbiter, number int, seeds []string) *stranger {
	x := &stranger{w: w, h: w.net.newHost(), done: make(chan struct{})}
	x.h.clock = newClock(1, w.cfg.Seed, uint64(number)<<32|1<<31)
	cluster := &coord.Cluster{Membership: func(o ring.Options) (ring.Membership, error) { return membership.StartOn(x.h, o) }, Seeds: seeds}
	wire.Use(cluster, x.h)
	opts := &coord.Options{Namespace: namespace, Partitions: partitions, SessionTTL: w.cfg.TTL, RenewEvery: w.cfg.TTL / 4, Cluster: cluster, Name: "stranger"}
	var err error
	if x.c, err = coord.New(context.Background(), arbiter, opts); err != nil {
		w.h.say("a stranger: %v", err)
		return x
	}
	ctx, stop := context.WithCancel(context.Background())
	x.stop = stop
	go func() {
		defer close(x.done)
		for n := 0; ctx.Err() == nil; n++ {
			short, cancel := context.WithTimeout(ctx, time.Second)
			if l, err := x.c.Lock(short, w.keys[n%len(w.keys)]); err == nil {
				_ = pause(ctx, 50*time.Millisecond)
				_ = l.Unlock()
			}
			cancel()
			_ = pause(ctx, 100*time.Millisecond)
		}
	}()
	return x
}

// leave ends the process. It must have heard of nodes of the other arbiter, and have none of them
// as a member.
func (x *stranger) leave() {
	defer x.h.bury()
	defer x.h.die()
	if x.c == nil {
		return
	}
	heard := 0
	for _, n := range x.c.Nodes() {
		if n.State == "unlisted" {
			heard++
		}
		if n.Name != "stranger" && (n.Linked || n.State == "active") {
			x.w.h.say("a stranger has a member of another arbiter: %s", fmt.Sprintf("%+v", n))
		}
	}
	if heard == 0 {
		x.w.h.say("a stranger has not heard of the other arbiter's nodes: nothing is tried")
	}
	x.stop()
	<-x.done
	ctx, cancel := context.WithTimeout(context.Background(), x.w.t(5*time.Second))
	defer cancel()
	_ = x.c.Close(ctx)
}
