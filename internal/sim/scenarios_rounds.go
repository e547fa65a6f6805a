package sim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/injure"
)

// onOther returns a key of each partition that is on the other server, which no client wants.
func onOther() (keys []string) {
	for n := 0; len(keys) < partitions/2; n++ {
		key := fmt.Sprint("free", n)
		p := func(k string) uint32 { return uint32(xxhash.Sum64String(k) % partitions) }
		if ofOther(p(key)) && !slices.ContainsFunc(keys, func(k string) bool { return p(k) == p(key) }) {
			keys = append(keys, key)
		}
	}
	return keys
}

// graceEndsEarly: the server of some partitions fails over, at times to one that lost all. Each
// node wants a key of each of them, and has it long before Q.
func graceEndsEarly(i int) Config {
	return partFails(i, 6*time.Second) // Q is 12 s
}

// partOfTwo is graceEndsEarly where replicas have each opening: that the table could be in Grace
// costs nothing.
func partOfTwo(i int) Config {
	cfg := partFails(i, 3900*time.Millisecond)
	cfg.Opened, cfg.Spread = true, true
	return cfg
}

func partFails(i int, most time.Duration) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 2 + i%3, Clients: 2, Keys: 4, script: func(w *world) {
		time.Sleep(30 * time.Second)
		var lost *fallback.Snapshot
		if i%2 == 0 {
			lost = w.s.Snapshot()
			time.Sleep(time.Duration(i) * 100 * time.Millisecond)
		}
		w.failoverPart(lost, Fault{})
		begin := time.Now()
		took := make(chan time.Duration)
		for _, n := range w.nodes {
			for _, key := range onOther() {
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
					defer cancel()
					l, err := n.now.c.Lock(ctx, key)
					if err != nil {
						w.h.say("Lock of %q: %v", key, err)
					} else {
						_ = l.Unlock()
					}
					took <- time.Since(begin)
				}()
			}
		}
		var longest time.Duration
		for range len(w.nodes) * len(onOther()) {
			longest = max(longest, <-took)
		}
		w.say(fmt.Sprintf("the longest wait was %v", longest))
		if longest > most {
			w.h.say("the longest wait after a failover of some partitions' server was %v, not %v", longest, most)
		}
		time.Sleep(20 * time.Second)
	}}
}

// holdsOver: a node has keys from the arbiter, and hears nothing of it while the server of some
// partitions fails over and has lost all. Nothing of it may be given to others before it has
// reclaimed it.
func holdsOver(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 3, Keys: 1, script: func(w *world) {
		time.Sleep(30 * time.Second)
		holder, other := w.nodes[0].now, w.nodes[1].now
		held := holder.lockOther()
		holder.reachNone() // but the table of sessions
		for _, n := range w.nodes[1:] {
			w.net.setCut(holder.h, n.now.h, true)
			w.net.setCut(n.now.h, holder.h, true)
		}
		w.failoverPart(nil, Fault{})
		for _, l := range held {
			go contend(w, l, other)
		}
		time.Sleep(time.Duration(3+i) * time.Second)
		holder.client.set(func(x *weather) { x.shard = [partitions]bool{} })
		w.net.heal()
		time.Sleep(20 * time.Second)
		for _, l := range held {
			if l.Context().Err() == nil {
				_ = l.Unlock()
			}
		}
		time.Sleep(time.Second)
	}}
}

