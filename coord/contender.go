package coord

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
)

// acquisition gets a hold for the waiters of an entry: the one contender that this process has for the key.
type acquisition struct {
	p      *partition
	e      *entry // used again for another key once nobody waits here: look whether e.acq is this one
	key    string
	flight *flight       // if it has come to that
	wake   chan struct{} // capacity 1: something may have changed

	// Protected by p.mu.
	id      fallback.Identity // of the request now at the arbiter
	known   fallback.Token    // what was seen before the first request of that name
	asked   bool              // another process asks for the hold that this is about to become
	trouble error             // why it takes so long, if not because somebody else has the key
	holder  string            // the session that has the key, as the arbiter has said last
	owner   string            // the session that owns the partition, if it is one to which there was no stream

	evict   fallback.Identity // the hold of a session that was seen dead
	doubted fallback.Identity // the last request that is in c.doubts
}

// errNoAnswer is the trouble of an acquisition at first.
var errNoAnswer = fmt.Errorf("%w: no answer yet", ErrUnavailable)

// acquire makes the one acquisition that gets a hold for e's waiters. It has to be started: by fly, or by first.
func (p *partition) acquire(e *entry) *acquisition {
	a := &acquisition{p: p, e: e, key: e.key, wake: make(chan struct{}, 1), trouble: errNoAnswer}
	e.acq = a
	p.c.work.Add(1)
	return a
}

// fly goes on in a flight, with p.mu held. The entry is its only member, for all waiters.
func (a *acquisition) fly(pause time.Duration) {
	c := a.p.c
	a.flight = c.flights.Join(context.Background(), a.key, func(ctx context.Context) (struct{}, error) {
		defer c.work.Done()
		defer crash()
		a.run(ctx, pause)
		return struct{}{}, nil
	})
}

// inline reports whether a caller may make the first request by itself, which spares it two changes
// of goroutines: on several processors each costs as much as half a round trip. It cannot leave
// meanwhile if its ctx is cancelled, so it does so only while the arbiter answers fast, and for
// briefly at most.
func (c *Coordinator) inline(ctx context.Context) bool {
	if !c.prompt.Load() || c.pace.Load() > int64(c.briefly()/2) {
		return false
	}
	d, limited := ctx.Deadline()
	return !limited || time.Until(d) > c.briefly()
}

// briefly is how long a call may take that a caller makes by itself.
func (c *Coordinator) briefly() time.Duration { return c.opts.CallTimeout / 20 }

// queueCalls is for how many times CallTimeout a call waits for a connection while many others are under way.
const queueCalls = 4

// slow is the pace of an arbiter that has not answered yet, or not in time.
const slow = math.MaxInt64

// first makes the first request, and leaves the rest to a flight. w is the caller's place in the queue.
func (a *acquisition) first(w *waiter) {
	p := a.p
	pause, returned := time.Duration(0), false
	defer func() {
		p.mu.Lock()
		on := pause >= 0 && a.e.acq == a
		if on {
			a.fly(pause)
		}
		p.mu.Unlock()
		if !on {
			a.withdraw()
			p.c.work.Done()
		}
		if !returned { // a function of the user's panicked, so nobody is there to take the turn
			p.abandon(a.e, w)
		}
	}()
	if s := p.c.sessions.current(); s != nil {
		pause = a.step(s, true)
	}
	returned = true
}

// abandon takes a waiter out of the queue, and passes its turn on if it has got it.
func (p *partition) abandon(e *entry, w *waiter) {
	if p.leaveQueue(e, w) {
		return
	}
	<-w.Value.ready
	if w.Value.err == nil {
		Lock{t: w.Value.turn, fence: w.Fence()}.pass()
	}
}

// run asks the arbiter, after a pause, until it grants the key, or nobody waits any more, and then ctx ends.
func (a *acquisition) run(ctx context.Context, pause time.Duration) {
	c := a.p.c
	defer a.withdraw()
	for {
		s := c.sessions.current()
		if s == nil {
			err := fmt.Errorf("%w: no session at the arbiter", ErrUnavailable)
			if why := c.sessions.why.Load(); why != nil {
				err = fmt.Errorf("%w: %w", err, *why)
			}
			if a.settle(err, tries, 0) < 0 {
				return
			}
			if s = c.sessions.live(ctx); s == nil {
				return
			}
		}
		a.pause(ctx, s, pause)
		if pause = a.step(s, false); pause < 0 {
			return
		}
	}
}

