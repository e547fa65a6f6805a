package sim

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// The scenarios of a process that other ones of its machine see end (G9 to G11). It owns a key that
// another node has by its word, or is about to have, and a third one wants.

// seenEnding is a run of six nodes on one machine. The first one owns the key. So four of the others
// have its guardians' votes, and more than enough without the second one.
func seenEnding(i int, script func(w *world, key string)) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 6, Keys: 14, Takeover: takeoverD, Machines: 1, script: func(w *world) {
		time.Sleep(30 * time.Second) // all have guardians
		for _, key := range w.keys {
			if o, _ := w.nodes[0].now.c.Owner(key); o.Self {
				script(w, key)
				return
			}
		}
		w.say("the first node owns none of the keys")
	}}
}

// asksFor has a node ask for a key again and again, until a time has passed.
func (s *start) asksFor(key string, long time.Duration) {
	for begin := time.Now(); time.Since(begin) < long; time.Sleep(3 * time.Millisecond) {
		_ = s.tryTurn(key)
	}
}

// heldByWord: a node takes long to get a row for the key.
func heldByWord(i int) Config {
	return seenEnding(i, func(w *world, key string) {
		holder, other := w.nodes[1].now, w.nodes[2].now
		g, held := w.holds(holder, key)
		if g == nil {
			return
		}
		holder.client.set(func(x *weather) { x.latency = time.Duration(25+i) * 10 * time.Millisecond })
		w.nodes[0].crash()
		other.asksFor(key, 4*time.Second)
		holder.client.set(func(x *weather) { x.latency = usual })
		w.stillHeld(g, held)
	})
}

// grantOnTheWay: the key's grant is on its way to a node when the process ends.
func grantOnTheWay(i int) Config {
	return seenEnding(i, func(w *world, key string) {
		holder, other := w.nodes[1].now, w.nodes[2].now
		const way = 300 * time.Millisecond
		w.net.setExactly(way)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if g, held := w.holds(holder, key); g != nil {
				time.Sleep(time.Second)
				w.stillHeld(g, held)
			}
		}()
		time.Sleep(way + way/2)
		w.nodes[0].crash()
		w.net.setLatency(usual)
		other.asksFor(key, 4*time.Second)
		<-done
	})
}

// notListed: a process has just started, and the guardians have not listed it: the arbiter's answers
// do not reach them in that moment.
func notListed(i int) Config {
	return seenEnding(i, func(w *world, key string) {
		w.nodes[1].leave()()
		time.Sleep(10 * time.Second)
		s := w.nodes[1].start()
		for _, n := range w.nodes[2:] {
			n.now.client.set(func(x *weather) { x.unheard = 1 })
			w.net.setCut(s.h, n.now.h, true)
			w.net.setCut(n.now.h, s.h, true)
		}
		<-s.ready
		g, held := w.holds(s, key)
		if g == nil {
			return
		}
		s.client.set(func(x *weather) { x.latency = 300 * time.Millisecond })
		for _, n := range w.nodes[2:] {
			n.now.client.set(func(x *weather) { x.unheard = 0 })
		}
		w.nodes[0].crash()
		w.nodes[2].now.asksFor(key, 4*time.Second)
		s.client.set(func(x *weather) { x.latency = usual })
		w.net.heal()
		w.stillHeld(g, held)
	})
}

// holds has a node lock a key. g is nil if it cannot.
func (w *world) holds(s *start, key string) (g *grant, held coord.Lock) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	held, err := s.c.Lock(ctx, key)
	if err != nil {
		w.h.say("Lock: %v", err)
		return nil, held
	}
	return w.h.granted(s, key, held, time.Now()), held
}
