package coord

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/internal/guardians"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/ring"
)

// run pings the session's guardians, changes them, and votes, until the session has ended.
func (g *guarded) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for last := g.c.now(); ; {
		select {
		case <-timer.C:
		case <-g.wakes.look:
		case <-ctx.Done():
			return
		}
		now := g.c.now()
		stood := now.Sub(last) > g.times.Promise/4
		last = now
		timer.Reset(max(g.once(now, stood), time.Millisecond))
	}
}

// leased is the session's: it notes that the arbiter has acknowledged the session until a time.
func (g *guarded) leased(until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end.leaseEnds = until
	g.publish(g.c.now())
}

// leaseEnds is the session's.
func (g *guarded) leaseEnds() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.end.leaseEnds
}

// why is the session's: it returns why the session has ended.
func (g *guarded) why() error {
	ends := g.leaseEnds()
	acknowledged := ends.Add(-g.c.opts.lease())
	if lease.Past(ends, g.c.now()) {
		return g.c.because(errExpired, g.s, acknowledged)
	}
	return g.c.because(errForsaken, g.s, acknowledged)
}

// over is the session's: it ends the session for every reader.
func (g *guarded) over() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end.ended = true
	g.ward.End()
	g.s.Extend(time.Time{})
}

// due reports whether it is time for the next pings, and votes that are repeated. g.mu is held.
func (g *guarded) due(now time.Time) bool {
	if g.untilDue(now) > time.Millisecond {
		return false
	}
	g.contact.pinged = now
	return true
}

// untilDue returns the time from now until the next pings are due. g.mu is held.
func (g *guarded) untilDue(now time.Time) time.Duration {
	return g.times.Promise/looksPerPromise - now.Sub(g.contact.pinged)
}

// wake makes run look.
func (g *guarded) wake() {
	select {
	case g.wakes.look <- struct{}{}:
	default:
	}
}

// once does the due work, and returns the time until its next look: when work is due, or the next
// promise to another session passes. stood: this process has stood still, so pings may have come
// that it has not read.
func (g *guarded) once(now time.Time, stood bool) (next time.Duration) {
	x := g.c.cluster
	live, last := x.answering(now, g.times.Promise/3) // a promise lasts for as long again, to change the set in
	var out outbox
	g.mu.Lock()
	g.publish(now)
	if stood {
		g.contact.resumed = now
	}
	at := g.instant(now)
	again := g.due(now)
	if g.change(live, last, now, at, again, &out) || again {
		for _, session := range g.ward.Guardians() {
			g.ping(session, at, &out)
		}
		g.publish(now) // as these pings may cover more
	}
	mono := g.monotonic(now)
	if stood && guard.Resumed {
		g.guard.Resumed(mono, g.times.Promise/3)
	}
	votes := g.guard.Look(mono)
	if again { // these among them
		votes = g.guard.Standing()
	}
	for _, v := range votes {
		for _, member := range v.Set.Members {
			if member != g.s.ID {
				out.add(x.linkTo(member), voteFrame(v))
			}
		}
	}
	burials := g.burials()
	next = min(g.guard.Next()-mono, g.untilDue(now))
	g.mu.Unlock()
	if again {
		x.queuePings(&out)
	}
	out.flush()
	for _, b := range burials {
		g.c.background(func() { g.bury(b) })
	}
	return next
}

// change looks after the set of guardians. live are the sessions that have answered lately, and
// last is when one did. due: pings are. It reports whether there is another set to be asked for
// promises. After this process stood still the guardians' silence may be its own: until the next
// pings are due, it keeps those with a stream. g.mu is held.
func (g *guarded) change(live []string, last, now time.Time, at guardians.Instant, due bool, out *outbox) (proposed bool) {
	recorded, next, phase := g.ward.Sets()
	// A wall clock that steps there and back moves the ward's clock on for good, and no deadline
	// with it.
	g.ward.Relied(at + lease.Left(g.s.Deadline(), now))
	if phase == guardians.Asked || g.ask(now, at) {
		g.renewNow(g.contact.asked) // until an answer tells which set is recorded
		return false
	}
	present := recorded
	if phase == guardians.Collecting {
		present = next
	}
	if now.Sub(g.contact.resumed) < g.times.Promise/looksPerPromise {
		for _, member := range present.Members {
			if !slices.Contains(live, member) && g.reaches(member) {
				live = append(live, member)
			}
		}
	}
	want := guardians.Choose(g.s.ID, present.Members, live)
	// A member's promise for a version that it has voted on is worth nothing (G5): a next version
	// is proposed, if need be with the same members.
	voted := slices.ContainsFunc(present.Members, func(member string) bool {
		_, v := g.ward.Promise(member)
		return v >= present.Version
	})
	slices.Sort(want)
	if len(want) == 0 && !due && g.contact.silent.IsZero() && len(present.Members) > 0 && !slices.ContainsFunc(present.Members, g.reaches) {
		return false // all streams have just ended: some may be back before pings are due
	}
	// D/4 is a ping, and half of the time to the next one: no answer to the last ping has come.
	overdue := len(present.Members) > 0 && now.Sub(last) >= g.times.Promise/4
	if g.deaf(overdue, len(want) == 0, now) && guard.Deaf {
		return false
	}
	if !voted && slices.Equal(want, slices.Sorted(slices.Values(present.Members))) {
		return false
	}
	proposed = g.ward.Propose(want)
	for _, session := range next.Members { // of a proposal that this one replaces
		if proposed && !slices.Contains(g.ward.Guardians(), session) {
			g.ping(session, at, out) // so that it need not vote
		}
	}
	if proposed && g.ask(now, at) { // at once if it is to have none
		g.renewNow(now)
	}
	return proposed
}

