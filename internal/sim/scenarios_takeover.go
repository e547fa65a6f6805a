package sim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// Takeover of the scenarios, and how much more than it a dead node's keys may take: clocks differ
// by a tenth, and the guardians look, vote, and ask.
const (
	takeoverD     = 3 * time.Second
	takeoverSlack = 500 * time.Millisecond
)

// killed: nodes die, and the others' callers want every key of theirs at that moment.
func killed(i int) Config {
	nodes, die := []int{2, 3, 5, 8, 5}[i%5], []int{1, 1, 1, 1, 2}[i%5]
	return takenOver(i, nodes, die, "were killed", takeoverD+takeoverSlack, func(_ *world, n *node) { n.crash() })
}

// seenToEnd: nodes die, and others of their machine see that (G9 to G11). Their keys are had without
// waiting for promises to pass, also where most of the guardians have died.
func seenToEnd(i int) Config {
	of := [][2]int{{2, 1}, {3, 1}, {4, 1}, {5, 1}, {8, 1}, {5, 2}, {3, 2}, {4, 3}, {5, 3}, {6, 4}}
	nodes, die := of[i%len(of)][0], of[i%len(of)][1]
	limit := seenWithin
	if 2*die > nodes { // what was in vain before the ends of guardians were known is done again
		limit += takeoverD / 6
	}
	cfg := takenOver(i, nodes, die, "were seen to end", limit, func(_ *world, n *node) { n.crash() })
	if cfg.Machines = 1; nodes > 2 && 2*die < nodes {
		cfg.Machines += i / len(of) % 2
	}
	return cfg
}

// seenWithin is how long the keys of a process may take that was seen to end: for calls of the
// arbiter, and for streams that end.
const seenWithin = 100 * time.Millisecond

// takenUnasked: the partitions of nodes that were killed have owners as soon, though no caller
// wants a key of them.
func takenUnasked(i int) Config {
	nodes, die := []int{3, 5, 8, 5}[i%4], []int{1, 1, 1, 2}[i%4]
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: nodes, Keys: 1, Takeover: takeoverD, script: func(w *world) {
		time.Sleep(30 * time.Second) // all have guardians
		var left []any               // coordinators
		for _, n := range w.nodes[die:] {
			left = append(left, n.now.c)
		}
		for _, n := range w.nodes[:die] {
			n.crash()
		}
		time.Sleep(takeoverD + takeoverSlack)
		for p := range uint32(partitions) {
			if !slices.ContainsFunc(left, func(c any) bool { epoch, _ := wire.Serves(c, p); return epoch > 0 }) {
				w.h.say("%d of %d nodes were killed: partition %d has no owner after %v", die, nodes, p, takeoverD+takeoverSlack)
			}
		}
	}}
}

// deafened: a node's messages arrive, and nothing arrives at it. Its guardians get pings until it
// ends, as it hears no promises.
func deafened(i int) Config {
	return takenOver(i, []int{2, 3, 5}[i%3], 1, "heard nothing", 2*takeoverD+takeoverSlack, func(w *world, n *node) {
		n.now.client.set(func(x *weather) { x.unheard, x.unmessage = 1, 1 })
		for _, other := range w.nodes {
			if other != n {
				w.net.setCut(other.now.h, n.now.h, true)
			}
		}
	})
}

// cutOff: nothing comes from a node, and nothing arrives at it. It has ended by its own clock when
// it is buried (G3).
func cutOff(i int) Config {
	return takenOver(i, []int{2, 3, 5}[i%3], 1, "were cut off", takeoverD+takeoverSlack, func(w *world, n *node) {
		n.now.client.set(func(x *weather) { x.away = true })
		for _, other := range w.nodes {
			if other != n {
				w.net.setCut(other.now.h, n.now.h, true)
				w.net.setCut(n.now.h, other.now.h, true)
			}
		}
	})
}

// killedOfTwo: one of two nodes is killed at some moment between two renewals of the other one. The
// survivor has to give its only guardian up in time.
func killedOfTwo(i int) Config {
	return takenOver(i, 2, 1, "were killed", takeoverD+takeoverSlack, func(_ *world, n *node) {
		time.Sleep(time.Duration(6+i) * 200 * time.Millisecond)
		n.crash()
	})
}

