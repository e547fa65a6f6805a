package coord

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// A wall clock that steps forward ends a session that the arbiter takes for alive for almost
// SessionTTL more. Until then the partitions that the session owns are blocked for all nodes. So
// its node demotes them in the old session's name, each with the rows of its whole table:
//
//   - the holds of other nodes, which stay in force;
//   - the locks that this node's own callers have just lost. A caller may still be at work, so such a
//     row stays, as a rule until the arbiter counts the old session dead. No rule relies on that: a
//     lock that is looked at between the step and the session's end is lost at once, without a row.
//
// A key that had no holder is free at once.

// outlivedBy returns for how much longer a session would have lived by the monotonic clock. It
// returns 0 for a session that the wall clock alone has not ended.
func (c *Coordinator) outlivedBy(s *session, err error) time.Duration {
	if !errors.Is(err, errExpired) && !errors.Is(err, errForsaken) {
		return 0
	}
	return max(c.left(s.Deadline()), 0)
}

// stepped is a partition that was frozen because of a step, and is to be demoted.
type stepped struct {
	p *partition
	lease.Frozen
}

// demoteStepped demotes partitions for at most as long as their session would have lived.
func (c *Coordinator) demoteStepped(list []stepped, left time.Duration) {
	if len(list) == 0 {
		return
	}
	begun := c.now()
	c.background(func() {
		spread(c, &c.life.work, list, balancers, func(x stepped) {
			x.p.demoteFrozen(c.life.ctx, x.Frozen, func() bool { return c.since(begun) < left })
			c.cluster.poke()
		})
	})
}

// loseSession takes everything away from a session that has ended with an error. It returns the
// arguments for demoteStepped.
func (c *Coordinator) loseSession(s *session, err error, a *after) (list []stepped, left time.Duration) {
	left = c.outlivedBy(s, err)
	s.over() // it is dead for every reader
	c.sessions.set(nil)
	close(s.ended)
	for i := range c.parts {
		p := &c.parts[i]
		if left == 0 {
			p.loseAll(s.Session, SessionExpired, a)
			continue
		}
		now := p.lock()
		if x, ok := p.FreezeStepped(s.Session, now, &a.Effects); ok {
			list = append(list, stepped{p, x})
		}
		p.unlock(a)
	}
	return list, left
}

// loseAll takes away the holds of a session, or all for a nil one.
func (p *partition) loseAll(s *lease.Session, cause LossCause, a *after) {
	now := p.lock()
	p.LoseAll(s, lease.Cause(cause), now, &a.Effects)
	p.unlock(a)
}
