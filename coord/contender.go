package coord

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// contender is the shell of a lease.Contender, which wants a key: it makes the calls.
type contender struct {
	p *partition
	*lease.Contender
	wake  chan struct{}     // capacity 1: something may have changed
	over  chan struct{}     // closed when the contender is over
	evict fallback.Identity // the hold of a session that was seen dead
	gone  string            // a session that was seen dead, and has or had the hold or waits for it
	named string            // gone, once the arbiter has removed its requests from the queue
	drops dropped

	doubted fallback.Identity // the last request that is in c.debts.doubts
	looks   int               // how often a key held at the arbiter, or a dead owner, held it up
}

// dropped is the request of a dead session that a contender had removed last.
type dropped struct {
	id   fallback.Identity
	seen int // how often it was there
}

// newContender is to be started, by start or by first. p.mu is held.
func (p *partition) newContender(x *lease.Contender) *contender {
	a := &contender{p: p, Contender: x, wake: make(chan struct{}, 1), over: make(chan struct{})}
	x.Runner = a
	p.c.life.work.Add(1)
	return a
}

// end is called when the contender is over. p.mu is held.
func (a *contender) end() { close(a.over) }

func (a *contender) poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// errGoexit is the reason for callers when their contender was ended.
var errGoexit = fmt.Errorf("%w: a Trace function ended the goroutine", ErrUnavailable)

// start goes on in a goroutine.
func (a *contender) start(pause time.Duration) {
	c := a.p.c
	c.life.pool.Go(func() {
		defer c.life.work.Done()
		defer crash()
		a.run(pause)
	})
}

// crash ends the process if a function of the user's panicked, as it would in any other goroutine: the pool's goroutine would end
// alone, and the callers wait for ever.
func crash() {
	if v := recover(); v != nil {
		text := fmt.Sprintf("%v\n\n%s", v, debug.Stack())
		go panic(text)
		select {}
	}
}

// inline reports whether a caller may make the first request by itself, which spares it two changes
// of goroutines: on several processors each costs as much as half a round trip. It cannot leave
// meanwhile if its ctx is cancelled, so it does so only while the arbiter answers fast, and for
// briefly at most.
func (c *Coordinator) inline(ctx context.Context) bool {
	if !c.remote.prompt.Load() || c.remote.health.pace.Load() > int64(c.briefly()/2) {
		return false
	}
	d, limited := ctx.Deadline()
	return !limited || time.Until(d) > 2*c.briefly() // there may be a release to be sent before it
}

// briefly is how long a call may take that a caller makes by itself.
func (c *Coordinator) briefly() time.Duration { return c.opts.CallTimeout / 20 }

// queueCalls is how many times CallTimeout a call waits for a connection while many others are
// under way.
const queueCalls = 4

// first makes the first request, after the release that sendAhead sends, and leaves the rest to a
// goroutine. w is the caller's place in the queue, k its key.
func (a *contender) first(k *lease.Key, w *lease.Waiter) {
	p := a.p
	pause, returned := time.Duration(0), false
	defer func() {
		if pause >= 0 {
			a.start(pause)
		} else {
			a.withdraw()
			p.c.life.work.Done()
		}
		if !returned { // a function of the user's panicked, so the caller does not take the turn
			p.abandon(k, w)
		}
	}()
	if s := p.c.sessions.current(); s != nil && p.c.sendAhead(p.Number(), a.Name) {
		pause = a.step(s, true)
	}
	returned = true
}

// abandon takes a waiter out of the queue, and passes its turn on if it has got it.
func (p *partition) abandon(k *lease.Key, w *lease.Waiter) {
	if p.leaveQueue(k, w) {
		return
	}
	<-w.Value.Ready
	if !w.Value.Refused {
		Lock{p: p, t: w.Value.Turn, fence: w.Fence()}.pass()
	}
}

// run asks the arbiter, after a pause, until it grants the key, or the contender is over.
func (a *contender) run(pause time.Duration) {
	c := a.p.c
	defer a.withdraw()
	for {
		s := c.sessions.current()
		if s == nil {
			err := fmt.Errorf("%w: no session at the arbiter", ErrUnavailable)
			if why := c.sessions.why.Load(); why != nil {
				err = fmt.Errorf("%w: %w", err, *why)
			}
			if a.settle(err, false, 0) < 0 {
				return
			}
			if s = c.sessions.live(a.over); s == nil {
				return
			}
		}
		a.pause(s, pause)
		if pause = a.step(s, false); pause < 0 {
			return
		}
	}
}

