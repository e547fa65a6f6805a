package sim

import (
	"context"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// runsAhead: partitions change hands so often that their epochs are ahead of the server's clock,
// which fails over then and has lost all. Tokens rise all the same, though Grace ends early.
func runsAhead(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 2, Keys: 1, apart: true, script: func(w *world) {
		time.Sleep(20 * time.Second)
		ctx := context.Background()
		ns, err := w.s.Memory.Attach(ctx, w.s.settings())
		for p := range uint32(partitions) {
			for range 3 {
				var r fallback.Record
				var a fallback.Acquisition
				if r, err = ns.Load(ctx, p); err == nil && ofOther(p) {
					if a, err = ns.Acquire(ctx, p, "hasty", fallback.Expect{Epoch: r.Epoch}); err == nil {
						_, err = ns.DemoteUnserved(ctx, p, "hasty", a.Record.Epoch)
					}
				}
			}
		}
		if err != nil {
			w.h.say("%v", err)
		}
		before := make(map[string]coord.Fence)
		for i := range 2 {
			for _, key := range onOther() {
				l, err := w.nodes[i].now.c.Lock(ctx, key)
				if err != nil {
					w.h.say("Lock: %v", err)
					return
				}
				if l.Fence() <= before[key] {
					w.h.say("I2: key %s was locked with %v after %v", key, l.Fence(), before[key])
				}
				before[key] = l.Fence()
				_ = l.Unlock()
			}
			if i == 0 {
				w.failoverPart(nil, Fault{})
			}
		}
		time.Sleep(20 * time.Second)
	}}
}

// runsAheadTwice: Grace has ended early, and each partition changes hands once more. Then its server
// fails over, and has lost that as well. Tokens rise all the same: sessions that have spoken a
// moment ago speak later.
func runsAheadTwice(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 2, Keys: 1, apart: true, script: func(w *world) {
		time.Sleep(20 * time.Second)
		ctx := context.Background()
		ns, err := w.s.Memory.Attach(ctx, w.s.settings())
		if err != nil {
			w.h.say("%v", err)
			return
		}
		w.failoverPart(nil, Fault{})
		begin := time.Now()
		latest := make(map[uint32]uint32)
		for _, key := range onOther() {
			_, _ = w.nodes[0].now.c.TryLock(ctx, key) // so that it is seen
			latest[uint32(xxhash.Sum64String(key)%partitions)] = 0
		}
		for p := range latest {
			r, err := ns.Load(ctx, p)
			for ; err == nil && r.Grace > 0; r, err = ns.Load(ctx, p) {
				time.Sleep(time.Millisecond)
			}
			if latest[p] = r.Epoch; err != nil || r.Owner != "" { // a node was quicker
				continue
			}
			for range 2 { // one more than the model has, as the servers' clocks are alike
				a, err := ns.Acquire(ctx, p, "hasty", fallback.Expect{Epoch: latest[p]})
				if err != nil || a.Verdict != fallback.Granted {
					break
				}
				if d, err := ns.DemoteUnserved(ctx, p, "hasty", a.Record.Epoch); err == nil {
					latest[p] = d.Record.Epoch
				}
			}
		}
		if took := time.Since(begin); took > 3*time.Second { // delta + M, and what a look takes
			w.h.say("Grace ended after %v", took)
		}
		w.failoverPart(nil, Fault{})
		for _, key := range onOther() {
			_, _ = w.nodes[0].now.c.TryLock(ctx, key)
		}
		for p, lost := range latest {
			r, err := ns.Load(ctx, p)
			for ; err == nil && r.Grace > 0; r, err = ns.Load(ctx, p) {
				time.Sleep(10 * time.Millisecond)
			}
			if err != nil || r.Epoch <= lost {
				w.h.say("I2: partition %d is at epoch %d, %d was lost: %v", p, r.Epoch, lost, err)
			}
		}
		time.Sleep(20 * time.Second)
	}}
}
