package coord

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
	"github.com/holdfast-go/holdfast/ring"
)

// slowLeaver is a membership that takes longer to say that its node leaves than a session lasts, as on a busy machine.
type slowLeaver struct{ ring.Membership }

func (m slowLeaver) Leave(ctx context.Context) error {
	time.Sleep(3 * time.Second)
	return m.Membership.Leave(ctx)
}

// late is an arbiter that takes no release before the process stops.
type late struct {
	fallback.Arbiter
	stopping func() bool
}

type lateSpace struct {
	fallback.Namespace
	a *late
}

func (a *late) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := a.Arbiter.Attach(ctx, s)
	return &lateSpace{n, a}, err
}

func (n *lateSpace) Unlock(ctx context.Context, releases []fallback.Release) []error {
	if !n.a.stopping() {
		errs := make([]error, len(releases))
		for i := range errs {
			errs[i] = errors.New("not yet")
		}
		return errs
	}
	return n.Namespace.Unlock(ctx, releases)
}

// What is left is given back while the session is in force, however long it takes to say that the node leaves.
func TestCloseGivesBackBeforeItSaysThatTheNodeLeaves(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	var c *Coordinator
	m := fallback.NewMemory()
	o := small()
	o.SessionTTL, o.Grace, o.Cluster.Keepalive = 3*time.Second, 5*time.Second, 200*time.Millisecond
	o.Cluster.Membership = func(x ring.Options) (ring.Membership, error) {
		r, err := gossip.Start(x)
		return slowLeaver{r}, err
	}
	c = enter(t, &late{m, func() bool { return c.life.ctx.Err() != nil }}, o)
	await.Until(t, "it owns all", func() bool { return c.Stats().Owned == 61 })
	id := fallback.Identity{Session: c.sessions.id(), Request: 1}
	c.debts.releases.add(c.parts[0].ReleaseOf("left", id))
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