// step makes one request. It returns the pause before the next one, negative if there is nothing
// left to do. inline: in a caller's goroutine.
func (a *contender) step(s *session, inline bool) time.Duration {
	c := a.p.c
	flight := c.flights.begin()
	defer c.flights.end(flight)
	r, known, begun := a.request(s)
	if !begun {
		return -1
	}
	sent := a.p.c.now()
	limit := c.opts.CallTimeout
	switch {
	case inline:
		r.Inline, limit = true, c.briefly()
	case c.remote.queues.Load():
		r.Limit, limit = limit, queueCalls*limit
	}
	// Not ended by the caller's ctx: a request with a known fate can be withdrawn for good.
	call, cancel := context.WithTimeout(context.Background(), limit)
	ans, err := c.remote.ns.Lock(call, r)
	cancel()
	if c.called(OpLock, sent, err); err == nil {
		c.remote.health.pace.Store(int64(c.since(sent)))
		if a.named = ""; ans.Verdict == fallback.Held || ans.Verdict == fallback.Promised {
			a.named = a.gone // in Grace the arbiter has not looked
		}
	} else {
		c.remote.health.pace.Store(slow)
	}
	if err != nil && !errors.Is(err, fallback.ErrRefused) && !errors.Is(err, fallback.ErrNotSent) && a.doubted != r.Me {
		a.doubted = r.Me
		c.debts.doubts.add(doubt{a.p, a.Name, r.Me, sent.Add(c.opts.SessionTTL)})
	}
	if inline && err != nil && !errors.Is(err, fallback.ErrRefused) {
		return 0 // a goroutine waits for longer
	}
	if err == nil && ofOlderData(ans, known) {
		return a.refuse(ans, known)
	}
	if err == nil && ans.Verdict == fallback.Granted {
		if a.install(s, ans, sent) {
			return -1
		}
		return 0
	}
	pause := a.judge(ans, sent, err)
	if pause > 0 && !r.Wait && a.waits() {
		return 0 // a caller that has come since has to be queued
	}
	return pause
}

// waits reports whether a caller waits that does not only try.
func (a *contender) waits() bool {
	a.p.mu.Lock()
	defer a.p.mu.Unlock()
	return a.p.Waits(a.Contender)
}

// request returns the request that is about to be sent, and the highest token that was seen before; false if none is.
func (a *contender) request(s *session) (r fallback.LockRequest, known fallback.Token, ok bool) {
	var after after
	p := a.p
	p.lock()
	id, known, wait, ok := p.Begin(a.Contender, s.Session, &after.Effects)
	p.unlock(&after)
	after.do(p.c)
	r = fallback.LockRequest{Partition: p.Number(), Key: a.Name, Me: id, Block: lease.Block, Wait: wait, Evict: a.evict}
	if a.named != a.gone { // once: Redis walks the whole queue for it
		r.Gone = a.gone
	}
	return r, known, ok
}

// install gives the hold to the first waiter. It reports false if there is none, or if the answer came too late.
func (a *contender) install(s *session, ans fallback.LockAnswer, sent time.Time) bool {
	var after after
	p := a.p
	now := p.lock()
	done := p.Install(a.Contender, s.Session, ans.Token, ans.Contended, sent, now, &after.Effects)
	p.unlock(&after)
	after.do(p.c)
	return done
}

