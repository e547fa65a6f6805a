package ring

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// A View is the nodes and the owners that the partitions should have, as one node saw them at one
// moment. It is immutable. Its methods take no lock, do not block and, where they look something
// up, do not allocate. They may be called from everywhere.
//
// Its data on the nodes (state, session, addresses) is as new as gossip; the placed nodes change
// only when the membership has been quiet for a while. So a View may have a newer session of an
// owner than the one before it and the same placement.
type View struct {
	nodes     []Node // sorted by name; those that are Gone too
	live      []Node // without them; the same array if none is
	placement *Placement
	placed    []*Node // by member of the placement
	settled   time.Time
	stable    bool
	sessions  map[string]*Node

	replaced  chan struct{} // closed when there is a newer View
	resettled chan struct{} // closed when there is a newer placement; Views with the same placement share it
}

// Views holds the current [View] of a membership; Publish replaces it. Its methods are safe for
// concurrent use, but only one goroutine may call Publish at a time.
type Views struct{ now atomic.Pointer[View] }

// NewViews returns Views. The first one places no node: a node that has not yet looked for others
// must not believe that it should own everything. It fails if there are not 1 to 65,536 partitions.
func NewViews(partitions int) (*Views, error) {
	first, err := firstView(partitions)
	if err != nil {
		return nil, err
	}
	vs := new(Views)
	vs.now.Store(first)
	return vs, nil
}

// Now returns the current View; never nil.
func (vs *Views) Now() *View { return vs.now.Load() }

// Publish replaces the current View, unless the new one would be equal to it. live are the nodes
// that are there, sorted by name, p is the placement, and settled the time since when p counts.
// Publish keeps live.
func (vs *Views) Publish(live []Node, p *Placement, settled time.Time) {
	old := vs.Now()
	if p == old.placement && slices.Equal(live, old.live) {
		return
	}
	vs.now.Store(old.next(live, p, settled))
	// Only now, so that a goroutine that is woken finds the new one.
	close(old.replaced)
	if p != old.placement {
		close(old.resettled)
	}
}

// firstView places no node.
func firstView(partitions int) (*View, error) {
	p, err := Place(nil, partitions)
	if err != nil {
		return nil, err
	}
	return &View{placement: p, replaced: make(chan struct{}), resettled: make(chan struct{})}, nil
}

// next makes the View that follows v. The live nodes are sorted by name, and next keeps them.
func (v *View) next(live []Node, p *Placement, settled time.Time) *View {
	w := &View{
		nodes: live, live: live, placement: p, settled: settled,
		placed: make([]*Node, len(p.members)), sessions: make(map[string]*Node, len(live)),
		replaced: make(chan struct{}), resettled: v.resettled,
		stable: !settled.IsZero() && slices.Equal(Placeable(live), p.members),
	}
	if p != v.placement {
		w.resettled = make(chan struct{})
	}
	for _, name := range p.members {
		if _, ok := search(live, name); ok {
			continue
		}
		// Settled members are live at that moment, so one that no longer is was in the View before.
		gone := Node{Name: name, Gone: true}
		if i, ok := search(v.nodes, name); ok {
			gone = v.nodes[i]
			gone.Gone = true
		}
		if len(w.nodes) == len(live) {
			w.nodes = slices.Clone(live)
		}
		i, _ := search(w.nodes, name)
		w.nodes = slices.Insert(w.nodes, i, gone)
	}
	for i, name := range p.members {
		j, _ := search(w.nodes, name)
		w.placed[i] = &w.nodes[j]
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.Session == "" || n.Unlisted {
			continue
		}
		// A session has one node. Should two claim it, the one that is there is believed, then the
		// first.
		if other, ok := w.sessions[n.Session]; !ok || other.Gone && !n.Gone {
			w.sessions[n.Session] = n
		}
	}
	return w
}

// Placeable returns the names of the nodes that want to be placed and can be.
func Placeable(nodes []Node) []string {
	var names []string
	for _, n := range nodes {
		if n.State == Active && !n.Incompatible && !n.Unlisted {
			names = append(names, n.Name)
		}
	}
	return names
}

func search(nodes []Node, name string) (int, bool) {
	return slices.BinarySearchFunc(nodes, name, func(n Node, name string) int { return strings.Compare(n.Name, name) })
}

// Owner returns the node that should own the partition; false if there is none. The node may be
// Gone or Leaving.
func (v *View) Owner(partition uint32) (*Node, bool) {
	if int64(partition) >= int64(len(v.placement.owners)) {
		return nil, false
	}
	return v.placed[v.placement.owners[partition]], true
}

// Node returns the node with that name, if it is there or placed.
func (v *View) Node(name string) (*Node, bool) {
	i, ok := search(v.nodes, name)
	if !ok {
		return nil, false
	}
	return &v.nodes[i], true
}

// BySession returns the node that says it has this session. No node has the empty one.
func (v *View) BySession(session string) (*Node, bool) {
	n, ok := v.sessions[session]
	return n, ok
}

// Nodes returns all nodes, sorted by name: those that are there, and those that are Gone and still
// placed. The caller must not change it.
func (v *View) Nodes() []Node { return v.nodes }

// Live returns the nodes that are there, sorted by name, placed or not. The caller must not change
// it.
func (v *View) Live() []Node { return v.live }

// Placement returns the owner that each partition should have. It is that of the compatible nodes
// that were Active at Settled.
func (v *View) Placement() *Placement { return v.placement }

// Fingerprint returns the placement's.
func (v *View) Fingerprint() uint64 { return v.placement.fingerprint }

// Settled returns when the placement became valid here; the zero time as long as the node has not
// looked for others.
func (v *View) Settled() time.Time { return v.settled }

// Stable reports whether the placement is that of the nodes that are Active now. If not, another
// one follows within MaxDebounce, or the change is undone before: no time to hand partitions over.
func (v *View) Stable() bool { return v.stable }

// Replaced returns a channel that is closed as soon as there is a newer View, whatever is new in
// it. It stays open when the membership ends.
func (v *View) Replaced() <-chan struct{} { return v.replaced }

// Resettled is like Replaced, but for another placement.
func (v *View) Resettled() <-chan struct{} { return v.resettled }
