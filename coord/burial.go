package coord

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/internal/guardians"
	"github.com/holdfast-go/holdfast/peer"
)

// bury asks the arbiter to bury a session that enough of its guardians say is dead (G6). What it refuses is asked for again.
func (g *guarded) bury(b guardians.Burial) {
	c := g.c
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.burying, b.Ward)
	}()
	ctx, cancel := context.WithTimeout(c.life.ctx, c.opts.CallTimeout)
	defer cancel()
	node := c.cluster.names([]string{b.Ward})[0]
	start := c.now()
	r, err := g.burier.Bury(ctx, b.Ward, b.Version, b.Voters)
	c.called(OpBury, start, err)
	switch {
	case err != nil:
	case r.Dead:
		g.forget(b.Ward)
		c.opts.Logger.Warn("holdfast: a session is dead, as its guardians say", "session", b.Ward, "node", node)
		c.tells.stats.buried.Add(1)
		c.cluster.tellDead(b.Ward)
		c.tells.liveness.dead(c, b.Ward)
	case r.Version > b.Version:
		g.mu.Lock()
		g.guard.Outdated(b.Ward, r.Version)
		g.mu.Unlock()
	}
}

// forget drops a session that the arbiter has said is dead.
func (g *guarded) forget(session string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.guard.Forget(session)
}

// tellDead tells all nodes that a session is dead. They ask the arbiter.
func (x *cluster) tellDead(session string) {
	for _, l := range x.all() {
		if k, ok := x.members.card(l.s.Node()); ok && k.Takeover > 0 && l.Session() != session {
			_ = l.s.Send(&peer.Frame{Kind: peer.Guard, Flags: guardDead, Session: []byte(session)})
		}
	}
}

var errBuried = errors.New("coord: the arbiter says that the node's session is dead")

// died is called when the arbiter has said that a session is dead. Its node is no member any more, unless it has another one, so
// that the ring is without it at once and its partitions go to their next owners: poke wakes their balance, which acquires those that
// takeable lists. What waits for it asks again.
func (x *cluster) died(session string) {
	if x.c.opts.takeover() == 0 {
		x.poke()
		return
	}
	if s := x.c.sessions.current(); s != nil && s.guarded != nil {
		s.guarded.forget(session)
	}
	if l := x.linkTo(session); l != nil {
		l.s.Close(errBuried)
	}
	x.members.forget(session)
	x.ring.Recheck()
	x.reached(session)
	x.poke()
}

// outdated reports whether the ring has a dead node for a partition, which it is about to drop.
func (x *cluster) outdated(p uint32) bool {
	n, ok := x.ring.View().Owner(p)
	return ok && x.members.gone(n.Name)
}

// names returns the names of the nodes that have sessions, for logs: of one that is not known, the session.
func (x *cluster) names(sessions []string) []string {
	names := make([]string, len(sessions))
	for i, session := range sessions {
		if names[i] = x.members.nodeOf(session); names[i] == "" {
			names[i] = session
		}
	}
	return names
}
