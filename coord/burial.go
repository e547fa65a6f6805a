package coord

import (
	"context"
	"errors"
	"strconv"

	"github.com/holdfast-go/holdfast/internal/guardians"
	"github.com/holdfast-go/holdfast/peer"
)

// bury asks the arbiter to bury a session that enough of its guardians say is dead (G6). A refused
// burial is asked for again: at once for the set that the arbiter names, if there are votes for
// that.
func (g *guarded) bury(b guardians.Burial) {
	c := g.c
	outdated := false
	defer func() {
		g.mu.Lock()
		delete(g.burying, b.Ward)
		g.mu.Unlock()
		if outdated {
			g.wake()
		}
	}()
	ctx, cancel := context.WithTimeout(c.life.ctx, c.opts.CallTimeout)
	defer cancel()
	node, process := c.cluster.names([]string{b.Ward})[0], ""
	if k, ok := c.cluster.members.card(node); ok && k.Host != "" {
		process = k.Host + ":" + strconv.Itoa(k.PID)
	}
	start := c.now()
	r, err := g.burier.Bury(ctx, b.Ward, b.Version, b.Voters)
	c.called(OpBury, start, err)
	switch {
	case err != nil:
	case r.Dead:
		g.forget(b.Ward)
		if c.cluster.streams.ended.has(node) {
			c.opts.Logger.Warn("holdfast: a node's process has ended, and its session was ended", "session", b.Ward, "node", node, "host", process)
		} else {
			c.opts.Logger.Warn("holdfast: a node was silent for too long, and its session was ended", "session", b.Ward, "node", node, "host", process)
		}
		c.tells.stats.buried.Add(1)
		c.cluster.tellDead(b.Ward)
		c.sessions.others.dead(c, b.Ward)
	case r.Version > b.Version:
		g.mu.Lock()
		g.guard.Outdated(b.Ward, r.Version)
		g.mu.Unlock()
		outdated = true
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

// names returns the names of the nodes that have sessions, for logs: of one that is not known, the
// session.
func (x *cluster) names(sessions []string) []string {
	names := make([]string, len(sessions))
	for i, session := range sessions {
		if names[i] = x.members.nodeOf(session); names[i] == "" {
			names[i] = session
		}
	}
	return names
}

var errBuried = errors.New("coord: the arbiter says that the node's session is dead")

// died is called when the arbiter has said that a session is dead: poke wakes the balance, which
// acquires the session's partitions that should be this node's, as takeable lists them. The ring
// says which those are. Without takeover that is all: the gossip misses the session's node sooner
// or later. With takeover that node is no member any more, unless it has another session, so that
// the ring is without it at once. Waiters that had no stream to that node ask again.
func (x *cluster) died(session string) {
	x.members.endLife(session)
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
	for i := range x.c.parts {
		p := &x.c.parts[i]
		var a after
		p.mu.Lock()
		p.Died(session, &a.Effects)
		p.unlock(&a)
	}
	x.poke()
}
