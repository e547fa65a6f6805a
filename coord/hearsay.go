package coord

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/peer"
)

// hearsay is what messages say of this node's partitions. Every client of the arbiter that may publish can send a
// message, so the node reads the records before it acts.
type hearsay struct {
	mu     mutex[leafRank] // protects list
	list   map[rumor]bool  // to be looked up
	early  []rumor         // to be heard again
	signal chan struct{}   // capacity 1: list is not empty
}

// A rumor is what one message says: a hold was released, or, without a key, the partition's owner is to demote.
type rumor struct {
	p   *partition
	key string
	id  fallback.Identity
}

// maxRumors is how many are remembered. What is left out is found out later: by doubt (rule 13), and by verify.
const maxRumors = 1024

func (h *hearsay) init() { h.signal = make(chan struct{}, 1) }

func (h *hearsay) add(list ...rumor) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.list == nil {
		h.list = make(map[rumor]bool)
	}
	for _, r := range list {
		if len(h.list) < maxRumors {
			h.list[r] = true
		}
	}
	h.wake()
}

func (h *hearsay) again(early []rumor) {
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

// heardEarly returns what is to be heard again.
func (h *hearsay) heardEarly() []rumor {
	h.mu.Lock()
	defer h.mu.Unlock()
	early := h.early
	h.early = nil
	return early
}

// take returns what is to be looked up, by partition.
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

// keepChecking looks up what messages say, until the coordinator stops.
func (x *cluster) keepChecking() {
	for {
		select {
		case <-x.hearsay.signal:
		case <-x.c.ctx.Done():
			return
		}
		for _, r := range x.hearsay.heardEarly() {
			r.p.freed(r.key, r.id)
		}
		var batches [][][]rumor
		for _, list := range x.hearsay.take() {
			if n := len(batches); n == 0 || len(batches[n-1]) == readsPerCall {
				batches = append(batches, nil)
			}
			last := &batches[len(batches)-1]
			*last = append(*last, list)
		}
		spread(x.c, &x.c.work, batches, verifyCalls, x.check)
	}
}

// check reads the records that rumors are about. Each list is about one partition.
func (x *cluster) check(lists [][]rumor) {
	c := x.c
	reads := make([]fallback.Read, len(lists))
	for i, list := range lists {
		reads[i].Partition = list[0].p.number
		for _, r := range list {
			if r.key != "" {
				reads[i].Keys = append(reads[i].Keys, r.key)
			}
		}
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.opts.CallTimeout)
	defer cancel()
	start, bad := c.now(), 0
	var a after
	var failed error
	for i, s := range c.ns.Verify(ctx, reads) {
		if s.Err != nil {
			failed = s.Err
			bad++
			continue
		}
		lists[i][0].p.checked(lists[i], s, &a)
	}
	c.calledMany(OpVerify, len(reads), bad, start, failed)
	a.do(c)
}

// checked compares rumors with what the arbiter says. The absence of a row proves that an imported hold is over, unless this node has
// answered for it: then the holder does not look after its row, and a failover may have lost it (rule 17).
func (p *partition) checked(list []rumor, s fallback.State, a *after) {
	revoked, row := false, 0
	p.mu.Lock()
	o := p.own
	if o == nil || s.Record.Owner != o.session.id || s.Record.Epoch != o.epoch || s.Record.Grace > 0 {
		p.mu.Unlock()
		return
	}
	now := p.c.now()
	for _, r := range list {
		if r.key == "" {
			revoked = s.Record.Revoked
			continue
		}
		there := s.Rows[row].Identity == r.id
		row++
		e := p.entries[r.key]
		switch {
		case e == nil || e.g == nil || e.g.holder != r.id:
		case there || guard.Absent && !e.g.rowed():
			p.askHolder(e, now, a)
		default:
			p.nobodyHas(e, now, a)
		}
	}
	p.mu.Unlock()
	if revoked {
		p.revoked(o.epoch)
	}
}

// rowed reports whether the hold has a row at the arbiter as long as it is in force.
func (g *grants) rowed() bool { return g.imported && !g.vouched }

// nobodyHas frees a key that another node had.
func (p *partition) nobodyHas(e *entry, now time.Time, a *after) {
	e.g.holder, e.g.link = fallback.Identity{}, nil
	p.grantNext(e, now, a)
}

// askHolder asks the node that has a key whether it has it, at most once per RetryEvery (rule 13).
func (p *partition) askHolder(e *entry, now time.Time, a *after) {
	g := e.g
	if now.Sub(g.asked) < p.c.opts.RetryEvery {
		return
	}
	if g.link == nil {
		g.link = p.c.cluster.linkTo(g.holder.Session)
	}
	if g.link != nil {
		g.asked = now
		a.send(g.link, p.frame(peer.Ask, e.key, g.holder))
	}
}

// summoned: a message says that another node asks for the partition.
func (p *partition) summoned(epoch uint32) {
	p.mu.Lock()
	mine := p.own != nil && p.own.epoch == epoch && p.phase == phaseOwned
	p.mu.Unlock()
	if mine {
		p.c.cluster.hearsay.add(rumor{p: p})
	}
}

// freed: a message says that a hold was released at the arbiter (rule 9).
func (p *partition) freed(key string, id fallback.Identity) {
	var a after
	p.mu.Lock()
	now, e := p.c.now(), p.entries[key]
	switch {
	case p.phase == phaseAcquiring || p.phase == phaseDemoting: // the rows are on their way here, or from here
		if len(p.freedEarly) < maxRumors {
			p.freedEarly = append(p.freedEarly, rumor{p, key, id})
		}
	case p.own == nil && !past(p.announcedEnds, now): // this node may have written the row again
		p.disclaim(key, id, &a)
	case p.own == nil || e == nil || e.g == nil || e.g.holder != id:
	case !guard.Hearsay:
		p.nobodyHas(e, now, &a)
	case e.g.rowed() || !guard.Absent:
		p.c.cluster.hearsay.add(rumor{p, key, id})
	default:
		p.askHolder(e, now, &a)
	}
	p.mu.Unlock()
	a.do(p.c)
}

// disclaim makes the node of a hold's session remove the row that this node has written, if it has not got the hold.
func (p *partition) disclaim(key string, id fallback.Identity, a *after) {
	if !guard.Hearsay {
		a.releases = append(a.releases, p.release(key, id))
	} else if l := p.c.cluster.linkTo(id.Session); l != nil {
		a.send(l, p.frame(peer.Ask, key, id))
	}
}

// hearAgain makes keepChecking look at what was said while the rows were on their way. p.mu is held.
func (p *partition) hearAgain() {
	if len(p.freedEarly) > 0 {
		p.c.cluster.hearsay.again(p.freedEarly)
		p.freedEarly = nil
	}
}