// killedAtTheNew: the arbiter loses its data, and learns in Grace the sessions' guardians. Then a
// node is killed.
func killedAtTheNew(i int) Config {
	return takenOver(i, []int{2, 3, 5}[i%3], 1, "were killed at a new server", takeoverD+takeoverSlack, func(w *world, n *node) {
		w.s.failover(nil, false)
		time.Sleep(15 * time.Second) // Grace is over
		n.crash()
	})
}

// silentByTurns: a node is cut off from one of its guardians, and from all others before it has
// given that one up. Its messages arrive at the arbiter only, and nothing arrives at it. If it
// asked for a set without the first one then, its members would not know that they are in it.
func silentByTurns(i int) Config {
	return takenOver(i, 3, 1, "fell silent by turns", takeoverD+takeoverSlack, func(w *world, n *node) {
		for k, other := range w.nodes[1:] {
			time.Sleep(time.Duration(k) * time.Duration(300+100*i) * time.Millisecond)
			w.net.setCut(other.now.h, n.now.h, true)
			w.net.setCut(n.now.h, other.now.h, true)
		}
		n.now.client.set(func(x *weather) { x.unheard, x.unmessage = 1, 1 })
	})
}

// stoodStill: a node and one of its three guardians do not hear each other for a while. When they
// could again the guardian stands still, and goes on after its promise has passed, a moment before
// the next ping: the node sends those in the first moments of each half second. No node reaches the
// arbiter, and another guardian dies: so the session needs the promises of the two that are left.
// The guardian's first action is chance: that happens four times.
func stoodStill(i int) Config {
	return Config{Seed: uint64(i), TTL: 30 * time.Second, Nodes: 4, Keys: 1, Takeover: takeoverD, Usual: true, script: func(w *world) {
		if !wire.Clocks {
			return // no node can stand still
		}
		time.Sleep(30 * time.Second) // all have guardians
		n, stands, dies := w.nodes[:1], w.nodes[1].now, w.nodes[2]
		session := sessionsOf(n)
		for k := range 4 {
			at := func(d time.Duration) { time.Sleep(time.Until(w.begin.Add(time.Duration(1+k)*30*time.Second + d))) }
			at(time.Duration(100+100*i) * time.Millisecond)
			w.net.setCut(n[0].now.h, stands.h, true)
			w.net.setCut(stands.h, n[0].now.h, true)
			at(600 * time.Millisecond) // a moment later the session would give that guardian up
			w.s.setDown(true)
			at(takeoverD - 600*time.Millisecond)
			stands.h.clock.stand(1300*time.Millisecond, 0)
			w.net.heal()
			at(takeoverD + 1300*time.Millisecond)
			dies.crash()
			at(2*takeoverD + 1300*time.Millisecond) // its promises have passed
			w.s.setDown(false)
			at(4 * takeoverD)
			<-dies.start().ready
		}
		if !slices.Equal(sessionsOf(n), session) {
			w.h.say("a session has ended as a guardian stood still, and another one died")
		}
	}}
}

