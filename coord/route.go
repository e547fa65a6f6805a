package coord

import (
	"maps"
	"slices"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// route returns the way to the node that should own a partition.
func (x *cluster) route(p uint32) lease.Route {
	if x == nil {
		return lease.Route{}
	}
	n, ok := x.ring.View().Owner(p)
	switch {
	case !ok || n.Gone:
		return lease.Route{}
	case n.Name == x.self.name:
		return lease.Route{Mine: x.takes()}
	}
	return lease.Route{Link: x.linkNode(n.Name).or()}
}

// outdated reports whether the ring has a dead node for a partition, which it is about to drop.
func (x *cluster) outdated(p uint32) bool {
	n, ok := x.ring.View().Owner(p)
	return ok && x.members.gone(n.Name)
}

// rerouted looks after waiters at the arbiter, which does not tell them that the partition has an
// owner now.
func (x *cluster) rerouted() {
	for i := range x.c.parts {
		p := &x.c.parts[i]
		var a after
		p.mu.Lock()
		p.Rerouted(&a.Effects)
		p.unlock(&a)
	}
}

// reached looks after waiters that had to wait because there was no stream to the node that has a
// session.
func (x *cluster) reached(session string) {
	for i := range x.c.parts {
		p := &x.c.parts[i]
		var a after
		p.mu.Lock()
		p.Reached(session, &a.Effects)
		p.unlock(&a)
	}
}

// linkTo returns the stream to the node that has a session, nil if there is none.
func (x *cluster) linkTo(session string) *link {
	if x == nil {
		return nil
	}
	if l, ok := x.streams.links.Load(session); ok {
		return l.(*link)
	}
	return nil
}

// linkNode returns the stream to a node, nil if there is none.
func (x *cluster) linkNode(name string) *link {
	if x == nil {
		return nil
	}
	s := x.net.Stream(name)
	if s == nil {
		return nil
	}
	l, _ := s.Data.(*link)
	return l
}

func (x *cluster) all() []*link {
	x.streams.mu.Lock()
	defer x.streams.mu.Unlock()
	return slices.Collect(maps.Keys(x.streams.up))
}

// takes reports whether this node takes partitions, wherever a ring places them: other nodes may
// not have heard that it is drained. It is asked when the partition is Acquiring already, and Drain
// counts such ones. So none is acquired once Drain has found none.
func (x *cluster) takes() bool {
	return x == nil || !x.self.leaving.Load() && !x.self.draining.Load()
}
