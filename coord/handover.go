package coord

import (
	"context"
	"maps"
	"time"
)

// handovers has the partitions that this node gives to others. Few are under way at a time, and
// each is until the next owner has said that it has it. If they were given faster than others take
// them, each would have no owner for as long as all of them wait.
type handovers struct {
	mu   mutex[leafRank]      // protects the fields below
	all  map[uint32]*handover // by partition
	slow map[*link]bool       // that had not said so in time: they may be of an older version
}

type handover struct {
	to   *link         // the next owner's stream; nil: no node has been told
	done chan struct{} // closed when that has the partition
}

// begin is called before a partition is demoted. It returns nil if another goroutine gives it.
func (x *handovers) begin(p uint32) *handover {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.all[p] != nil {
		return nil
	}
	if x.all == nil {
		x.all, x.slow = make(map[uint32]*handover), make(map[*link]bool)
	}
	h := &handover{done: make(chan struct{})}
	x.all[p] = h
	return h
}

// told is called before the next owner is told that the partition is free.
func (x *handovers) told(p uint32, l *link) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if h := x.all[p]; h != nil {
		h.to = l
	}
}

// taken: a node says that it has a partition.
func (x *handovers) taken(p uint32, l *link) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.slow, l)
	if h := x.all[p]; h != nil && h.to == l {
		close(h.done)
		delete(x.all, p)
	}
}

// awaits reports whether the next owner is likely to say so soon.
func (x *handovers) awaits(h *handover) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return h.to != nil && !x.slow[h.to]
}

// end forgets a partition. late tells that the next owner did not say so in time.
func (x *handovers) end(p uint32, h *handover, late bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.all[p] != h {
		return // it was taken, and may be given once more by now
	}
	delete(x.all, p)
	if late {
		maps.DeleteFunc(x.slow, func(l *link, _ bool) bool { return l.Down() })
		x.slow[h.to] = true
	}
}

// takenWithin is how long a node waits for the next owner's word: for longer than a busy machine
// takes. An older node never says it.
const takenWithin = 200 * time.Millisecond

// handOver calls demote, of one of this node's partitions, and waits until the next owner has it,
// or ctx has ended: for a moment at most. It does not wait for a node that was late the last time.
func (x *cluster) handOver(ctx context.Context, p *partition, demote func()) {
	h := x.self.handovers.begin(p.Number())
	if h == nil {
		demote()
		return
	}
	late := false
	defer func() { x.self.handovers.end(p.Number(), h, late) }() // also if a trace function ends the goroutine
	demote()
	if !x.self.handovers.awaits(h) {
		return
	}
	timer := time.NewTimer(takenWithin)
	defer timer.Stop()
	select {
	case <-h.done:
	case <-timer.C:
		late = true
	case <-ctx.Done():
	}
}
