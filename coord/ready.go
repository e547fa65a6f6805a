package coord

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/ring"
)

// Settled waits until the cluster has come to rest, as far as this node can see: it has found at
// least so many nodes, itself among them (0: however many there are), and the ring gives each of
// them a share; it owns all the partitions that it should, and no others; and it has streams to the
// nodes that own the rest. From then on keys are locked in memory, here or at another node. No
// program has to wait for that, as until then they are locked at the arbiter; it is for tests and
// measurements, and for a server that is to be told of only when it is fast. A settled cluster may
// be unsettled a moment later.
//
// Without a cluster it returns at once. Its errors are [ErrClosed]; [ErrObserver]; and ctx's, which
// names the missing parts as well: errors.As finds an [UnreachableError] if a member is not
// reachable at the address that it advertises.
func (c *Coordinator) Settled(ctx context.Context, nodes int) error {
	select {
	case <-c.life.closing:
		return ErrClosed
	default:
	}
	if c.opts.Observe { // it owns nothing, and is not told how many nodes there are to be
		return fmt.Errorf("coord: Settled: %w", ErrObserver)
	}
	if c.cluster == nil {
		return nil
	}
	w := &settler{nodes: nodes, done: make(chan struct{})}
	s := &c.cluster.begin.settling
	s.add(w)
	defer s.remove(w)
	c.cluster.poke()
	select {
	case <-w.done:
		return nil
	case <-c.life.closing:
		return ErrClosed
	case <-ctx.Done():
		return c.cluster.late(ended(ctx), nodes)
	}
}

// settling is the set of callers that wait for the cluster to come to rest. The balance looks after
// them at each change.
type settling struct {
	mu  mutex[settlingRank] // protects all
	all map[*settler]bool
}

type settler struct {
	nodes int
	done  chan struct{} // closed when it is settled
}

func (s *settling) add(w *settler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[*settler]bool)
	}
	s.all[w] = true
}

func (s *settling) remove(w *settler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, w)
}

// tellSettled ends the waits that are fulfilled. It reports whether any are left.
func (x *cluster) tellSettled() (left bool) {
	s := &x.begin.settling
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		return false
	}
	nodes, rest := x.atRest()
	for w := range s.all {
		if rest && nodes >= w.nodes {
			close(w.done)
			delete(s.all, w)
		}
	}
	return len(s.all) > 0
}

// atRest reports whether this node has its due partitions and streams, and returns how many nodes
// share the partitions.
func (x *cluster) atRest() (nodes int, rest bool) {
	v := x.ring.View()
	if !v.Stable() || x.self.leaving.Load() || x.c.sessions.current() == nil {
		return 0, false
	}
	self := false
	for _, n := range v.Nodes() {
		if n.Gone {
			return 0, false
		}
		if n.State == ring.Active && !n.Incompatible && !n.Unlisted {
			nodes++
			self = self || n.Name == x.self.name
		}
	}
	for i := range x.c.parts {
		p := &x.c.parts[i]
		n, ok := v.Owner(p.Number())
		if !ok || n.Name != x.self.name && x.route(p.Number()).Link == nil {
			return 0, false
		}
		p.mu.Lock()
		owned := p.Phase() == lease.Owned
		p.mu.Unlock()
		if owned != (n.Name == x.self.name) {
			return 0, false
		}
	}
	return nodes, self
}
