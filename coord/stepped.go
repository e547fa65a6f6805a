package coord

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// A wall clock that steps forward ends a session that the arbiter takes for alive for almost SessionTTL
// more. Until then the partitions that the session owns are blocked for all nodes. So its node demotes
// them in the old session's name, each with the rows of its whole table:
//
//   - the holds of other nodes, which stay in force;
//   - the locks that this node's own callers have just lost. A caller may still be at work, so such a
//     row stays until the arbiter counts the old session dead, as if there had been no step.
//
// A key that had no holder is free at once.

// stepped returns for how much longer a session would have lived by the monotonic clock. It returns 0
// for a session that the wall clock alone has not ended.
func (c *Coordinator) stepped(s *session, err error) time.Duration {
	if !errors.Is(err, errExpired) {
		return 0
	}
	return max(c.left(s.deadline()), 0)
}

// freezeStepped ends the ownership and the holds of a session that a step of the clock has ended. It
// returns what is to be demoted, nil if the session did not own the partition.
func (p *partition) freezeStepped(s *session, a *after) *frozen {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.own
	if o == nil || o.session != s || p.phase == phaseDemoting {
		p.loseHolds(s, SessionExpired, a)
		return nil
	}
	holds := p.freeze(phaseDemoting, a)
	p.exported, p.late = holds, make(map[string]fallback.Release)
	for key, e := range p.entries {
		if row, ok := holds[key]; ok && row == e.hold.row {
			e.hold.keepRow = true
		}
	}
	p.loseHolds(s, SessionExpired, a)
	return &frozen{p: p, own: o, holds: holds, stepped: true}
}

// demoteStepped demotes partitions for at most as long as their session would have lived.
func (c *Coordinator) demoteStepped(list []*frozen, left time.Duration) {
	if len(list) == 0 {
		return
	}
	begun := c.now()
	c.work.Add(1)
	c.pool.Go(func() {
		defer c.work.Done()
		spread(c, &c.work, list, balancers, func(x *frozen) {
			x.demote(c.ctx, func() bool { return c.since(begun) < left })
			c.cluster.poke()
		})
	})
}

// loseSession takes everything away from a session that has ended with an error. It returns what
// demoteStepped is to be called with.
func (c *Coordinator) loseSession(s *session, err error, a *after) (list []*frozen, left time.Duration) {
	left = c.stepped(s, err)
	s.extend(time.Time{}) // it is dead for every reader
	c.sessions.set(nil)
	close(s.ended)
	for i := range c.parts {
		p := &c.parts[i]
		if left == 0 {
			p.loseAll(s, SessionExpired, a)
		} else if x := p.freezeStepped(s, a); x != nil {
			list = append(list, x)
		}
	}
	return list, left
}
