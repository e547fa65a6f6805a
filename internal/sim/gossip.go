package sim

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/holdfast-go/holdfast/internal/gossiphost"
)

// missedAfter is for how long a node has to be silent until others drop it from their membership.
const missedAfter = 5 * time.Second

// gossip is one node's, as memberlist behaves: news spread within some gossip intervals, an unheard
// node is missed after a while, and never asked again by itself.
type gossip struct {
	h      *host
	name   string
	meta   func() []byte
	events memberlist.EventDelegate

	mu     sync.Mutex // protects the fields below, and orders the events
	known  map[*gossip]*peerNews
	over   bool
	number uint64 // of the last statement about itself
	last   []byte // which was this
}

// peerNews is a node's knowledge of another one.
type peerNews struct {
	number uint64 // of the statement that was heard last
	silent time.Time
}

// Gossip implements [gossiphost.Host].
func (h *host) Gossip(name string, meta func() []byte, events memberlist.EventDelegate) (gossiphost.Gossip, string, error) {
	g := &gossip{h: h, name: name, meta: meta, events: events, known: make(map[*gossip]*peerNews), number: 1, last: meta()}
	h.net.mu.Lock()
	h.gossip = g
	h.net.mu.Unlock()
	g.hear(g, g.last, 1)
	return g, h.addr, nil
}

func (g *gossip) node(meta []byte) *memberlist.Node {
	at := netip.MustParseAddrPort(g.h.addr)
	return &memberlist.Node{Name: g.name, Addr: net.IP(at.Addr().AsSlice()), Port: at.Port(), Meta: meta}
}

// hear takes another node's statement about itself.
func (g *gossip) hear(of *gossip, meta []byte, number uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return
	}
	switch k := g.known[of]; {
	case k == nil:
		g.known[of] = &peerNews{number: number}
		g.events.NotifyJoin(of.node(meta))
	case k.number < number:
		k.number = number
		g.events.NotifyUpdate(of.node(meta))
	}
}

func (g *gossip) forget(of *gossip) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known[of] != nil && !g.over {
		delete(g.known, of)
		g.events.NotifyLeave(of.node(nil))
	}
}

// others returns the nodes that g knows, without itself.
func (g *gossip) others() (list []*gossip) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for o := range g.known {
		if o != g {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b *gossip) int { return strings.Compare(a.h.addr, b.h.addr) })
	return list
}

func (g *gossip) says() ([]byte, uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last, g.number
}

// later does f once the news have spread.
func (g *gossip) later(f func()) { time.AfterFunc(g.h.net.spread(), f) }

// meets reports whether two nodes hear each other, directly or through a third one that probes.
func (n *network) meets(a, b *host) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	both := func(a, b *host) bool {
		return n.passes(a, b) && n.passes(b, a) && a.gossip != nil && b.gossip != nil && a.left() == 0 && b.left() == 0
	}
	if both(a, b) {
		return true
	}
	for _, c := range n.hosts {
		if c != a && c != b && both(a, c) && both(c, b) {
			return true
		}
	}
	return false
}

// Join implements [gossiphost.Gossip].
func (g *gossip) Join(addrs []string) (int, error) {
	joined := 0
	for _, a := range addrs {
		n := g.h.net
		n.mu.Lock()
		var t *gossip
		if there := n.hosts[a]; there != nil && n.passes(g.h, there) && n.passes(there, g.h) {
			t = there.gossip
		}
		n.mu.Unlock()
		time.Sleep(n.late())
		if t == nil {
			time.Sleep(time.Second)
			continue
		}
		joined++
		ours, theirs := append(g.others(), g), append(t.others(), t)
		for _, o := range ours {
			for _, t := range theirs {
				if o != t && n.meets(o.h, t.h) {
					meta, number := t.says()
					o.hear(t, meta, number)
					meta, number = o.says()
					t.hear(o, meta, number)
				}
			}
		}
	}
	if joined == 0 {
		return 0, errors.Join(errUnreachable)
	}
	return joined, nil
}

// UpdateNode implements [gossiphost.Gossip].
func (g *gossip) UpdateNode(time.Duration) error {
	meta := g.meta()
	g.mu.Lock()
	g.number++
	g.last = meta
	number := g.number
	g.mu.Unlock()
	g.hear(g, meta, number)
	for _, o := range g.others() {
		g.later(func() {
			if g.h.net.meets(g.h, o.h) {
				o.hear(g, meta, number)
			}
		})
	}
	return nil
}

// Leave implements [gossiphost.Gossip].
func (g *gossip) Leave(time.Duration) error {
	for _, o := range g.others() {
		if g.h.net.meets(g.h, o.h) {
			g.later(func() { o.forget(g) })
		}
	}
	time.Sleep(g.h.net.spread())
	return nil
}

// Shutdown implements [gossiphost.Gossip].
func (g *gossip) Shutdown() error {
	g.mu.Lock()
	g.over = true
	g.mu.Unlock()
	g.h.net.mu.Lock()
	g.h.gossip = nil
	g.h.net.mu.Unlock()
	return nil
}

// probe is one round of all nodes' gossip: a node that has not been heard for missedAfter is
// dropped, and missed statements are told again. To be called every second or some.
func (n *network) probe(now time.Time) {
	n.mu.Lock()
	var all []*gossip
	for _, h := range n.hosts {
		if h.gossip != nil && !h.dead {
			all = append(all, h.gossip)
		}
	}
	n.mu.Unlock()
	for _, g := range all {
		for _, o := range g.others() {
			if n.meets(g.h, o.h) {
				meta, number := o.says()
				g.hear(o, meta, number)
				g.heard(o, time.Time{})
			} else if g.heard(o, now) > missedAfter {
				g.forget(o)
			}
		}
	}
}

// heard notes since when a node has been silent, zero if it is not, and returns for how long.
func (g *gossip) heard(of *gossip, now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.known[of]
	switch {
	case k == nil:
		return 0
	case now.IsZero() || k.silent.IsZero():
		k.silent = now
		return 0
	}
	return now.Sub(k.silent)
}