// unconfirmed: an owner has its session, but reaches none of its partitions, and no other node.
// Meanwhile the server of some of them fails over and has lost all. Others take these after Grace;
// it must not go on granting their keys.
func unconfirmed(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 3, Keys: 1, script: func(w *world) {
		time.Sleep(30 * time.Second)
		var owner, other *start
		var keys []string
		for n, x := range w.nodes {
			var own []string
			for _, key := range onOther() {
				if at, ok := x.now.c.Owner(key); ok && at.Self {
					own = append(own, key)
				}
			}
			if len(own) > len(keys) {
				owner, other, keys = x.now, w.nodes[(n+1)%len(w.nodes)].now, own
			}
		}
		owner.reachNone()
		for _, n := range w.nodes {
			if n.now != owner {
				w.net.setCut(owner.h, n.now.h, true)
				w.net.setCut(n.now.h, owner.h, true)
			}
		}
		w.failoverPart(nil, Fault{})
		var work sync.WaitGroup
		for _, key := range keys {
			for _, s := range []*start{owner, other} {
				work.Go(func() {
					for begin := time.Now(); time.Since(begin) < 40*time.Second; time.Sleep(50 * time.Millisecond) {
						_ = s.tryTurn(key)
					}
				})
			}
		}
		work.Wait()
	}}
}

// lockOther locks a key of each partition of the other server.
func (s *start) lockOther() (held []coord.Lock) {
	for _, key := range onOther() {
		l, err := s.c.Lock(context.Background(), key)
		if err != nil {
			s.n.w.h.say("Lock: %v", err)
			return held
		}
		held = append(held, l)
	}
	return held
}

// inVain is contend for a lock that is in force for 12 s at most.
func inVain(w *world, l coord.Lock, other *start) {
	end := time.AfterFunc(12*time.Second, func() { _ = l.Unlock() })
	defer end.Stop()
	contend(w, l, other)
}

// failsTwice: the server of some partitions fails over again, and loses all, just before the Grace
// of the first time ends early. A node has keys, and does not reach the new one.
func failsTwice(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 3, Keys: 1, apart: true, script: func(w *world) {
		time.Sleep(20 * time.Second)
		holder, other := w.nodes[0].now, w.nodes[1].now
		var work sync.WaitGroup
		holdAll(w, &work, holder, other)
		w.failoverPart(w.s.Snapshot(), Fault{})
		for end := time.Now().Add(5 * time.Second); w.s.spoken() < len(w.nodes) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(i) * 5 * time.Millisecond)
		holder.reachNone()
		w.failoverPart(nil, Fault{})
		time.Sleep(4 * time.Second)
		holder.client.set(func(x *weather) { x.shard = [partitions]bool{} })
		work.Wait()
	}}
}

// passesLate: as failsTwice, but the node that has keys finds them missing at the second server,
// and reclaims them there, as it makes its pass. The others ask the first one yet, which lacks the
// same.
func passesLate(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 3, Keys: 1, apart: true, script: func(w *world) {
		time.Sleep(20 * time.Second)
		holder, other := w.nodes[0].now, w.nodes[1].now
		var work sync.WaitGroup
		held := holder.lockOther()
		holder.reachNone()
		w.failoverPart(nil, Fault{})
		for _, l := range held {
			work.Go(func() { inVain(w, l, other) })
		}
		time.Sleep(2400*time.Millisecond + time.Duration(i)*50*time.Millisecond)
		w.failoverPart(nil, Fault{Some: [8]bool{1: true, 2: true}})
		holder.client.set(func(x *weather) { x.shard = [partitions]bool{} })
		time.Sleep(950 * time.Millisecond) // delta is 1 s
		for _, n := range w.nodes[1:] {
			n.now.client.set(func(x *weather) { x.apart = false })
		}
		work.Wait()
	}}
}

// opensAtTheNew: the table's server fails over, and a process starts, and takes keys of the other
// server. The others ask the deposed table, which does not know it, whether it is dead.
func opensAtTheNew(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 3, Keys: 1, apart: true, script: func(w *world) {
		time.Sleep(20 * time.Second)
		w.nodes[0].crash()
		time.Sleep(15*time.Second + time.Duration(i)*300*time.Millisecond)
		other := w.nodes[1].now
		w.failoverTable(w.s.Snapshot(), Fault{Some: [8]bool{1: true, 2: true}})
		time.AfterFunc(950*time.Millisecond, func() { // delta is 1 s
			for _, n := range w.nodes[1:] {
				n.now.client.set(func(x *weather) { x.table = false })
			}
		})
		s := w.nodes[0].start()
		<-s.ready
		var work sync.WaitGroup
		holdAll(w, &work, s, other)
		work.Wait()
	}}
}

