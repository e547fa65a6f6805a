package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/coord"
)

// The scenarios of a node that holds keys of an owner which it does not hear any more: it gets rows
// for them before the owner's last answer for them runs out.

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
