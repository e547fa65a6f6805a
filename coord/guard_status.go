package coord

import "time"

// status adds to a snapshot how this node's session is guarded.
func (g *guarded) status(s *Stats) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	recorded, _, _ := g.ward.Sets()
	s.Takeover = g.c.opts.takeover()
	if s.Guardians = len(recorded.Members); s.Guardians > 0 {
		s.Promised = max(g.ward.Until()-g.instant(g.c.now()), 0)
	}
}

// guarding tells of a node's session whether it guards this node's, and this node's it.
func (g *guarded) guarding(session string, i *NodeInfo) {
	if g == nil || session == "" {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.c.now()
	recorded, _, _ := g.ward.Sets()
	for _, member := range recorded.Members {
		if member == session {
			until, _ := g.ward.Promise(session)
			i.Guardian, i.Promise = true, max(until-g.instant(now), 0)
		}
	}
	i.Ward = max(g.guard.Promised()[session]-g.monotonic(now), time.Duration(0))
}

// guardians returns how many sessions guard this one.
func (g *guarded) guardians() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	recorded, _, _ := g.ward.Sets()
	return len(recorded.Members)
}