// spoken returns how many sessions have spoken for the round that there is.
func (s *server) spoken() (n int) {
	injure.State(s.Memory, s.settings().Namespace, func(t *fallback.Sessions, _ []fallback.Partition) { n = len(t.Round.Spoken) })
	return n
}

// wants has a process ask for keys of the other server for a moment, so that it begins a round.
func (s *start) wants(work *sync.WaitGroup) {
	for _, key := range onOther() {
		work.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			_, _ = s.c.Lock(ctx, key)
		})
	}
}

// takes has a process ask for these keys for so long. Another one asks in vain for those that it
// gets.
func (s *start) takes(w *world, work *sync.WaitGroup, within time.Duration, other *start) {
	for _, key := range onOther() {
		work.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), within)
			defer cancel()
			if l, err := s.c.Lock(ctx, key); err == nil {
				inVain(w, l, other)
			}
		})
	}
}

// takesLate: a node takes keys at a deposed server while that answers, and then reaches neither the
// new one nor others for a while. At times the answers come late: after it could have spoken, if it
// did not wait for them.
func takesLate(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 3, Keys: 1, apart: true, script: func(w *world) {
		time.Sleep(20 * time.Second)
		taker, other := w.nodes[0].now, w.nodes[1].now
		var some [8]bool
		some[0] = true
		w.failoverPart(w.s.Snapshot(), Fault{Some: some})
		var work sync.WaitGroup
		other.wants(&work)
		time.Sleep(450 * time.Millisecond)
		if i%2 == 1 {
			taker.client.set(func(x *weather) { x.latency = time.Second })
		}
		taker.takes(w, &work, 2*time.Second, other)
		time.Sleep(120 * time.Millisecond) // a first call is short
		taker.client.set(func(x *weather) { x.latency = usual })
		time.Sleep(260 * time.Millisecond)
		taker.client.set(func(x *weather) { x.apart = false }) // it is silent, delta is 1 s
		time.Sleep(time.Duration(i%2) * 650 * time.Millisecond)
		taker.reachNone()
		time.Sleep(5 * time.Second)
		taker.client.set(func(x *weather) { x.shard = [partitions]bool{} })
		work.Wait()
	}}
}

// letsGo: an owner gives a partition back at a deposed server, and a node that it has granted a key
// does not hear of it: it relies on the announced deadline.
func letsGo(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 3, Keys: 1, script: func(w *world) {
		time.Sleep(30 * time.Second)
		for _, n := range w.nodes { // the owner of a key of the other server
			for _, key := range onOther() {
				if o, _ := n.now.c.Owner(key); !o.Self {
					continue
				}
				holder := w.nodes[(n.number+1)%3]
				held, err := holder.now.c.Lock(context.Background(), key)
				if err != nil {
					w.h.say("Lock: %v", err)
					return
				}
				w.leftAlone(n, holder, i)
				other := w.nodes[(n.number+2)%3].now
				contend(w, held, other)
				return
			}
		}
	}}
}

// leftAlone is letsGo for a given owner and holder.
func (w *world) leftAlone(owner, holder *node, i int) {
	for _, n := range w.nodes {
		if n != holder {
			w.net.setCut(holder.now.h, n.now.h, true)
			w.net.setCut(n.now.h, holder.now.h, true)
		}
	}
	var some [8]bool
	some[owner.number] = true
	w.failoverPart(nil, Fault{Some: some})
	if i%2 == 0 { // it leaves
		w.work.Go(owner.leave())
		go func() {
			time.Sleep(1500 * time.Millisecond)
			holder.now.reachNone()
		}()
		return
	}
	holder.now.reachNone()
	w.revokeAtDeposed(owner.now)
	go func() {
		time.Sleep(900 * time.Millisecond)
		owner.now.client.set(func(x *weather) { x.apart = false })
	}()
}

