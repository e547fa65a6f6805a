package coord

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// A node's context ends when the last of its sessions is said to be dead, and no sooner.
func TestNodeContext(t *testing.T) {
	t.Parallel()
	for name, takeover := range map[string]time.Duration{"with Takeover": 20 * time.Second, "without": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := small()
			o.Cluster.Takeover = takeover
			c := enter(t, fallback.NewMemory(), o)
			begins := func(session, node string) {
				t.Helper()
				register(t, c, session, card{Node: node})
				if _, err := c.members().ask(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			dies := func(session string) {
				t.Helper()
				if err := c.remote.ns.CloseSession(t.Context(), session); err != nil {
					t.Fatal(err)
				}
				c.cluster.died(session)
			}
			dead := func(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrNodeDead) }

			if ctx := c.NodeContext("other"); !dead(ctx) {
				t.Errorf("a node that is not listed: %v", ctx.Err())
			}
			begins("first", "other")
			begins("second", "other")
			ctx := c.NodeContext("other")
			if dies("second"); ctx.Err() != nil || c.NodeContext("other") != ctx {
				t.Errorf("one of two sessions is dead: %v", ctx.Err())
			}
			if dies("first"); !dead(ctx) || !dead(c.NodeContext("other")) {
				t.Errorf("both sessions are dead: %v", ctx.Err())
			}
			begins("third", "other")
			again := c.NodeContext("other")
			if again.Err() != nil || !dead(ctx) {
				t.Errorf("it has come again: %v", again.Err())
			}
			if dies("third"); !dead(again) {
				t.Errorf("it has died once more: %v", again.Err())
			}

			begins("fourth", "unasked")
			if dies("fourth"); !dead(c.NodeContext("unasked")) {
				t.Error("a node whose context was not asked for before")
			}
			begins("fifth", "leaver")
			ctx = c.NodeContext("leaver")
			c.members().leaves("leaver")
			if dies("fifth"); ctx.Err() != nil {
				t.Errorf("a node that leaves: %v", ctx.Err())
			}
			if ctx := c.NodeContext(c.cluster.self.name); ctx.Done() != nil {
				t.Error("the context of this node may end")
			}
		})
	}
	alone := enter(t, fallback.NewMemory(), nil)
	if ctx := alone.NodeContext("other"); !errors.Is(context.Cause(ctx), ErrNodeDead) {
		t.Errorf("without a cluster: %v", ctx.Err())
	}
}

// A node that the arbiter lists no more is dead, also if it did not answer when it was asked about
// the node's session. One that has left is not, however late its session ends.
func TestNodeContext_OfANodeThatIsListedNoMore(t *testing.T) {
	t.Parallel()
	c := enter(t, fallback.NewMemory(), small())
	m := c.members()
	ttl, now := c.opts.SessionTTL, c.now()
	all := map[string]string{"a": card{Node: "stands still"}.encode(), "b": card{Node: "leaver"}.encode()}
	list := func(all map[string]string, at time.Duration) (ended int) {
		m.mu.Lock()
		_, _, _, ends := m.list(all, now.Add(at))
		m.mu.Unlock()
		for _, end := range ends {
			end(ErrNodeDead)
		}
		return len(ends)
	}
	list(all, 0)
	stands, leaves := c.NodeContext("stands still"), c.NodeContext("leaver")
	m.leaves("leaver")
	list(all, 2*ttl)
	if n := list(nil, 4*ttl); n != 0 || stands.Err() != nil {
		t.Fatalf("%d nodes are dead that are missed for the first time", n)
	}
	if n := list(nil, 6*ttl); n != 1 || !errors.Is(context.Cause(stands), ErrNodeDead) || leaves.Err() != nil {
		t.Errorf("%d nodes are dead: %v, and that of the leaver: %v", n, context.Cause(stands), leaves.Err())
	}
}
