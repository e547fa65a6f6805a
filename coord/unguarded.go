package coord

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/ring"
)

// unguarded is since when this node has been guarded by none though there are others.
type unguarded struct {
	since time.Time // zero: it is not so
	told  bool
}

// look logs once that no node guards this one, when it has been so for long: as a rule the others
// have another Cluster.Takeover.
func (u *unguarded) look(x *cluster) {
	s := x.c.sessions.current()
	if s == nil {
		u.since = time.Time{} // the next one has its guardians to find first
		return
	}
	var others []time.Duration
	if s.guarded != nil && s.guarded.guardians() == 0 {
		others = x.mates()
	}
	if len(others) == 0 {
		*u = unguarded{}
		return
	}
	now := x.c.now()
	if u.since.IsZero() {
		u.since = now
	}
	if u.told || now.Sub(u.since) < x.c.opts.toleratedOut() {
		return
	}
	u.told = true
	slices.Sort(others)
	x.c.opts.Logger.Warn("holdfast: no node guards this one", "takeover", x.c.opts.takeover(), "nodes", len(others), "theirs", slices.Compact(others))
}

// mates returns the Cluster.Takeover of each other node that has a stream to this one and stays.
func (x *cluster) mates() (takeovers []time.Duration) {
	v := x.ring.View()
	for _, l := range x.all() {
		k, listed := x.members.card(l.s.Node())
		if n, ok := v.Node(l.s.Node()); listed && ok && !l.Down() && n.State == ring.Active {
			takeovers = append(takeovers, k.Takeover)
		}
	}
	return takeovers
}
