package coord

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// suspects is what this process knows about the sessions that are in its way. It outlives the single request, so that
// callers who only try, or wait for a moment, find out in the end that a holder is dead.
type suspects struct {
	mu sync.Mutex // protects m
	m  map[string]suspect
}

type suspect struct {
	dead  bool      // for ever (rule 2)
	again time.Time // not sooner can it be dead
}

// maxSuspects is when to forget about those that have not been in the way for a while.
const maxSuspects = 256

// ask finds out whether a session is dead, from the arbiter if need be: once for all keys that the session is in the way
// of, and not again before it can have died. If it is not dead, ask says after what time to ask again.
func (x *suspects) ask(ctx context.Context, c *Coordinator, session string) (again time.Duration, dead bool) {
	x.mu.Lock()
	s := x.m[session]
	x.mu.Unlock()
	now := time.Now()
	if s.dead || now.Before(s.again) {
		return s.again.Sub(now), s.dead
	}
	l, err := c.dead(ctx, session)
	if err != nil {
		return jitter(c.opts.RetryEvery), false
	}
	again = max(l.Left, c.opts.RetryEvery) + 5*time.Millisecond
	s = suspect{l.Dead, time.Now().Add(again)}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.m == nil {
		x.m = make(map[string]suspect)
	}
	if len(x.m) >= maxSuspects {
		for id, old := range x.m {
			if old.again.Before(now) {
				delete(x.m, id)
			}
		}
	}
	x.m[session] = s
	return again, s.dead
}

// dead asks the arbiter, once for all who ask at the same time.
func (c *Coordinator) dead(ctx context.Context, session string) (fallback.Liveness, error) {
	l, _, err := c.deaths.Do(ctx, session, func(ctx context.Context) (fallback.Liveness, error) {
		ctx, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
		defer cancel()
		start := time.Now()
		l, err := c.ns.Dead(ctx, session)
		c.called(OpDead, 1, start, err)
		return l, err
	})
	return l, err
}

// freeOwned makes a partition Shared that a session of a cluster owns. This process is not in a cluster, so it
// cannot ask the owner for keys: it asks it to demote, or buries it if it is dead.
func (c *Coordinator) freeOwned(ctx context.Context, p uint32, r fallback.Record) {
	s := c.sessions.current()
	if s == nil {
		return
	}
	_, dead := c.suspects.ask(ctx, c, r.Owner)
	ctx, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	defer cancel()
	start := time.Now()
	var err error
	switch {
	case r.Owner == s.id: // a record that names me and that I do not serve (rule 6)
		_, err = c.ns.DemoteUnserved(ctx, p, s.id, r.Epoch)
	case !dead:
		err = c.ns.Revoke(ctx, p, r.Epoch, s.id)
	default:
		var got fallback.Acquisition
		got, err = c.ns.Acquire(ctx, p, s.id, fallback.Expect{Epoch: r.Epoch, Owner: r.Owner, OwnerDead: true})
		if err == nil && got.Verdict == fallback.Granted {
			_, err = c.ns.DemoteUnserved(ctx, p, s.id, got.Record.Epoch)
		}
	}
	c.called(OpOwnership, 1, start, err)
}