// judge takes an answer that is not a grant. It returns the pause before the next request, negative
// if no caller waits any more.
func (a *contender) judge(ans fallback.LockAnswer, sent time.Time, err error) time.Duration {
	o := &a.p.c.opts
	switch {
	case errors.Is(err, fallback.ErrRefused):
		return a.settle(fmt.Errorf("%w: %w", ErrUnavailable, err), true, 0)
	case err != nil:
		return a.settle(fmt.Errorf("%w: %w", ErrUnavailable, err), false, jitter(o.RetryEvery))
	case ans.Verdict == fallback.Held:
		a.heldBy(ans, sent)
		if _, ok := a.p.c.remote.ns.(fallback.Courier); !ok && silent(a.p.c.remote.ns) && ans.Holder.Session == a.p.c.sessions.id() {
			a.p.message(hintAsked, a.Name, ans.Holder.Identity) // it removes the row if this process has nothing to do with it: the arbiter may have lost that it was given back
		}
		again, dead := a.p.c.sessions.others.ask(a, a.p.c, ans.Holder.Session)
		if dead && a.evict != ans.Holder.Identity { // else it was to be evicted by this request, and the arbiter did not
			a.evict, a.gone = ans.Holder.Identity, ans.Holder.Session
			return 0
		}
		a.lookAround()                               // of permits: for rows that the arbiter does not name
		if ahead := ans.Ahead; ahead.Session != "" { // an arbiter of the user's may say Behind only
			if _, dead := a.p.c.sessions.others.ask(a, a.p.c, ahead.Session); dead { // nothing is promised to it while holds are in its way
				return a.remove(ahead)
			}
		}
		if ans.Size != 0 {
			key, m := fallback.Split(a.Name)
			return a.settle(errSize(key, m.Of, ans.Size), true, 0)
		}
		return a.settle(nil, false, min(again, jitter(a.lookAgainIn())))
	case ans.Verdict == fallback.Promised:
		// The one that it is promised to wakes this one when it is done. If it does not come, a waiter has to look.
		if _, dead := a.p.c.sessions.others.ask(a, a.p.c, ans.Holder.Session); dead {
			return a.remove(a.p.ReleaseOf(a.Name, ans.Holder.Identity))
		}
		return a.settle(nil, false, jitter(min(ans.Retry+5*time.Millisecond, a.lookAgainIn())))
	case ans.Verdict == fallback.InGrace:
		err := fmt.Errorf("%w: the arbiter failed over or lost its data, nothing is granted for %v (Options.Grace)",
			ErrUnavailable, ans.Record.Grace)
		a.p.c.graceSeen(a.p.Number(), sent, ans.Record.Grace)
		return a.settle(err, false, a.p.c.graceLasts(ans.Record.Grace))
	case ans.Verdict == fallback.Owned && a.p.c.cluster != nil:
		return a.redirect(ans.Record)
	case ans.Verdict == fallback.Owned:
		a.p.makeShared(a, ans.Record)
		err := fmt.Errorf("%w: partition %d is owned by session %s, and this process is not in its cluster",
			ErrUnavailable, a.p.Number(), ans.Record.Owner)
		return a.settle(err, false, jitter(o.RetryEvery))
	}
	return a.settle(fmt.Errorf("%w: the arbiter answered %v", ErrUnavailable, ans.Verdict), false, o.RetryEvery)
}

// remove has a dead session's requests removed from the key's queue: all by the next call. An arbiter of the user's may know of no
// [fallback.LockRequest.Gone]: then the request by its name.
func (a *contender) remove(r fallback.Release) time.Duration {
	a.named = "" // it is there still, or again: it may have been under way
	if a.gone != r.Session {
		a.gone = r.Session
		return 0
	}
	return a.settle(nil, false, a.drop(r))
}

// drop has a dead session's request removed, and returns the pause after that. If it is there
// again, the release is under way, or it waits for another name of the key: with Promised the
// arbiter does not tell the name. So each pause is longer. After the longest ones the request is
// removed again, as it may have come late.
func (a *contender) drop(r fallback.Release) time.Duration {
	x, most := &a.drops, a.p.c.opts.RetryEvery
	if x.id != r.Identity {
		*x = dropped{id: r.Identity}
	}
	pause := min(firstDrop<<min(x.seen, 16), most)
	if x.seen == 0 || pause == most {
		a.p.c.debts.releases.add(r)
	}
	x.seen++
	return jitter(pause)
}

const firstDrop = 5 * time.Millisecond

// ofOlderData reports whether an answer is of older data than this process had seen when it made the request.
func ofOlderData(ans fallback.LockAnswer, known fallback.Token) bool {
	return ans.Record.Grace == 0 && (ans.Record.Epoch < known.Epoch() || ans.Verdict == fallback.Granted && ans.Token <= known)
}

// refuse gives back a grant from older data, and tells the arbiter. It returns as judge does.
func (a *contender) refuse(ans fallback.LockAnswer, known fallback.Token) time.Duration {
	p := a.p
	if ans.Verdict == fallback.Granted {
		var after after
		p.mu.Lock()
		p.Disown(a.Contender, &after.Effects)
		p.unlock(&after)
		after.do(p.c)
		// The grant has used up a number. The record may be at the known token by now, so the
		// arbiter is told of the next epoch.
		known = max(known, fallback.MakeToken(ans.Record.Epoch+1, 0))
	}
	o := &p.c.opts
	// Not ended by the caller's ctx, like the request.
	r, err := p.c.contradict(context.Background(), p, known)
	if err != nil {
		return a.settle(fmt.Errorf("%w: the arbiter has older data than before: %w", ErrUnavailable, err), false, jitter(o.RetryEvery))
	}
	err = fmt.Errorf("%w: the arbiter has older data than before, nothing is granted for %v (Options.Grace)", ErrUnavailable, r.Grace)
	return a.settle(err, false, min(r.Grace+time.Millisecond, o.RenewEvery))
}

