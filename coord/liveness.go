package coord

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/guard"
)

// liveness is this process's knowledge of the sessions that are in its way. It outlives the single
// request: so callers that only try, or wait for a moment, learn in the end that a holder is dead.
type liveness struct {
	mu mutex[leafRank] // protects m
	m  map[string]*verdict
}

type verdict struct {
	dead   bool      // for ever (rule 2)
	again  time.Time // it is not asked about sooner, unless a hint comes
	asking bool
	hinted bool         // it may have died since it was asked about
	tell   []*contender // to be poked when it is found dead
}

// maxVerdicts is when to forget about those that have not been in the way for a while.
const maxVerdicts = 256

// ask reports whether a session is known to be dead, and if not, returns the time until it may be.
// It never blocks: it asks in the background, once for all keys that the session is in the way of.
// It does not ask again before the answer can have changed. If a call is under way when it returns,
// and the session turns out to be dead, a, which may be nil, is poked.
func (x *liveness) ask(a *contender, c *Coordinator, session string) (again time.Duration, dead bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s, now := x.m[session], c.now()
	if s == nil {
		s = new(verdict)
		x.put(session, s, now)
	}
	switch {
	case s.dead:
		return 0, true
	case !s.asking && now.Before(s.again):
		return s.again.Sub(now), false
	case !s.asking:
		s.asking = true
		c.background(func() { x.find(c, session, s) })
	}
	if a != nil {
		s.tell = append(s.tell, a)
	}
	return c.opts.RenewEvery, false
}

// again forgets until when the living need not be asked about: a node may have left.
func (x *liveness) again() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.m {
		s.again = time.Time{}
	}
}

func (x *liveness) put(session string, s *verdict, now time.Time) {
	if x.m == nil {
		x.m = make(map[string]*verdict)
	}
	if len(x.m) >= maxVerdicts {
		for id, old := range x.m {
			if !old.asking && old.again.Before(now) {
				delete(x.m, id)
			}
		}
	}
	x.m[session] = s
}

// find asks the arbiter.
func (x *liveness) find(c *Coordinator, session string, s *verdict) {
	var l fallback.Liveness
	err := errors.New("coord: the call did not end")
	defer func() { x.found(c, session, s, l, err) }() // also if a trace function ends the goroutine
	ctx, cancel := context.WithTimeout(c.life.ctx, c.opts.CallTimeout)
	defer cancel()
	start := c.now()
	l, err = c.remote.ns.Dead(ctx, session, c.stamp())
	c.called(OpDead, start, err)
}

// found notes the arbiter's answer.
func (x *liveness) found(c *Coordinator, session string, s *verdict, l fallback.Liveness, err error) {
	x.mu.Lock()
	s.again = c.now().Add(c.opts.RetryEvery)
	if err == nil {
		s.dead, s.again = s.dead || l.Dead || !guard.Dead, s.again.Add(max(l.Left-c.opts.RetryEvery, 0)+5*time.Millisecond)
	}
	s.asking = false
	hinted := s.hinted && !s.dead
	s.hinted = false
	dead := s.dead
	if dead {
		s.tellAll()
	}
	s.tell = nil
	x.mu.Unlock()
	switch {
	case c.cluster == nil:
	case dead:
		c.cluster.died(session)
	case hinted && c.life.ctx.Err() == nil:
		x.hint(c, session)
	}
}

// tellAll pokes those that wait for the verdict.
func (s *verdict) tellAll() {
	for _, a := range s.tell {
		a.poke()
	}
	s.tell = nil
}

// hint is told that a session may have died: the arbiter is asked at once.
func (x *liveness) hint(c *Coordinator, session string) {
	x.mu.Lock()
	if s := x.m[session]; s != nil {
		s.again, s.hinted = time.Time{}, s.asking
	}
	x.mu.Unlock()
	x.ask(nil, c, session)
}

// dead notes that the arbiter has said that a session is dead.
func (x *liveness) dead(c *Coordinator, session string) {
	x.mu.Lock()
	s := x.m[session]
	if s == nil {
		s = new(verdict)
		x.put(session, s, c.now())
	}
	s.dead = true
	s.tellAll()
	x.mu.Unlock()
	c.cluster.died(session)
}