// step makes one request. It returns after what time to make the next one, negative if there is nothing left to do.
// inline: in a caller's goroutine.
func (a *acquisition) step(s *session, inline bool) time.Duration {
	c := a.p.c
	wait, begun := a.begin(s)
	if !begun {
		return -1
	}
	sent := a.p.c.now()
	// Not ended by the caller's ctx: a request whose fate is known can be withdrawn for good.
	r := fallback.LockRequest{Partition: a.p.number, Key: a.key, Me: a.id, Block: block, Wait: wait, Evict: a.evict}
	limit := c.opts.CallTimeout
	switch {
	case inline:
		r.Inline, limit = true, c.briefly()
	case c.queues.Load():
		r.Limit, limit = limit, queueCalls*limit
	}
	call, cancel := context.WithTimeout(context.Background(), limit)
	ans, err := c.ns.Lock(call, r)
	cancel()
	if c.called(OpLock, sent, err); err == nil {
		c.pace.Store(int64(c.since(sent)))
	} else {
		c.pace.Store(slow)
	}
	if err != nil && !errors.Is(err, fallback.ErrRefused) && !errors.Is(err, fallback.ErrNotSent) && a.doubted != a.id {
		a.doubted = a.id
		c.doubts.add(doubt{a.p, a.key, a.id, sent.Add(c.opts.SessionTTL)})
	}
	if inline && err != nil && !errors.Is(err, fallback.ErrRefused) {
		return 0 // a flight waits for longer
	}
	if err == nil && a.outdated(ans) {
		return a.refuse(ans)
	}
	if err == nil && ans.Verdict == fallback.Granted {
		if a.install(s, ans, sent) {
			return -1
		}
		return 0
	}
	pause := a.judge(ans, sent, err)
	if pause > 0 && !wait && a.waits() {
		return 0 // who has come since has to be queued
	}
	return pause
}

// waits tells whether anybody waits here who does not only try.
func (a *acquisition) waits() bool {
	a.p.mu.Lock()
	defer a.p.mu.Unlock()
	return a.e.acq == a && a.e.q.Any(waits)
}

// begin names the request that is about to be sent. wait is false if everybody only tries.
func (a *acquisition) begin(s *session) (wait, ok bool) {
	p := a.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.e.acq != a || a.e.q.Waiting() == 0 {
		return false, false
	}
	a.owner = ""
	if a.id.Session != s.id {
		if a.id.Session != "" {
			p.c.releases.add(p.release(a.key, a.id))
		}
		a.id = fallback.Identity{Session: s.id, Request: p.c.requests.Add(1)}
		a.asked, a.known = false, p.seen
	}
	return a.e.q.Any(waits), true
}

func waits(w *waiter) bool { return !w.Value.try }
func tries(w *waiter) bool { return w.Value.try }

// install gives the hold to the first waiter. It reports false if there is none, or if the answer came too late:
// the request is over, and another may be made.
func (a *acquisition) install(s *session, ans fallback.LockAnswer, sent time.Time) bool {
	var after after
	p, now := a.p, a.p.c.now()
	defer func() { after.do(p.c) }()
	p.mu.Lock()
	defer p.mu.Unlock()
	e := a.e
	if e.acq != a {
		return true // withdraw releases it
	}
	if p.own != nil || e.q.State() != handoff.Idle || e.q.Waiting() == 0 { // serve ends acquisitions, so this cannot be
		after.releases = append(after.releases, p.release(a.key, a.id))
		a.id = fallback.Identity{}
		return false
	}
	h := hold{session: s, row: fallback.Row{Identity: a.id, Token: ans.Token}, confirmed: sent}
	if p.deadlines(&h).past(now) {
		after.releases = append(after.releases, p.release(a.key, a.id))
		a.id = fallback.Identity{}
		return false
	}
	p.saw(ans.Token)
	w := e.q.Take(uint64(ans.Token), block, ans.Contended || a.asked || e.g != nil, now)
	e.hold = h
	p.oldest = earlier(p.oldest, sent)
	p.holds++
	e.acq = nil
	a.endFlight() // a flight that has delivered must not be joined
	a.id = fallback.Identity{}
	p.seat(e, w, PathArbiter, now, &after)
	return true
}

// endFlight ends the flight, if there is one.
func (a *acquisition) endFlight() {
	if a.flight != nil {
		a.flight.Leave()
	}
}

// judge decides what to do about an answer that is not a grant: for how long to pause before asking again, negative if
// nobody waits any more.
func (a *acquisition) judge(ans fallback.LockAnswer, sent time.Time, err error) time.Duration {
	o := &a.p.c.opts
	switch {
	case errors.Is(err, fallback.ErrRefused):
		return a.settle(fmt.Errorf("%w: %w", ErrUnavailable, err), nil, 0)
	case err != nil:
		return a.settle(fmt.Errorf("%w: %w", ErrUnavailable, err), tries, jitter(o.RetryEvery))
	case ans.Verdict == fallback.Held:
		a.heldBy(ans.Holder.Session)
		again, dead := a.p.c.liveness.ask(a, a.p.c, ans.Holder.Session)
		if dead {
			a.evict = ans.Holder.Identity
			return 0
		}
		return a.settle(nil, tries, min(again, jitter(a.p.patience())))
	case ans.Verdict == fallback.Promised:
		// The one that it is promised to wakes us when it is done. If it does not come, somebody has to look.
		if _, dead := a.p.c.liveness.ask(a, a.p.c, ans.Holder.Session); dead {
			a.p.c.releases.add(a.p.release(a.key, ans.Holder.Identity))
			return a.settle(nil, tries, jitter(5*time.Millisecond))
		}
		return a.settle(nil, tries, jitter(min(ans.Retry+5*time.Millisecond, a.p.patience())))
	case ans.Verdict == fallback.InGrace:
		err := fmt.Errorf("%w: the arbiter failed over or lost its data, nothing is granted for %v (Options.Grace)",
			ErrUnavailable, ans.Record.Grace)
		a.p.c.sessions.sweep(a.p.c.graceBegan(sent, ans.Record.Grace))
		return a.settle(err, tries, min(ans.Record.Grace+time.Millisecond, o.RenewEvery))
	case ans.Verdict == fallback.Owned && a.p.c.cluster != nil:
		return a.redirect(ans.Record)
	case ans.Verdict == fallback.Owned:
		a.p.makeShared(a, ans.Record)
		err := fmt.Errorf("%w: partition %d is owned by session %s, and this process is not in its cluster",
			ErrUnavailable, a.p.number, ans.Record.Owner)
		return a.settle(err, tries, jitter(o.RetryEvery))
	}
	return a.settle(fmt.Errorf("%w: the arbiter answered %v", ErrUnavailable, ans.Verdict), tries, o.RetryEvery)
}

