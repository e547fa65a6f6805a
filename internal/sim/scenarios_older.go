package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// olderData: the arbiter gets the data of a moment ago under the same identity, while no partition
// has an owner yet. Both nodes have seen later tokens of each partition, and one of them holds a
// key.
func olderData(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, History: true, Nodes: 2, Keys: 14, script: func(w *world) {
		holder, other := w.nodes[0].now, w.nodes[1].now
		if !holder.turns(w.keys[1:]) || !other.turns(w.keys[1:]) {
			return
		}
		at := time.Now()
		w.inject(Fault{Kind: rewind, Late: 500 * time.Millisecond})
		g, held := w.seenLater(holder, other)
		if g == nil {
			return
		}
		w.times.run(at.Add(500*time.Millisecond + time.Duration(i)*300*time.Millisecond))
		for range 3 * int(w.cfg.TTL/time.Second) { // Grace begins, and ends
			if twice, err := other.c.TryLock(context.Background(), w.keys[0]); err == nil {
				w.h.granted(other, w.keys[0], twice, time.Now())
				_ = twice.Unlock()
			}
			for _, key := range w.keys[1:] {
				_ = other.tryTurn(key) && holder.tryTurn(key)
			}
			time.Sleep(time.Second)
		}
		w.stillHeld(g, held)
	}}
}

// olderTaken: as olderData, but the next one that asks for anything is a node that takes its
// partitions.
func olderTaken(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 2, Keys: 14, script: func(w *world) {
		holder, other := w.nodes[i%2].now, w.nodes[1-i%2].now
		if !holder.turns(w.keys[1:]) || !other.turns(w.keys[1:]) { // of all partitions
			return
		}
		old := w.s.Snapshot()
		g, held := w.seenLater(holder, other)
		if g == nil {
			return
		}
		w.s.rewind(old)
		time.Sleep(time.Duration(i+1) * 500 * time.Millisecond)
		for range 3 * int(w.cfg.TTL/time.Second) { // Grace begins, and ends
			_ = other.tryTurn(w.keys[0])
			time.Sleep(time.Second)
		}
		w.stillHeld(g, held)
	}}
}

// seenLater: holder locks a key at the arbiter, and both nodes see later tokens of each partition. g
// is nil if that is not to be had.
func (w *world) seenLater(holder, other *start) (g *grant, held coord.Lock) {
	held, err := holder.c.TryLock(context.Background(), w.keys[0])
	if err != nil {
		w.say("no partition is to be had at the arbiter any more")
		return nil, held
	}
	g = w.h.granted(holder, w.keys[0], held, time.Now())
	if !holder.turns(w.keys[1:]) || !other.turns(w.keys[1:]) {
		return nil, held
	}
	return g, held
}

// stillHeld says so if a lock was lost, and unlocks it.
func (w *world) stillHeld(g *grant, held coord.Lock) {
	if g.ctx.Err() != nil {
		w.h.say("what was held is lost: %v", context.Cause(g.ctx))
	}
	w.h.releasing(g)
	_ = held.Unlock()
}

// olderSessions: the table of sessions is older than the session of a holder. The others want its
// lock.
func olderSessions(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 2, Keys: 1, script: func(w *world) {
		old := w.s.Snapshot()
		w.nodes[1].leave()()
		time.Sleep(time.Duration(6+i) * time.Second) // the first one's session has been renewed
		s := w.nodes[1].start()
		<-s.ready
		time.Sleep(15 * time.Second)
		held, err := s.c.Lock(context.Background(), w.keys[0])
		if err != nil {
			w.h.say("Lock: %v", err)
			return
		}
		g := w.h.granted(s, w.keys[0], held, time.Now())
		w.s.rewindSessions(old)
		for begin := time.Now(); time.Since(begin) < 40*time.Second; time.Sleep(50 * time.Millisecond) {
			_ = w.nodes[0].now.tryTurn(w.keys[0])
		}
		w.stillHeld(g, held)
	}}
}

// turn locks and unlocks a key.
func (s *start) turn(number int, key string) bool {
	called, call := time.Now(), s.rec.Lock(number, key)
	l, err := s.c.Lock(context.Background(), key)
	if err != nil {
		call.Refused()
		s.n.w.h.say("Lock: %v", err)
		return false
	}
	s.use(key, l, called, call.Granted(uint64(l.Fence())), 0, -1, false)
	return true
}

// turns locks and unlocks keys, until one is not to be had.
func (s *start) turns(keys []string) bool {
	for n, key := range keys {
		if !s.turn(n, key) {
			return false
		}
	}
	return true
}

// tryTurn is turn where the key need not be to be had.
func (s *start) tryTurn(key string) bool {
	called := time.Now()
	l, err := s.c.TryLock(context.Background(), key)
	if err != nil {
		if !errors.Is(err, coord.ErrLocked) && !errors.Is(err, coord.ErrUnavailable) {
			s.n.w.h.say("TryLock: %v", fmt.Errorf("%s: %w", key, err))
		}
		return false
	}
	s.n.w.h.granted(s, key, l, called)
	_ = l.Unlock()
	return true
}
