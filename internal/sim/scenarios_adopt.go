package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/coord"
)

// The scenarios of a node that holds keys of an owner which it does not hear any more, or which the
// arbiter does not hear: it gets rows for them before the owner's last answer for them runs out.

// cutFromOwner: the times are the defaults of a SessionTTL that is long, where the owner answers
// for a small part of it.
func cutFromOwner(i int) Config {
	cfg := Config{Seed: uint64(i), TTL: []time.Duration{35, 60}[i%2] * time.Second, Nodes: 3, Keys: 1, Takeover: takeoverD, Usual: true}
	return cfg.adopted(time.Duration(i)*50*time.Millisecond, func([]uint64) []uint64 { return nil })
}

// deadFirst: some partitions cannot be reached by then, the ones that come first among those with
// holds. Locks of others must not be lost.
func deadFirst(i int) Config {
	cfg := Config{Seed: uint64(i), TTL: []time.Duration{10, 35}[i/2%2] * time.Second, Nodes: 2, Keys: 1, Takeover: takeoverD, Usual: true, Refused: i%2 > 0}
	return cfg.adopted(time.Duration(i)*100*time.Millisecond, func(all []uint64) []uint64 { return all[:min(2, len(all)-1)] })
}

// adopted has the second node hold keys in each partition of the first one, and cuts them off from
// each other. The partitions that dead returns die.
func (cfg Config) adopted(after time.Duration, dead func([]uint64) []uint64) Config {
	cfg.script = func(w *world) {
		time.Sleep(max(15*time.Second, cfg.TTL) + after)
		owner, holder := w.nodes[0].now, w.nodes[1].now
		locks := make(map[uint64][]coord.Lock)
		var mine []uint64 // partitions
		for n := range 300 {
			key := fmt.Sprint("key", n)
			if o, _ := owner.c.Owner(key); !o.Self {
				continue
			}
			l, err := holder.c.Lock(context.Background(), key)
			if err != nil {
				w.h.say("Lock: %v", err)
				return
			}
			_ = l.Context()
			p := xxhash.Sum64String(key) % partitions
			if locks[p] == nil {
				mine = append(mine, p)
			}
			locks[p] = append(locks[p], l)
		}
		slices.Sort(mine)
		if len(mine) == 0 {
			return
		}
		gone := dead(mine)
		holder.client.set(func(x *weather) {
			for _, p := range gone {
				x.shard[p] = true
			}
		})
		w.net.setCut(owner.h, holder.h, true)
		w.net.setCut(holder.h, owner.h, true)
		time.Sleep(10 * time.Second)
		for p, all := range locks {
			for _, l := range all {
				if l.Context().Err() != nil && !slices.Contains(gone, p) {
					w.h.say("lost: a lock in partition %d of %v, of which %v cannot be reached", p, mine, gone)
					return
				}
				_ = l.Unlock()
			}
		}
	}
	return cfg
}

// ownerCutOff: the first node does not reach the arbiter any more. It goes on giving its keys to the
// other two, which want them by turns, until its session expires. They lose none, however long they
// hold them.
func ownerCutOff(i int) Config {
	cfg := Config{Seed: uint64(i), TTL: []time.Duration{10, 6, 35}[i/3%3] * time.Second, Nodes: 3, Keys: 1, Refused: i%2 > 0}
	switch i % 3 {
	case 0:
		cfg.Takeover, cfg.Usual = takeoverD, true
	case 1:
		cfg.Usual = true
	default:
		cfg.renew = 250 * time.Millisecond
	}
	cfg.script = func(w *world) {
		time.Sleep(max(15*time.Second, cfg.TTL) + time.Duration(i)*70*time.Millisecond)
		owner, others := w.nodes[0].now, w.nodes[1:]
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var granted atomic.Int64 // keys of the first node, once it is cut off
		var workers sync.WaitGroup
		for _, other := range others {
			for n := range 20 {
				hold := []time.Duration{30, 1500}[n%2] * time.Millisecond
				workers.Go(func() { other.now.lockByTurns(ctx, fmt.Sprint("key", n), hold, owner, &granted) })
			}
		}
		time.Sleep(time.Second)
		granted.Store(0)
		owner.away(true)
		for end := time.Now().Add(2 * cfg.TTL); others[0].now.c.Stats().Owned+others[1].now.c.Stats().Owned < partitions; time.Sleep(w.t(100 * time.Millisecond)) {
			if time.Now().After(end) {
				w.h.say("the other two have not its partitions %v after it was cut off", 2*cfg.TTL)
				break
			}
		}
		owner.away(false)
		cancel()
		workers.Wait()
		if granted.Load() == 0 {
			w.h.say("the node that was cut off has given the other two no key")
		}
	}
	return cfg
}

// lockByTurns locks a key again and again. It counts the grants while owner is the key's owner.
func (s *start) lockByTurns(ctx context.Context, key string, hold time.Duration, owner *start, granted *atomic.Int64) {
	for ctx.Err() == nil {
		l, err := s.c.Lock(ctx, key)
		if err != nil {
			continue
		}
		if o, _ := owner.c.Owner(key); o.Self {
			granted.Add(1)
		}
		_ = pause(l.Context(), hold)
		if err := l.Unlock(); errors.Is(err, coord.ErrLost) {
			s.n.w.h.say("lost: %v", err)
		}
	}
}
