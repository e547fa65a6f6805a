package coord

import (
	"maps"
	"slices"
)

// route is where a local caller has to go for the keys of a partition.
type route struct {
	mine bool  // this node should own it
	link *link // to the node that should; nil with mine false: the arbiter
}

// known tells whether there is a node to ask, besides the arbiter.
func (r route) known() bool { return r.mine || r.link != nil }

func (x *cluster) route(p uint32) route {
	if x == nil {
		return route{}
	}
	n, ok := x.ring.View().Owner(p)
	switch {
	case !ok || n.Gone:
		return route{}
	case n.Name == x.self.name:
		return route{mine: !x.self.leaving.Load()}
	}
	s := x.net.Stream(n.Name)
	if s == nil {
		return route{}
	}
	l, _ := s.Data.(*link)
	return route{link: l}
}

// rerouted looks after waiters at the arbiter, which does not tell them that the partition has an owner now.
func (x *cluster) rerouted() {
	for i := range x.c.parts {
		p := &x.c.parts[i]
		var a after
		p.mu.Lock()
		p.Rerouted(&a.Effects)
		p.unlock(&a)
	}
}

// reached looks after waiters that had to wait because there was no stream to the node that has a session.
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
