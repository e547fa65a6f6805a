package sim

import (
	"context"
	"slices"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/model/spec"
)

// each makes a call about many partitions. Some of them may be out of reach.
func each[Q, A any](c *client, ctx context.Context, all []Q, partition func(Q) uint32, failed func(error) A, do func(context.Context, []Q) []A) []A {
	if !slices.ContainsFunc(all, func(q Q) bool { return c.away(partition(q)) }) {
		return nearby(c, ctx, slices.Clone(all), failed, do)
	}
	answers := slices.Repeat([]A{failed(errLost)}, len(all))
	var near []Q
	var where []int
	for i, q := range all {
		if !c.away(partition(q)) {
			near, where = append(near, q), append(where, i)
		}
	}
	for i, a := range nearby(c, ctx, near, failed, do) {
		answers[where[i]] = a
	}
	if len(near) < len(all) {
		_ = c.nothing(ctx)
	}
	return answers
}

// nearby is each where all partitions can be reached.
func nearby[Q, A any](c *client, ctx context.Context, all []Q, failed func(error) A, do func(context.Context, []Q) []A) []A {
	got, err := through(c, ctx, func(ctx context.Context) ([]A, error) { return do(ctx, all), nil })
	switch {
	case err != nil:
		return slices.Repeat([]A{failed(err)}, len(all))
	case len(got) == 0: // of releases: all were executed
		return make([]A, len(all))
	}
	return got
}

func (n *space) Restore(ctx context.Context, claims []fallback.Claims) []fallback.Restored {
	for _, c := range claims {
		for _, x := range c.Holds {
			n.callsAbout(c.Partition, spec.Adopted, x.Key, x.Row)
		}
	}
	return each(n.c, ctx, claims, func(c fallback.Claims) uint32 { return c.Partition },
		func(err error) fallback.Restored { return fallback.Restored{Err: err} },
		func(ctx context.Context, c []fallback.Claims) []fallback.Restored {
			return parted(n, c, func(c fallback.Claims) uint32 { return c.Partition },
				func(at fallback.Namespace, c []fallback.Claims) []fallback.Restored { return at.Restore(ctx, c) })
		})
}

func (n *space) ReclaimOwners(ctx context.Context, me string, owned []fallback.Ownership) []fallback.Reclaimed {
	for _, x := range owned {
		n.calls(x.Partition, spec.Event{Kind: spec.Reclaimed, Session: me, Epoch: x.Epoch})
	}
	return each(n.c, ctx, owned, func(x fallback.Ownership) uint32 { return x.Partition },
		func(err error) fallback.Reclaimed { return fallback.Reclaimed{Err: err} },
		func(ctx context.Context, x []fallback.Ownership) []fallback.Reclaimed {
			return parted(n, x, func(x fallback.Ownership) uint32 { return x.Partition },
				func(at fallback.Namespace, x []fallback.Ownership) []fallback.Reclaimed {
					return at.ReclaimOwners(ctx, me, x)
				})
		})
}

func (n *space) Verify(ctx context.Context, r []fallback.Read) []fallback.State {
	return each(n.c, ctx, r, func(r fallback.Read) uint32 { return r.Partition },
		func(err error) fallback.State { return fallback.State{Err: err} },
		func(ctx context.Context, r []fallback.Read) []fallback.State {
			return parted(n, r, func(r fallback.Read) uint32 { return r.Partition },
				func(at fallback.Namespace, r []fallback.Read) []fallback.State { return at.Verify(ctx, r) })
		})
}
