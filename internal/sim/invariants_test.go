package sim

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// A forbidden state is made here by hand, and has to be noticed (I5, I7).
func TestInvariantsCanFail(t *testing.T) {
	for name, x := range map[string]struct {
		notices string
		script  func(*world)
	}{
		"a hold has its row":          {"", func(w *world) { rowless(w, false) }},
		"a hold has lost its row":     {"I5: ", func(w *world) { rowless(w, true) }},
		"a hold is in the table":      {"", func(w *world) { tableless(w, false) }},
		"a hold is not in the table":  {"I5: ", func(w *world) { tableless(w, true) }},
		"something is taken in Grace": {"I7: ", func(w *world) { takes(w, w.s.grace-time.Second) }},
		"something is taken later":    {"", func(w *world) { takes(w, w.s.grace) }},
	} {
		t.Run(name, func(t *testing.T) {
			r := simulate(t, Config{Seed: 1, TTL: 10 * time.Second, Nodes: 2, Keys: 1, script: x.script})
			if x.notices == "" && len(r.Bad) > 0 || x.notices != "" && (len(r.Bad) == 0 || !strings.Contains(r.Bad[0], x.notices)) {
				t.Errorf("noticed: %q", r.Bad)
			}
		})
	}
}

// rowless: an owner has left, and written the rows of its holders. With remove, one of them is
// removed. The nodes cannot reach each other, so that the holder's does not own the partition at
// once, when no row is needed.
func rowless(w *world, remove bool) {
	key, id, unlock := remoteHold(w)
	for _, n := range w.nodes {
		w.net.setCut(n.now.h, w.nodes[1-n.number].now.h, true)
	}
	w.nodes[0].leave()()
	w.rests(key)
	if remove {
		w.unlock(key, id)
		w.rests(key)
	}
	unlock()
}

// tableless: an owner forgets a hold that is in force, and its row is removed.
func tableless(w *world, tell bool) {
	key, id, unlock := remoteHold(w)
	w.rests(key)
	if tell {
		for _, n := range w.nodes { // both cannot reach each other: the holder gets a row
			w.net.setCut(n.now.h, w.nodes[1-n.number].now.h, true)
		}
		time.Sleep(4 * time.Second)
		w.unlock(key, id)
		time.Sleep(100 * time.Millisecond)
		for _, n := range w.nodes {
			wire.Forget(n.now.c, key)
		}
		w.rests(key)
	}
	unlock()
}

// takes: a partition is given away some time after the arbiter has become another server.
func takes(w *world, after time.Duration) {
	time.Sleep(15 * time.Second)
	w.s.failover(nil, false)
	time.Sleep(after)
	w.taken(nil, false, "partition %d is given to %.4s", 1, "somebody")
}

// unlock removes a row that no node expects to lose.
func (w *world) unlock(key string, id fallback.Identity) {
	p := uint32(xxhash.Sum64String(key) % partitions)
	_ = w.s.look.Unlock(context.Background(), []fallback.Release{{Partition: p, Key: key, Identity: id}})
}

// remoteHold makes a node lock a key of the other one.
func remoteHold(w *world) (key string, id fallback.Identity, unlock func()) {
	time.Sleep(15 * time.Second)
	owner, holder := w.nodes[0].now, w.nodes[1].now
	for n := 0; key == ""; n++ {
		if o, _ := owner.c.Owner(fmt.Sprint("key", n)); o.Self {
			key = fmt.Sprint("key", n)
		}
	}
	called := time.Now()
	l, err := holder.c.Lock(context.Background(), key)
	if err != nil {
		panic(err)
	}
	g := w.h.granted(holder, key, l, called)
	h, _ := wire.Holding(holder.c, key)
	id.Session, id.Request = h.Session, h.Request
	return key, id, func() {
		w.h.releasing(g)
		_ = l.Unlock()
	}
}
