package coord

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/peer"
)

// quota is how much of Cluster.MaxPerNode the node at the other end of a link uses.
type quota struct {
	used    atomic.Int64 // keys that it holds or waits for, since the last count; see count
	refused atomic.Int64 // requests, since that was logged
	logged  time.Time    // only of keepDoubting
}

// full reports whether the node may have no more keys of this one, and counts a request that is refused.
func (l *link) full() bool {
	most := l.x.c.opts.Cluster.MaxPerNode
	if most < 0 || l.used.Load() < int64(most) {
		return false
	}
	l.refused.Add(1)
	return true
}

// usage is how many keys of this node's partitions each other node holds or waits for.
type usage map[*link]int64

// count adds what is used of one partition. p.mu is held.
func (u usage) count(p *partition) {
	for _, x := range p.parked {
		u[x.link]++
	}
	for _, e := range p.entries {
		if e.g == nil {
			continue
		}
		if e.g.link != nil && e.g.holder != (fallback.Identity{}) {
			u[e.g.link]++
		}
		for _, c := range e.g.queue {
			if c.link != nil {
				u[c.link]++
			}
		}
	}
}

// refusalsEvery is how often refusals are logged, for each node.
const refusalsEvery = time.Minute

// settleQuotas replaces what was counted by each request and release by what is there: a hold ends in other ways as well.
func (x *cluster) settleQuotas(u usage, now time.Time) {
	for _, l := range x.all() {
		l.used.Store(u[l])
		if l.refused.Load() > 0 && now.Sub(l.logged) >= refusalsEvery {
			l.logged = now
			x.c.opts.Logger.Warn("holdfast: a node wants more keys than it may have: requests are refused",
				"node", l.s.Node(), "used", u[l], "limit", x.c.opts.Cluster.MaxPerNode, "refused", l.refused.Swap(0))
		}
	}
}

// refuse answers a request of a node that may have no more keys.
func (p *partition) refuse(l *link, key string, id fallback.Identity, a *after) {
	f := p.frame(peer.Deny, key, id)
	f.Flags = flagFull
	a.send(l, f)
}

// refused: the owner lets this node have no more keys. Its callers are told at once: waiting would not help.
func (p *partition) refused(l *link, e *entry, a *after) {
	e.forward = forward{}
	p.fail(e, nil, &WaitError{Key: e.key, Reason: fmt.Errorf("%w: this process holds or waits for as many keys of node %s as Options.Cluster.MaxPerNode "+
		"says there: raise it, or wait for fewer keys at a time", ErrUnavailable, processName(l.s.Node()))}, a)
	p.tidy(e)
}
