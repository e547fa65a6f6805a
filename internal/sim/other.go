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

// otherArbiter: two nodes of another arbiter reach the nodes of this one, and their gossip. It is a server that was started from a copy of this
// one's data, or a new one; or this one's nodes are replaced, one after the other, by nodes of a copy. No key has two holders among the nodes
// of one arbiter, and each cluster comes to rest without the other's nodes.
func otherArbiter(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, History: true, Nodes: 3, Clients: 4, Keys: 4, script: func(w *world) {
		time.Sleep(15 * time.Second)
		other := fallback.NewMemory()
		if n, err := other.Attach(context.Background(), w.s.settings()); err != nil {
			w.h.say("%v", err)
			return
		} else if i%3 > 0 {
			other.Restore(w.s.Snapshot())
			defer n.Close()
		}
		var strangers []*stranger
		for number := range 2 {
			if i%3 == 2 {
				w.nodes[number].leave()()
			}
			strangers = append(strangers, w.stranger(other, number))
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

func (w *world) stranger(arbiter fallback.Arbiter, number int) *stranger {
	x := &stranger{w: w, h: w.net.newHost(), done: make(chan struct{})}
	x.h.clock = newClock(1, w.cfg.Seed, uint64(number)<<32|1<<31)
	cluster := &coord.Cluster{Membership: func(o ring.Options) (ring.Membership, error) { return membership.StartOn(x.h, o) }}
	wire.Use(cluster, x.h)
	opts := &coord.Options{Namespace: namespace, Partitions: partitions, SessionTTL: w.cfg.TTL, Cluster: cluster, Name: "stranger"}
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

// leave ends the process. It must have seen no node but those of its own arbiter as members.
func (x *stranger) leave() {
	defer x.h.bury()
	defer x.h.die()
	if x.c == nil {
		return
	}
	for _, n := range x.c.Nodes() {
		if n.Name != "stranger" && (n.Linked || n.State == "active") {
			x.w.h.say("a stranger has a member of another arbiter: %s", fmt.Sprintf("%+v", n))
		}
	}
	x.stop()
	<-x.done
	ctx, cancel := context.WithTimeout(context.Background(), x.w.t(5*time.Second))
	defer cancel()
	_ = x.c.Close(ctx)
}
