package sim

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// forge sends messages that only the arbiter should send, ten times per tenth of a session's life
// until the end. They name holds that are in force, as a stranger can know by listening to
// published messages.
func (w *world) forge(end time.Time) {
	if time.Now().After(end) {
		return
	}
	var all []*client
	var lies []fallback.Message
	for _, n := range w.nodes {
		s := n.now
		if s == nil || s.h.left() > 0 {
			continue
		}
		select {
		case <-s.ready:
		default:
			continue
		}
		if s.c == nil {
			continue
		}
		all = append(all, s.client)
		for p := range uint32(partitions) {
			if epoch, _ := wire.Serves(s.c, p); epoch > 0 {
				lies = append(lies, fallback.Message{Kind: fallback.Revoked, Partition: p, Epoch: epoch})
			}
		}
		for _, k := range w.keys {
			lies = append(lies, liesAbout(s, k)...)
		}
	}
	for _, c := range all {
		c.mu.Lock()
		hear := c.hear
		c.mu.Unlock()
		if hear != nil {
			w.work.Go(func() {
				for _, m := range lies {
					hear(m)
				}
			})
		}
	}
	w.after(w.t(100*time.Millisecond), func() { w.forge(end) })
}

// liesAbout says of a key that its holder has released it.
func liesAbout(s *start, key string) (lies []fallback.Message) {
	say := func(session string, request uint64) {
		if session != "" {
			lies = append(lies, fallback.Message{Kind: fallback.Freed, Key: key, Session: session, Request: request})
		}
	}
	h, _ := wire.Holding(s.c, key)
	say(h.Session, h.Request)
	_, session, request, _ := wire.Granted(s.c, key)
	say(session, request)
	return lies
}

// rowsLost: keys that a node has rest on their new owner, which has imported them. Then the arbiter
// loses their rows, the owner reclaims its partitions, and when Grace is over a stranger says that
// the keys were released.
func rowsLost(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 2, Keys: 20, script: func(w *world) {
		time.Sleep(15 * time.Second)
		w.nodes[0].leave()()
		time.Sleep(10 * time.Second)
		var held []coord.Lock
		for _, key := range w.keys {
			if l, err := w.nodes[1].now.c.Lock(context.Background(), key); err != nil {
				w.h.say("Lock: %v", err)
			} else {
				held = append(held, l)
			}
		}
		owner := w.nodes[0].start()
		<-owner.ready
		time.Sleep(20 * time.Second) // the holder offers its holds (rule 17)
		w.s.failover(nil, false)
		time.Sleep(20 * time.Second)
		w.forge(time.Now().Add(time.Second))
		w.times.run(time.Now().Add(3 * time.Second))
		for _, l := range held {
			other, err := owner.c.TryLock(context.Background(), l.Key())
			if err == nil && l.Context().Err() == nil {
				w.h.say("%q has two holders (I1)", l.Key())
			}
			if err == nil {
				_ = other.Unlock()
			}
			_ = l.Unlock()
		}
	}}
}