// heldBy notes the session that has the key, and whether another request waits before this one. ans
// is the answer to the call that was sent at the time sent.
func (a *contender) heldBy(ans fallback.LockAnswer, sent time.Time) {
	a.p.mu.Lock()
	defer a.p.mu.Unlock()
	epoch := uint32(0)
	if ans.Behind {
		epoch = ans.Record.Epoch
	}
	a.p.HeldBy(a.Contender, ans.Holder.Session, epoch, sent)
}

// lookAgainIn is how long to wait at most for a message about a key that is held at the arbiter. In a cluster the partition is
// about to be owned, and contenders that wait at the arbiter are not told. As a rule that takes milliseconds, so the first waits
// are short, and each is a little longer.
func (a *contender) lookAgainIn() time.Duration {
	p, o := a.p, &a.p.c.opts
	p.mu.Lock()
	p.AwaitRoute() // before the look: a change of the ring after it pokes the contender
	p.mu.Unlock()
	switch {
	case p.c.cluster.route(p.Number()).Known():
		a.looks++
		return lease.Pause(a.looks, o.RetryEvery/2)
	case silent(p.c.remote.ns):
		return o.RetryEvery
	}
	return o.RenewEvery
}

// redirect goes to the owner of the partition, as the arbiter says. The owner is asked through the arbiter to let go only if this node has had
// no stream to it for a while: never because a key is held or slow (rule 10). A dead owner's partition is taken, and demoted.
func (a *contender) redirect(r fallback.Record) time.Duration {
	p := a.p
	x, o := p.c.cluster, &p.c.opts
	p.mu.Lock()
	p.AwaitStream(a.Contender, r) // before the look: a stream that comes after it pokes the contender
	p.mu.Unlock()
	if l := x.linkTo(r.Owner); l != nil {
		return a.goTo(l)
	}
	if s := p.c.sessions.current(); s != nil && s.ID == r.Owner {
		return a.goHome()
	}
	_, dead := p.c.sessions.others.ask(a, p.c, r.Owner)
	if dead {
		p.mu.Lock()
		p.AwaitRoute() // before the look: a change of the ring after it pokes the contender
		p.mu.Unlock()
	}
	switch to := x.route(p.Number()); {
	case dead && to.Mine:
		p.take()
	case dead && to.Link != nil: // the next owner, which takes it
		return a.goTo(to.Link)
	case dead && x.outdated(p.Number()):
	case dead, x.unreached.long(r.Owner, p.c.now(), o):
		p.makeShared(a, r)
	}
	pause := o.RetryEvery
	if dead { // it has another owner within milliseconds, or none
		a.looks++
		pause = lease.Pause(a.looks, o.RetryEvery)
	}
	err := fmt.Errorf("%w: partition %d is owned by session %s, and there is no stream to it", ErrUnavailable, p.Number(), r.Owner)
	return a.settle(err, false, jitter(pause))
}

// goTo sends the request to an owner. It returns -1 if it did, and otherwise the pause before the
// arbiter is asked again.
func (a *contender) goTo(owner lease.Link) time.Duration {
	var after after
	now := a.p.lock()
	pause, done := a.p.Redirect(a.Contender, owner, now, &after.Effects)
	a.p.unlock(&after)
	after.do(a.p.c)
	if done {
		return -1
	}
	return jitter(pause)
}

// goHome is goTo where the arbiter has named this node.
func (a *contender) goHome() time.Duration {
	var after after
	now := a.p.lock()
	done := a.p.Home(a.Contender, now, &after.Effects)
	a.p.unlock(&after)
	after.do(a.p.c)
	if done {
		return -1
	}
	return jitter(a.p.c.opts.RetryEvery / 2)
}

// take begins to acquire the partition.
func (p *partition) take() {
	var a after
	now := p.lock()
	p.Take(now)
	p.unlock(&a)
	a.do(p.c)
}

// settle notes the trouble (nil: the key is locked) for callers that give up, and sends those away that only try, or all. It
// returns pause, or -1 if no caller is left.
func (a *contender) settle(trouble error, all bool, pause time.Duration) time.Duration {
	var after after
	p := a.p
	now := p.lock()
	left := p.Settle(a.Contender, trouble, all, now, &after.Effects)
	p.unlock(&after)
	after.do(p.c)
	if !left {
		return -1
	}
	return pause
}

// pause waits until it is time to ask again, or sooner if something changed: a message wakes the one waiter that the key is promised to, and
// the timer all the others, as messages get lost (rule 15).
func (a *contender) pause(s *session, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-a.wake:
	case <-s.ended:
	case <-a.over:
	}
}

// withdraw takes the request back if it did not become a hold (rule 11).
func (a *contender) withdraw() {
	var after after
	p := a.p
	now := p.lock()
	p.Withdraw(a.Contender, errGoexit, now, &after.Effects)
	p.unlock(&after)
	after.do(p.c)
}
