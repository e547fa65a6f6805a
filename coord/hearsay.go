package coord

import (
	"context"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// hearsay has the rumors in messages about this node's partitions. Every client of the arbiter that
// may publish can send a message, so the node reads the records before it acts.
type hearsay struct {
	mu     mutex[leafRank] // protects list, early
	list   map[rumor]bool  // to be looked up
	early  []rumor         // to be heard again
	signal chan struct{}   // capacity 1: list is not empty
}

// A rumor is about one partition.
type rumor struct {
	p *partition
	lease.Rumor
}

func (h *hearsay) init() { h.signal = make(chan struct{}, 1) }

func (h *hearsay) add(list ...rumor) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.list == nil {
		h.list = make(map[rumor]bool)
	}
	for _, r := range list {
		if len(h.list) < lease.MaxRumors {
			h.list[r] = true
		}
	}
	h.wake()
}

func (h *hearsay) again(early ...rumor) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.early = append(h.early, early...)
	h.wake()
}

func (h *hearsay) wake() {
	select {
	case h.signal <- struct{}{}:
	default:
	}
}

// heardEarly takes and returns the rumors to be heard again.
func (h *hearsay) heardEarly() []rumor {
	h.mu.Lock()
	defer h.mu.Unlock()
	early := h.early
	h.early = nil
	return early
}

// take takes and returns the rumors to be looked up, by partition.
func (h *hearsay) take() map[*partition][]rumor {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make(map[*partition][]rumor)
	for r := range h.list {
		all[r.p] = append(all[r.p], r)
	}
	h.list = nil
	return all
}

// keepLookingUp looks up rumors, until the coordinator stops.
func (x *cluster) keepLookingUp() {
	for {
		select {
		case <-x.hearsay.signal:
		case <-x.c.life.ctx.Done():
			return
		}
		for _, r := range x.hearsay.heardEarly() {
			r.p.message(hintFreed, r.Key, r.ID)
		}
		var batches [][][]rumor
		for _, list := range x.hearsay.take() {
			if n := len(batches); n == 0 || len(batches[n-1]) == readsPerCall {
				batches = append(batches, nil)
			}
			last := &batches[len(batches)-1]
			*last = append(*last, list)
		}
		spread(x.c, &x.c.life.work, batches, verifyCalls, x.lookUp)
	}
}

// lookUp reads the records that rumors are about. Each list is about one partition.
func (x *cluster) lookUp(lists [][]rumor) {
	c := x.c
	reads := make([]fallback.Read, len(lists))
	for i, list := range lists {
		reads[i].Partition = list[0].p.Number()
		for _, r := range list {
			if r.Key != "" {
				reads[i].Keys = append(reads[i].Keys, r.Key)
			}
		}
	}
	ctx, cancel := context.WithTimeout(c.life.ctx, c.opts.CallTimeout)
	defer cancel()
	start, bad := c.now(), 0
	var a after
	var failed error
	for i, s := range c.remote.ns.Verify(ctx, reads) {
		if s.Err != nil {
			failed = s.Err
			bad++
			if c.life.ctx.Err() != nil { // Close looks after them
				c.cluster.hearsay.add(lists[i]...)
			}
			continue
		}
		lists[i][0].p.lookedUp(lists[i], s, &a)
	}
	c.calledMany(OpVerify, len(reads), bad, start, failed)
	a.do(c)
}

// lookedUp compares rumors with the arbiter's answer.
func (p *partition) lookedUp(list []rumor, s fallback.State, a *after) {
	rumors := make([]lease.Rumor, len(list))
	for i, r := range list {
		rumors[i] = r.Rumor
	}
	now := p.lock()
	revoked := p.Heard(rumors, s, now, &a.Effects)
	p.unlock(a)
	if revoked > 0 {
		p.revoked(revoked)
	}
}

// rumored adds rumors to be looked up, and rumors to be heard again. p.mu is held.
func (p *partition) rumored(look, again []lease.Rumor) {
	x := p.c.cluster
	for _, r := range look {
		x.hearsay.add(rumor{p, r})
	}
	for _, r := range again {
		x.hearsay.again(rumor{p, r})
	}
}