// takenOver: something is done to the first nodes, and the others' callers want every key at that
// moment. The clocks are at both ends of their range.
func takenOver(i, nodes, die int, what string, limit time.Duration, do func(*world, *node)) Config {
	var rates []float64
	for n := range nodes {
		rates = append(rates, []float64{1 - maxDrift, 1, 1 + maxDrift}[(n+i)%3])
	}
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: nodes, Keys: 1, Takeover: takeoverD, rates: rates, script: func(w *world) {
		time.Sleep(30 * time.Second) // all have guardians
		var keys []string            // one of each partition
		for n := 0; len(keys) < partitions; n++ {
			key := fmt.Sprint("key", n)
			if !slices.ContainsFunc(keys, func(k string) bool { return xxhash.Sum64String(k)%partitions == xxhash.Sum64String(key)%partitions }) {
				keys = append(keys, key)
			}
		}
		for _, n := range w.nodes[:die] {
			do(w, n)
		}
		sessions := sessionsOf(w.nodes[die:])
		begin := time.Now()
		took := make(chan time.Duration)
		for _, n := range w.nodes[die:] {
			for _, key := range keys {
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
		for range (nodes - die) * len(keys) {
			longest = max(longest, <-took)
		}
		w.say(fmt.Sprintf("%d of %d nodes %s: the longest wait was %v", die, nodes, what, longest))
		if longest > limit {
			w.h.say("%d of %d nodes %s: the longest wait was %v, not %v", die, nodes, what, longest, limit)
		}
		if now := sessionsOf(w.nodes[die:]); !slices.Equal(now, sessions) {
			w.h.say("%d of %d nodes %s: another one's session has ended", die, nodes, what)
		}
		w.net.heal()
		for _, n := range w.nodes[:die] {
			if n.now != nil {
				n.now.client.set(func(x *weather) { x.unheard, x.unmessage, x.away = 0, 0, false })
			}
		}
	}}
}

// sessionsOf returns the sessions of some nodes.
func sessionsOf(nodes []*node) (all []string) {
	for _, n := range nodes {
		session, _ := wire.Session(n.now.c)
		all = append(all, session)
	}
	return all
}

// firstGuardian: a node that was alone goes by its lease. Another one that has come is not its
// guardian before the deadlines that the first node relies on have passed (G7). Meanwhile the
// first one is cut off, and still goes by its lease.
func firstGuardian(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 2, Keys: 1, Takeover: takeoverD, rates: []float64{1, 1}, script: func(w *world) {
		first, second := w.nodes[0], w.nodes[1]
		second.crash()
		time.Sleep(25 * time.Second) // its session is dead
		second.start()
		time.Sleep(4 * time.Second)
		first.now.client.set(func(x *weather) { x.away = true })
		w.net.setCut(first.now.h, second.now.h, true)
		w.net.setCut(second.now.h, first.now.h, true)
		time.Sleep(20 * time.Second)
		first.now.client.set(func(x *weather) { x.away = false })
		w.net.heal()
	}}
}

// buriedByTheDeposed: a node is cut off from two of its three guardians, and from the arbiter.
// Another server takes over before their promises have passed, and before the node waits for a
// whole second between two renewals that fail. That server records that the third one is the node's
// only guardian. The two reach the deposed server, and bury the node there.
func buriedByTheDeposed(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 4, Keys: 1, Takeover: takeoverD, rates: []float64{1, 1, 1, 1}, script: func(w *world) {
		time.Sleep(30 * time.Second)
		n, others := w.nodes[0].now, w.nodes[1:3]
		var work sync.WaitGroup
		l, err := n.c.Lock(context.Background(), n.ownKey())
		if err != nil {
			w.h.say("Lock: %v", err)
			return
		}
		work.Go(func() { inVain(w, l, others[0].now) })
		n.away(true)
		for _, other := range others {
			w.net.setCut(other.now.h, n.h, true)
			w.net.setCut(n.h, other.now.h, true)
		}
		time.Sleep(time.Second + time.Duration(i)*100*time.Millisecond)
		w.failover(func() { w.s.failover(w.s.Snapshot(), true) }, Fault{Some: [8]bool{1: true, 2: true}})
		n.away(false)
		work.Wait()
		w.net.heal()
	}}
}

// answersLate: an owner has answered a holder, and stands still. Its answer is on its way for so
// long that it arrives shortly before the others bury the owner. The holder has a slow clock, and
// does not reach the arbiter.
func answersLate(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 4, Keys: 1, Takeover: takeoverD, rates: []float64{1, 1 - maxDrift, 1, 1}, script: func(w *world) {
		time.Sleep(30*time.Second + time.Duration(i)*60*time.Millisecond)
		owner, holder, other := w.nodes[0].now, w.nodes[1].now, w.nodes[2].now
		l, err := holder.c.Lock(context.Background(), owner.ownKey())
		if err != nil {
			w.h.say("Lock: %v", err)
			return
		}
		var work sync.WaitGroup
		work.Go(func() { inVain(w, l, other) })
		holder.away(true)
		w.net.setCut(owner.h, holder.h, true)
		time.Sleep(700 * time.Millisecond)
		owner.h.clock.stand(20*time.Second, 0)
		time.Sleep(time.Second)
		w.net.setCut(owner.h, holder.h, false)
		work.Wait()
		w.net.heal()
		holder.away(false)
	}}
}

