package middleware

import (
	"context"
	"maps"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/coord"
)

// targets are the nodes that requests are forwarded to, and the requests on their way.
type targets struct {
	c   *coord.Coordinator
	all atomic.Pointer[map[string]*target] // by ID; replaced as a whole
	mu  sync.Mutex                         // held while all is replaced
}

// target is a node that requests are forwarded to.
type target struct {
	id, mark string
	base     atomic.Pointer[serviceAt] // the one parsed last; nil: none

	mu    sync.Mutex // protects the fields below, and the links of hops
	dead  bool
	first *hop // on their way
}

// serviceAt is a Cluster.Service, and the URL that it is.
type serviceAt struct {
	text string
	url  *url.URL
}

// of returns a node, nil if it is dead.
func (x *targets) of(id string) *target {
	if all := x.all.Load(); all != nil {
		if t := (*all)[id]; t != nil {
			return t
		}
	}
	return x.add(id)
}

func (x *targets) add(id string) *target {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := x.copied()
	if t := all[id]; t != nil {
		return t
	}
	life := x.c.NodeContext(id)
	if life.Err() != nil {
		return nil
	}
	here := make(map[string]bool)
	for _, n := range x.c.Nodes() {
		here[n.ID] = true
	}
	maps.DeleteFunc(all, func(id string, _ *target) bool { return !here[id] }) // IDs are never used again
	t := &target{id: id, mark: markOf(id)}
	all[id] = t
	x.all.Store(&all)
	context.AfterFunc(life, func() {
		x.remove(t)
		t.die()
	})
	return t
}

// copied returns a copy of all. x.mu is held.
func (x *targets) copied() map[string]*target {
	all := make(map[string]*target)
	if old := x.all.Load(); old != nil {
		maps.Copy(all, *old)
	}
	return all
}

// remove drops a node that is dead: if it turns out to live it has another session, and is found
// dead once more.
func (x *targets) remove(t *target) {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := x.copied()
	if all[t.id] == t {
		delete(all, t.id)
		x.all.Store(&all)
	}
}

// die ends the requests that are on their way to the node, and lets no other begin.
func (t *target) die() {
	t.mu.Lock()
	t.dead = true
	var all []*hop
	for h := t.first; h != nil; h = h.next {
		all = append(all, h)
	}
	t.mu.Unlock()
	for _, h := range all {
		h.end(coord.ErrNodeDead)
	}
}

// begin makes a request one that is on its way, until leave. It reports false if the node is dead.
func (t *target) begin(h *hop) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead {
		return false
	}
	h.to, h.next = t, t.first
	if h.next != nil {
		h.next.prev = h
	}
	t.first = h
	return true
}

// leave undoes begin.
func (h *hop) leave() {
	t := h.to
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.prev != nil {
		h.prev.next = h.next
	} else {
		t.first = h.next
	}
	if h.next != nil {
		h.next.prev = h.prev
	}
	h.prev, h.next = nil, nil
}

// service returns the URL of the node's Cluster.Service.
func (t *target) service(n coord.NodeInfo) (*url.URL, error) {
	if last := t.base.Load(); last != nil && last.text == n.Service {
		return last.url, nil
	}
	u, err := serviceURL(n)
	if err == nil {
		err = checkURL(u)
	}
	if err != nil {
		return nil, err
	}
	t.base.Store(&serviceAt{n.Service, u})
	return u, nil
}
