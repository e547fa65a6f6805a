package coord

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// acquisition gets a hold for the waiters of an entry: the one contender that this process has for the key.
type acquisition struct {
	p      *partition
	e      *entry // used again for another key once nobody waits here: look whether e.acq is this one
	key    string
	flight *flight
	wake   chan struct{} // capacity 1: something may have changed

	// Protected by p.mu.
	id      fallback.Identity // of the request now at the arbiter
	asked   bool              // another process asks for the hold that this is about to become
	trouble error             // why it takes so long, if not because somebody else has the key

	evict fallback.Identity // the hold of a session that was seen dead
	way   fallback.Identity // the holder that is in the way
	check time.Time         // when to ask whether it is dead
}

// run asks the arbiter until it grants the key, or nobody waits any more, and then ctx ends.
func (a *acquisition) run(ctx context.Context) {
	c := a.p.c
	defer a.withdraw()
	for {
		s := c.sessions.current()
		if s == nil {
			err := fmt.Errorf("%w: no session", ErrUnavailable)
			if a.settle(err, tries, 0) < 0 {
				return
			}
			if s = c.sessions.live(ctx); s == nil {
				return
			}
		}
		wait, begun := a.begin(s)
		if !begun {
			return
		}
		sent := time.Now()
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.opts.CallTimeout)
		// Not ended by ctx: a request whose fate is known can be withdrawn for good.
		ans, err := c.ns.Lock(call, fallback.LockRequest{
			Partition: a.p.number, Key: a.key, Me: a.id, Block: block, Wait: wait, Evict: a.evict,
		})
		cancel()
		c.called(OpLock, 1, sent, err)
		if err == nil && ans.Verdict == fallback.Granted {
			if a.install(s, ans, sent) {
				return
			}
			continue
		}
		pause := a.judge(ctx, ans, err)
		if pause < 0 {
			return
		}
		if !wait {
			continue // those who only tried have left; the others have to be queued
		}
		a.pause(ctx, s, pause)
	}
}

// begin names the request that is about to be sent. wait is false if everybody only tries.
func (a *acquisition) begin(s *session) (wait, ok bool) {
	p := a.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.e.acq != a {
		return false, false
	}
	if a.id.Session != s.id {
		if a.id.Session != "" {
			p.c.releases.add(p.release(a.key, a.id))
		}
		a.id = fallback.Identity{Session: s.id, Request: p.c.requests.Add(1)}
		a.asked = false
	}
	return a.e.q.Any(waits), true
}

func waits(w *waiter) bool { return !w.Value.try }
func tries(w *waiter) bool { return w.Value.try }

// install gives the hold to the first waiter. It reports false if there is none, or if the answer came too late:
// the request is over, and another may be made.
func (a *acquisition) install(s *session, ans fallback.LockAnswer, sent time.Time) bool {
	var after after
	p, now := a.p, time.Now()
	defer func() { after.do(p.c) }()
	p.mu.Lock()
	defer p.mu.Unlock()
	e := a.e
	if e.acq != a {
		return true // withdraw releases it
	}
	h := hold{session: s, row: fallback.Row{Identity: a.id, Token: ans.Token}, confirmed: sent}
	if past(p.until(&h), now) {
		after.releases = append(after.releases, p.release(a.key, a.id))
		a.id = fallback.Identity{}
		return false
	}
	w := e.q.Take(uint64(ans.Token), block, ans.Contended || a.asked, now)
	e.hold = h
	if p.holds == 0 || sent.Before(p.oldest) {
		p.oldest = sent
	}
	p.holds++
	e.acq = nil
	a.flight.Leave() // a flight that has delivered must not be joined
	a.id = fallback.Identity{}
	p.seat(e, w, PathArbiter, now, &after)
	return true
}

