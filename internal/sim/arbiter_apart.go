package sim

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// ofOther reports whether a partition is on the server apart, as in a Redis Cluster.
func ofOther(p uint32) bool { return p%2 == 1 }

// failoverPart makes the server of some partitions another one, with their data of the snapshot.
// The one before goes on, for those clients that are told to believe in it.
func (s *server) failoverPart(to *fallback.Snapshot) {
	s.swap.Lock()
	defer s.swap.Unlock()
	s.apart = s.Memory.Fork()
	s.Memory.RestorePartitions(to, ofOther)
	s.another()
	s.parted = time.Now()
}

// failoverTable makes the server of the sessions, and of the partitions that are not apart, another
// one. The one before goes on, for those clients that are told to believe in it.
func (s *server) failoverTable(to *fallback.Snapshot) {
	s.swap.Lock()
	defer s.swap.Unlock()
	s.deposed = s.Memory.Fork()
	s.Memory.RestoreSessions(to, func(p uint32) bool { return !ofOther(p) })
	s.another()
	s.tabled[0], s.tabled[1] = time.Now(), s.tabled[0]
}

// fail makes all servers others, with the data of the snapshot. Each fails over by itself, if there
// are two.
func (w *world) fail(to *fallback.Snapshot) {
	if !w.cfg.Spread {
		w.s.failover(to, false)
		return
	}
	w.s.failoverTable(to)
	w.s.failoverPart(to)
}

// Spread implements [fallback.Spreader]. In every other run a node takes the partitions for those
// of one server.
func (n *space) Spread() bool {
	cfg := n.c.w.cfg
	switch {
	case cfg.Observed:
		return false
	case cfg.Opened:
		return cfg.Spread
	}
	return cfg.script != nil || cfg.Seed%2 == 0
}

// believes is the servers before that a node takes for the present ones.
type believes struct{ deposed, table, apart bool }

func (n *space) believes() believes {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	w := &n.c.weather
	return believes{w.deposed, w.table, w.apart && !w.deposed && n.c.s.books == nil}
}

// elsewhere reports whether a partition's calls go to another server than the sessions' calls.
func (b believes) elsewhere(p uint32) bool { return ofOther(p) && (b.apart || b.table && !b.deposed) }

// about is at for a partition's calls. old says that it is a server before.
func (n *space) about(p uint32) (at fallback.Namespace, old bool) {
	return n.believing(n.believes(), p)
}

func (n *space) believing(b believes, p uint32) (at fallback.Namespace, old bool) {
	switch {
	case b.elsewhere(p) && b.apart:
		return n.of(n.c.s.apart), true
	case b.elsewhere(p) || !b.deposed && !b.table:
		return n.Namespace, false
	case n.c.s.books != nil:
		return n.Namespace, true
	}
	return n.of(n.c.s.deposed), true
}

// parted makes a call about many partitions, by the servers that the node believes in.
func parted[Q, A any](n *space, all []Q, partition func(Q) uint32, do func(fallback.Namespace, []Q) []A) []A {
	if len(all) == 0 {
		return nil
	}
	b := n.believes()
	here := func(these []Q) []A {
		at, _ := n.believing(b, partition(these[0]))
		return do(at, these)
	}
	answers := make([]A, len(all))
	first := b.elsewhere(partition(all[0]))
	if !slices.ContainsFunc(all, func(q Q) bool { return b.elsewhere(partition(q)) != first }) {
		copy(answers, here(all))
		return answers
	}
	for _, elsewhere := range []bool{false, true} {
		var these []Q
		var where []int
		for i, q := range all {
			if b.elsewhere(partition(q)) == elsewhere {
				these, where = append(these, q), append(where, i)
			}
		}
		if len(these) == 0 {
			continue
		}
		for i, a := range here(these) { // none, of releases: all were executed
			answers[where[i]] = a
		}
	}
	return answers
}

// Graces implements [fallback.Rounder].
func (n *space) Graces(ctx context.Context, p []uint32) []fallback.NamedGrace {
	return each(n.c, ctx, p, func(p uint32) uint32 { return p },
		func(err error) fallback.NamedGrace { return fallback.NamedGrace{Err: err} },
		func(ctx context.Context, p []uint32) []fallback.NamedGrace {
			return parted(n, p, func(p uint32) uint32 { return p },
				func(at fallback.Namespace, p []uint32) []fallback.NamedGrace {
					return at.(fallback.Rounder).Graces(ctx, p)
				})
		})
}

// EndGraces implements [fallback.Rounder].
func (n *space) EndGraces(ctx context.Context, g []fallback.NamedGrace) []fallback.EndedGrace {
	return each(n.c, ctx, g, func(g fallback.NamedGrace) uint32 { return g.Partition },
		func(err error) fallback.EndedGrace { return fallback.EndedGrace{Err: err} },
		func(ctx context.Context, g []fallback.NamedGrace) []fallback.EndedGrace {
			return parted(n, g, func(g fallback.NamedGrace) uint32 { return g.Partition },
				func(at fallback.Namespace, g []fallback.NamedGrace) []fallback.EndedGrace { return n.ended(ctx, at, g) })
		})
}

// ended counts the Graces that ended early.
func (n *space) ended(ctx context.Context, at fallback.Namespace, all []fallback.NamedGrace) []fallback.EndedGrace {
	answers := at.(fallback.Rounder).EndGraces(ctx, all)
	for _, a := range answers {
		if a.Ended {
			n.c.w.ended.Add(1)
		}
	}
	return answers
}

// Openings implements [fallback.Rounder].
func (n *space) Openings() bool { return n.c.w.cfg.Opened && !n.c.w.cfg.Observed }

// TellRound implements [fallback.Rounder].
func (n *space) TellRound(ctx context.Context) error {
	return n.one(ctx, func(ctx context.Context) error { return n.at().(fallback.Rounder).TellRound(ctx) })
}