// demotesLate: an owner, with a key of its own caller, gives the partition back at a deposed
// server, just before that falls silent. So that hold's row was written a moment ago when the
// session looks at all its holds, and the new server has none. The owner's announced deadlines are
// over soon, so it speaks; but it reaches no partition then until Grace has ended.
func demotesLate(i int) Config {
	return Config{Seed: uint64(i), TTL: 30 * time.Second, Nodes: 3, Keys: 1, script: func(w *world) {
		time.Sleep(time.Minute)
		for _, n := range w.nodes {
			key := n.now.ownOnOther()
			if key == "" {
				continue
			}
			held, err := n.now.c.Lock(context.Background(), key)
			if err != nil {
				w.h.say("Lock: %v", err)
				return
			}
			n.now.reachNone() // so its announced deadlines are soon over
			time.Sleep(15500*time.Millisecond + time.Duration(i)*125*time.Millisecond)
			var some [8]bool
			some[n.number] = true
			w.failoverPart(nil, Fault{Some: some})
			w.lookAtNew()
			other := w.nodes[(n.number+1)%3].now
			go func() {
				time.Sleep(2800 * time.Millisecond)
				n.now.client.set(func(x *weather) { x.shard = [partitions]bool{} })
				w.revokeAtDeposed(n.now)
				time.Sleep(150 * time.Millisecond)
				n.now.client.set(func(x *weather) { x.apart = false }) // it is silent, delta is 3 s
				time.Sleep(3800 * time.Millisecond)                    // to look at all that it has: a pass counts after 6 s
				n.now.reachNone()
			}()
			contend(w, held, other)
			n.now.client.set(func(x *weather) { x.shard = [partitions]bool{} })
			return
		}
		w.h.say("no node owns a key of the other server")
	}}
}

// ownOnOther returns a key of the other server that the node owns, "" if there is none.
func (s *start) ownOnOther() string {
	for _, key := range onOther() {
		if o, _ := s.c.Owner(key); o.Self {
			return key
		}
	}
	return ""
}

// lookAtNew makes Grace begin at the new server: it does when a partition is looked at.
func (w *world) lookAtNew() {
	ns, err := w.s.Memory.Attach(context.Background(), w.s.settings())
	if err != nil {
		w.h.say("%v", err)
		return
	}
	for p := range uint32(partitions) {
		_, _ = ns.Load(context.Background(), p)
	}
}

// revokeAtDeposed asks a node, by the server before, for its partitions.
func (w *world) revokeAtDeposed(owner *start) {
	deposed, err := w.s.apart.Attach(context.Background(), w.s.settings())
	if err != nil {
		w.h.say("%v", err)
		return
	}
	for p := range uint32(partitions) {
		if r, err := deposed.Load(context.Background(), p); err == nil && ofOther(p) {
			_ = deposed.Revoke(context.Background(), p, r.Epoch, "nobody")
			owner.client.tell(fallback.Message{Kind: fallback.Revoked, Partition: p, Epoch: r.Epoch})
		}
	}
}

// unheard: a node has keys, and reaches no arbiter, which has lost all: the new server does not
// know its session.
func unheard(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 3, Keys: 1, apart: true, script: func(w *world) {
		time.Sleep(20 * time.Second)
		time.Sleep(time.Duration(i) * 500 * time.Millisecond)
		holder, other := w.nodes[0].now, w.nodes[1].now
		var work sync.WaitGroup
		holdAll(w, &work, holder, other)
		holder.client.set(func(x *weather) { x.away = true })
		w.s.failover(nil, false)
		work.Wait()
		holder.client.set(func(x *weather) { x.away = false })
	}}
}