// heldBy notes which session has the key.
func (a *acquisition) heldBy(session string) {
	a.p.mu.Lock()
	defer a.p.mu.Unlock()
	a.holder = session
}

// patience is how long to wait at most for a message about a key that is held at the arbiter. In a cluster the partition is
// about to be owned, and who waits there is not told.
func (p *partition) patience() time.Duration {
	o := &p.c.opts
	p.mu.Lock()
	p.waitFor |= awaitedRoute // before the look: see rerouted
	p.mu.Unlock()
	if p.c.cluster.route(p.number).known() {
		return o.RetryEvery / 2
	}
	return o.RenewEvery
}

// redirect goes where the arbiter says that the partition is owned. Only if nobody can reach the owner it is asked, by the
// arbiter, to let go: never because a key is held or slow (rule 10).
func (a *acquisition) redirect(r fallback.Record) time.Duration {
	p := a.p
	x, o := p.c.cluster, &p.c.opts
	var after after
	defer func() { after.do(p.c) }()
	now := a.p.c.now()
	p.mu.Lock()
	a.owner = r.Owner
	p.waitFor |= awaitedStream // before the look: see reached
	p.sawEpoch(r)
	p.mu.Unlock()
	if l := x.linkTo(r.Owner); l != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		a.owner = ""
		if a.e.acq != a {
			return -1
		}
		if a.e.moved > 1 { // the arbiter says that it does, and it says that it does not: it needs time to find out
			a.e.moved = 0
			return jitter(o.RetryEvery / 2)
		}
		a.e.acq = nil
		a.endFlight()
		a.id = fallback.Identity{} // it is not queued
		if !p.forward(a.e, l, &after) {
			p.want(a.e, now, &after, true)
		}
		return -1
	}
	if s := p.c.sessions.current(); s != nil && s.id == r.Owner {
		p.mu.Lock()
		defer p.mu.Unlock()
		if a.e.acq != a {
			return -1
		}
		if p.serves(now) {
			a.e.acq = nil
			a.endFlight()
			a.id = fallback.Identity{}
			p.wantHere(a.e, now, &after)
			return -1
		}
		p.take()
		return jitter(o.RetryEvery / 2)
	}
	_, dead := p.c.liveness.ask(a, p.c, r.Owner)
	if dead && x.route(p.number).mine {
		p.mu.Lock()
		p.take()
		p.mu.Unlock()
	} else if x.unreached.long(r.Owner, now, o) || dead {
		p.makeShared(a, r)
	}
	err := fmt.Errorf("%w: partition %d is owned by session %s, and there is no stream to it", ErrUnavailable, p.number, r.Owner)
	return a.settle(err, tries, jitter(o.RetryEvery))
}

// settle notes the trouble (nil: the key is locked) for those who give up, and sends those away that which chooses, all
// if it is nil. It returns pause, or -1 if nobody is left.
func (a *acquisition) settle(trouble error, which func(*waiter) bool, pause time.Duration) time.Duration {
	p := a.p
	var after after
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
	p.fail(a.e, which, &WaitError{Key: a.key, Reason: reason}, &after)
	left := a.e.acq == a
	p.mu.Unlock()
	after.do(p.c)
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
	var after after
	p.mu.Lock()
	id := a.id
	a.id = fallback.Identity{}
	if a.e.acq == a { // a function of the user's has called runtime.Goexit
		p.fail(a.e, nil, &WaitError{Key: a.key, Reason: fmt.Errorf("%w: a Trace function ended the goroutine", ErrUnavailable)}, &after)
	}
	p.mu.Unlock()
	after.do(p.c)
	if id != (fallback.Identity{}) {
		p.c.releases.add(p.release(a.key, id))
	}
}

// jitter spreads what many processes would do at the same moment.
func jitter(d time.Duration) time.Duration {
	return d + rand.N(d/4+1)
}
