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

// slowLeaver is a membership that takes longer to say that its node leaves than a session lasts, as
// on a busy machine.
type slowLeaver struct{ ring.Membership }

func (m slowLeaver) Leave(ctx context.Context) error {
	time.Sleep(3 * time.Second)
	return m.Membership.Leave(ctx)
}

// The remaining releases are sent while the session is in force, however long the node takes to say
// that it leaves.
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
	c = enter(t, &unlocker{m, func([]fallback.Release) error {
		if c.life.ctx.Err() == nil {
			return errors.New("not before the process stops")
		}
		return nil
	}}, o)
	await.Until(t, "it owns all", func() bool { return c.Stats().Owned == 61 })
	id := fallback.Identity{Session: c.sessions.id(), Request: 1}
	c.debts.releases.add(c.parts[0].ReleaseOf("left", id))
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
