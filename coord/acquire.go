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

	evict  fallback.Identity // the hold of a session that was seen dead
	unsure fallback.Identity // the last request that is in c.doubts
}

// errNoAnswer is the trouble of an acquisition at first.
var errNoAnswer = fmt.Errorf("%w: no answer yet", ErrUnavailable)

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
		if err != nil && !errors.Is(err, fallback.ErrRefused) && a.unsure != a.id {
			a.unsure = a.id
			c.doubts.add(doubt{a.p, a.key, a.id, sent.Add(c.opts.SessionTTL)})
		}
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
		again, dead := a.p.c.suspects.ask(ctx, a.p.c, ans.Holder.Session)
		if dead {
			a.evict = ans.Holder.Identity
			return 0
		}
		return a.settle(nil, tries, min(again, jitter(o.RenewEvery)))
	case ans.Verdict == fallback.Promised:
		// The one that it is promised to wakes us when it is done. If it does not come, somebody has to look.
		if _, dead := a.p.c.suspects.ask(ctx, a.p.c, ans.Holder.Session); dead {
			a.p.c.releases.add(a.p.release(a.key, ans.Holder.Identity))
			return a.settle(nil, tries, jitter(5*time.Millisecond))
		}
		return a.settle(nil, tries, jitter(ans.Retry+5*time.Millisecond))
	case ans.Verdict == fallback.InGrace:
		err := fmt.Errorf("%w: the arbiter failed over or lost its data, nothing is granted for %v (Options.Grace)",
			ErrUnavailable, ans.Record.Grace)
		a.p.c.sessions.sweep()
		return a.settle(err, tries, min(ans.Record.Grace+time.Millisecond, o.RenewEvery))
	case ans.Verdict == fallback.Owned:
		a.p.c.freeOwned(ctx, a.p.number, ans.Record)
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

// jitter spreads what many processes would do at the same moment.
func jitter(d time.Duration) time.Duration {
	return d + rand.N(d/4+1)
}