// reaches reports whether there is a stream to a session's node.
func (g *guarded) reaches(session string) bool { return g.c.cluster.linkTo(session) != nil }

// ask is Ward.Ask, and notes when it was so. g.mu is held.
func (g *guarded) ask(now time.Time, at guardians.Instant) bool {
	asks := g.ward.Ask(at)
	if asks {
		g.contact.asked = now
	}
	return asks
}

// deaf reports whether no session is left to guard this node, and this node has heard nothing of
// the arbiter since it noticed. Its requests may be executed all the same: a session that then gave
// up its guardians would be buried by none, and yet end for want of an answer. The renewal that
// tells is wanted as soon as all answers are overdue, and not when all guardians count as gone:
// another one, for the set without them, has to be answered after it while the last promise lasts.
// g.mu is held.
func (g *guarded) deaf(overdue, gone bool, now time.Time) bool {
	switch {
	case !overdue:
		g.contact.silent = time.Time{}
		return false
	case g.contact.silent.IsZero():
		g.contact.silent = now
	}
	if !g.contact.renewed.Before(g.contact.silent) {
		return false
	}
	if guard.Overdue {
		g.renewNow(g.contact.silent)
	}
	return gone
}

// renewNow has the session renewed by a call that is sent since then.
func (g *guarded) renewNow(since time.Time) {
	select {
	case g.wakes.renew <- since:
	default: // a call is about to be sent
	}
}

// ping asks a guardian for a promise. g.mu is held.
func (g *guarded) ping(session string, at guardians.Instant, out *outbox) {
	l := g.c.cluster.linkTo(session)
	if l == nil {
		return
	}
	out.add(l, pingFrame(g.s.ID, g.ward.Ping(session, at), g.times))
}

// leave tells the guardians that they are none any more, as the session is closed: none is to vote.
func (g *guarded) leave() {
	if g == nil {
		return
	}
	var out outbox
	g.mu.Lock()
	at := g.instant(g.c.now())
	for _, session := range g.ward.Guardians() {
		p := guardians.Ping{Seq: g.ward.Ping(session, at).Seq} // without sets
		out.add(g.c.cluster.linkTo(session), pingFrame(g.s.ID, p, g.times))
	}
	g.mu.Unlock()
	out.flush()
}

// needed reports whether a session may need this node as its guardian yet.
func (g *guarded) needed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.guard.Needed()
}

// burials returns the burials that no call is under way for. g.mu is held.
func (g *guarded) burials() (list []guardians.Burial) {
	for _, b := range g.guard.Burials() {
		if !g.burying[b.Ward] {
			g.burying[b.Ward] = true
			list = append(list, b)
		}
	}
	return list
}

// mayGuard has this node's session look for guardians if it has none, and has asked for none: another
// node has answered for the first time. Until it has some, it ends by its expiry only. A session
// that has guardians waits for its next look: each change costs renewals.
func (x *cluster) mayGuard() {
	if s := x.c.sessions.current(); s != nil && s.guarded != nil && s.guarded.unguarded() {
		s.guarded.wake()
	}
}

// lostGuardian has this node's session look after its guardians if the stream to one of them has
// ended: perhaps its process was killed. Until the arbiter has recorded a set without it, the
// others may be too few to bury this session.
func (x *cluster) lostGuardian(session string) {
	s := x.c.sessions.current()
	if s == nil || s.guarded == nil {
		return
	}
	s.guarded.mu.Lock()
	defer s.guarded.mu.Unlock()
	if slices.Contains(s.guarded.ward.Guardians(), session) {
		s.guarded.wake()
	}
}

// unguarded reports whether the session has no guardians, and the arbiter is not asked for any.
func (g *guarded) unguarded() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	recorded, _, phase := g.ward.Sets()
	return len(recorded.Members) == 0 && phase != guardians.Asked
}

// answering returns the sessions that may guard this node's: their nodes take part, do not leave,
// and have answered within the time. last is when such a session answered at last, within the time
// or not.
func (x *cluster) answering(now time.Time, within time.Duration) (sessions []string, last time.Time) {
	v := x.ring.View()
	for _, l := range x.all() {
		session, at := l.lastAnswer()
		if session == "" || l.Down() {
			continue
		}
		k, ok := x.members.card(l.s.Node())
		if !ok || k.Takeover != x.c.opts.takeover() {
			continue
		}
		if n, ok := v.Node(l.s.Node()); ok && n.State == ring.Leaving || x.members.gone(l.s.Node()) {
			continue
		}
		if at.After(last) {
			last = at
		}
		if now.Sub(at) < within {
			sessions = append(sessions, session)
		}
	}
	return sessions, last
}