// judge decides what to do about an answer that is not a grant: for how long to pause before asking again, negative if
// nobody waits any more.
func (a *acquisition) judge(ctx context.Context, ans fallback.LockAnswer, err error) time.Duration {
	o := &a.p.c.opts
	switch {
	case errors.Is(err, fallback.ErrRefused):
		return a.settle(fmt.Errorf("%w: %w", ErrUnavailable, err), nil, 0)
	case err != nil:
		return a.settle(fmt.Errorf("%w: %w", ErrUnavailable, err), tries, jitter(o.RetryEvery))
	case ans.Verdict == fallback.Held:
		pause := a.obstructed(ctx, ans.Holder.Identity)
		return a.settle(nil, tries, pause)
	case ans.Verdict == fallback.Promised:
		// The one that it is promised to wakes us when it is done. If it does not come, somebody has to look.
		return a.settle(nil, tries, jitter(ans.Retry+5*time.Millisecond))
	case ans.Verdict == fallback.InGrace:
		err := fmt.Errorf("%w: the arbiter failed over or lost its data, nothing is granted for %v (Options.Grace)",
			ErrUnavailable, ans.Record.Grace)
		a.p.c.sessions.sweep()
		return a.settle(err, tries, min(ans.Record.Grace+time.Millisecond, o.RenewEvery))
	case ans.Verdict == fallback.Owned:
		a.p.c.reclaimFromOwner(ctx, a.p.number, ans.Record)
		err := fmt.Errorf("%w: partition %d is owned by session %s, and this process is not in its cluster",
			ErrUnavailable, a.p.number, ans.Record.Owner)
		return a.settle(err, tries, jitter(o.RetryEvery))
	}
	return a.settle(fmt.Errorf("%w: the arbiter answered %v", ErrUnavailable, ans.Verdict), tries, o.RetryEvery)
}

// settle notes the trouble (nil: the key is locked) for those who give up, and sends those away that which chooses, all
// if it is nil. It returns pause, or -1 if nobody is left.
func (a *acquisition) settle(trouble error, which func(*waiter) bool, pause time.Duration) time.Duration {
	p := a.p
	var gone []*waiter
	p.mu.Lock()
	if a.e.acq != a {
		p.mu.Unlock()
		return -1
	}
	a.trouble = trouble
	reason := trouble
	if reason == nil {
		reason = ErrLocked
	}
	p.fail(a.e, which, &WaitError{Key: a.key, Reason: reason}, &gone)
	left := a.e.acq == a
	p.mu.Unlock()
	wakeAll(gone)
	if !left {
		return -1
	}
	return pause
}

// obstructed is called when a holder is in the way. One that is in the way for long may be dead (rule 2).
func (a *acquisition) obstructed(ctx context.Context, holder fallback.Identity) time.Duration {
	c := a.p.c
	o := &c.opts
	now := time.Now()
	if a.way != holder {
		a.way, a.check = holder, now.Add(o.RenewEvery)
	}
	a.evict = fallback.Identity{}
	if left := a.check.Sub(now); left > 0 {
		return min(left, jitter(o.RenewEvery))
	}
	l, err := c.dead(ctx, holder.Session)
	switch {
	case err != nil:
		return jitter(o.RetryEvery)
	case l.Dead:
		a.evict = holder
		return 0
	}
	// Not sooner than it can be dead, and at once when it is.
	a.check = now.Add(max(l.Left, o.RetryEvery) + 5*time.Millisecond)
	return min(time.Until(a.check), jitter(o.RenewEvery))
}

// dead asks the arbiter once for all keys that the session is in the way of.
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

// pause waits until it is time to ask again, or sooner if something changed.
func (a *acquisition) pause(ctx context.Context, s *session, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-a.wake:
	case <-s.ended:
	case <-ctx.Done():
	}
}

func (a *acquisition) poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// withdraw takes the request back if it did not become a hold: out of the queue at the arbiter and, if it was granted
// when nobody wanted it any more, the hold as well (rule 11).
func (a *acquisition) withdraw() {
	p := a.p
	p.mu.Lock()
	id := a.id
	a.id = fallback.Identity{}
	p.mu.Unlock()
	if id != (fallback.Identity{}) {
		p.c.releases.add(p.release(a.key, id))
	}
}

// reclaimFromOwner makes a partition Shared that a session of a cluster owns. This process is not in a cluster, so it
// cannot ask the owner for keys: it asks it to demote, or buries it if it is dead.
func (c *Coordinator) reclaimFromOwner(ctx context.Context, p uint32, r fallback.Record) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	defer cancel()
	s := c.sessions.current()
	l, err := c.dead(ctx, r.Owner)
	if err != nil || s == nil {
		return
	}
	start := time.Now()
	switch {
	case r.Owner == s.id: // a record that names me and that I do not serve (rule 6)
		_, err = c.ns.DemoteUnserved(ctx, p, s.id, r.Epoch)
	case !l.Dead:
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

// jitter spreads what many processes would do at the same moment.
func jitter(d time.Duration) time.Duration {
	return d + rand.N(d/4+1)
}
