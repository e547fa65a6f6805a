package coord

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/ring"
)

// quota is how much of Cluster.MaxPerNode the node at the other end of a link uses.
type quota struct {
	used    atomic.Int64 // keys that it holds or waits for, since the last count; see count
	refused atomic.Int64 // requests, since that was logged
	logged  time.Time    // only of keepDoubting
}

// Full implements [lease.Link].
func (l *link) Full() bool {
	most := l.x.c.opts.Cluster.MaxPerNode
	return most >= 0 && l.used.Load() >= int64(most)
}

// Refuse implements [lease.Link].
func (l *link) Refuse() { l.refused.Add(1) }

// Use implements [lease.Link].
func (l *link) Use(n int) { l.used.Add(int64(n)) }

// usage is how many keys of this node's partitions each other node holds or waits for.
type usage map[*link]int64

// countDue reports whether keys are to be counted again, when the last count was so long ago. A
// count looks at each key, and errors since the last one matter only to a node near its limit.
func (x *cluster) countDue(since time.Duration) bool {
	o := &x.c.opts
	if since < o.RenewEvery {
		return false
	}
	most := int64(o.Cluster.MaxPerNode)
	return since >= 4*o.RenewEvery || most > 0 && slices.ContainsFunc(x.all(), func(l *link) bool { return l.used.Load() >= most/2 })
}

// countKeys counts the keys that other nodes use.
func (x *cluster) countKeys(now time.Time) {
	used := make(usage)
	for i := range x.c.parts {
		p := &x.c.parts[i]
		p.mu.Lock()
		p.Usage(func(l lease.Link) { used[l.(*link)]++ })
		p.mu.Unlock()
	}
	x.settleQuotas(used, now)
}

// refusalsEvery is how often refusals are logged, for each node.
const refusalsEvery = time.Minute

// settleQuotas replaces the running counts of requests and releases by the keys that were counted:
// a hold ends in other ways as well.
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

// errFull is the reason for callers in a process that may have no more keys of a node. They are
// told at once: waiting would not help.
func errFull(node string) error {
	return fmt.Errorf("%w: this process holds or waits for as many keys of node %s as Options.Cluster.MaxPerNode "+
		"says there: raise it, or wait for fewer keys at a time", ErrUnavailable, ring.Process(node))
}
