package coord_test

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
)

// plainArbiter is an arbiter whose namespaces keep no results.
type plainArbiter struct {
	fallback.Arbiter
	fallback.Describer
}

func (a plainArbiter) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	ns, err := a.Arbiter.Attach(ctx, s)
	if err != nil {
		return nil, err
	}
	return struct{ fallback.Namespace }{ns}, nil
}

// On an arbiter that keeps no results an observer asks the nodes as well. For as long as it runs,
// it is neither a node nor a process that locks.
func TestObserve_WithoutResults(t *testing.T) {
	t.Parallel()
	m := fallback.NewMemory()
	a := plainArbiter{m, m}
	o := unhurried()
	o.Name = "anna"
	anna := join(t, a, o)
	settle(t, 61, anna)
	l := lock(t, anna, "k")
	op := observer(t, a)
	held, err := op.Held(t.Context(), "anna")
	if err != nil || len(held.Keys) != 1 || held.Keys[0].Key != "k" {
		t.Errorf("Held: %+v, %v", held, err)
	}
	if err := op.Break(t.Context(), "k", l.Fence(), "it is stuck"); err != nil {
		t.Error(err)
	}
	broken(t, l, l.Unlock(), "it is stuck (op)")
	for _, c := range []*coord.Coordinator{anna, op} {
		if all, err := c.Processes(t.Context()); err != nil || len(all) != 1 || all[0].Name != "anna" {
			t.Errorf("Processes: %+v, %v", all, err)
		}
		if n := c.Nodes(); len(n) != 1 {
			t.Errorf("Nodes: %+v", n)
		}
	}
	if err := op.Close(context.Background()); err != nil {
		t.Error(err)
	}
	ns, err := m.Attach(t.Context(), fallback.Settings{Namespace: anna.Namespace(), Partitions: 61, Grace: o.Grace})
	if err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the observer is not listed any more", func() bool {
		all, err := ns.List(t.Context())
		return err == nil && len(all.Sessions) == 1
	})
}