// givenOn: an owner gives partitions to a node that comes, and lives on. A holder of keys there
// goes by its answers no more. Then the arbiter loses its data, and the new owner dies.
func givenOn(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 3, Keys: 20, Takeover: takeoverD, script: func(w *world) {
		time.Sleep(15 * time.Second)
		w.nodes[2].leave()()
		time.Sleep(10 * time.Second)
		owner, holder := w.nodes[0].now, w.nodes[1].now
		var work sync.WaitGroup
		for _, key := range w.keys {
			if o, _ := owner.c.Owner(key); !o.Self {
				continue
			}
			l, err := holder.c.Lock(context.Background(), key)
			if err != nil {
				w.h.say("Lock: %v", err)
				continue
			}
			work.Go(func() {
				time.Sleep(30 * time.Second)
				inVain(w, l, owner)
			})
		}
		<-w.nodes[2].start().ready
		time.Sleep(10*time.Second + time.Duration(i)*time.Second)
		w.s.failover(nil, false)
		w.nodes[2].crash()
		work.Wait()
	}}
}

// adoptedAtTheNew: an owner dies, and another node holds one of its keys. That node reaches the
// arbiter once another server has taken over, and adopts its hold there. All others reach the
// deposed server, which has no such row: they bury the owner there, and one takes its partition.
func adoptedAtTheNew(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 4, Keys: 1, Takeover: takeoverD, rates: []float64{1, 1 - maxDrift, 1, 1}, script: func(w *world) {
		// Nodes ping each other every half second: the holder does so after the owner.
		after := time.Duration(240+15*(i%4)) * time.Millisecond
		w.nodes[1].crash()
		time.Sleep(14*time.Second + after)
		w.nodes[1].start()
		time.Sleep(30*time.Second - after)
		owner, holder, other := w.nodes[0], w.nodes[1].now, w.nodes[2].now
		l, err := holder.c.Lock(context.Background(), owner.now.ownKey())
		if err != nil {
			w.h.say("Lock: %v", err)
			return
		}
		var work sync.WaitGroup
		work.Go(func() { inVain(w, l, other) })
		holder.away(true)
		time.Sleep(320 * time.Millisecond)
		owner.crash()
		time.Sleep(1830*time.Millisecond + time.Duration(i/4)*50*time.Millisecond)
		w.failover(func() { w.s.failover(w.s.Snapshot(), true) }, Fault{Some: [8]bool{2: true, 3: true}})
		holder.away(false)
		time.Sleep(900 * time.Millisecond) // delta is 1 s
		for _, n := range w.nodes[2:] {
			n.now.client.set(func(x *weather) { x.deposed = false })
		}
		work.Wait()
	}}
}

// renewsLate: a node with a slow clock stands still for almost its lease. Another server has taken
// over when it renews. The others reach the deposed server, where it has not.
func renewsLate(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 3, Keys: 1, rates: []float64{1 - maxDrift, 1, 1}, script: func(w *world) {
		time.Sleep(20*time.Second + time.Duration(i)*300*time.Millisecond)
		n, other := w.nodes[0].now, w.nodes[1].now
		var work sync.WaitGroup
		holdAll(w, &work, n, other)
		_, until := wire.Session(n.c)
		stands := time.Duration(float64(until.Sub(n.h.read()))/(1-maxDrift)) - 200*time.Millisecond
		n.h.clock.stand(stands, 0)
		time.Sleep(stands - 50*time.Millisecond)
		w.failover(func() { w.s.failover(w.s.Snapshot(), true) }, Fault{Some: [8]bool{1: true, 2: true}})
		time.Sleep(990 * time.Millisecond) // delta is 1 s
		for _, n := range w.nodes[1:] {
			n.now.client.set(func(x *weather) { x.deposed = false })
		}
		work.Wait()
	}}
}
