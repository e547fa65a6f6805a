package coord

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/peer"
)

// lastSeq is when an epoch's tokens begin to run out: the partition is demoted and taken again; and noSeq when nothing is
// granted any more.
const lastSeq, noSeq = 1 << 31, 1<<32 - 1<<16

// ownership is a partition that this node serves: from the answer to Acquire until it begins to demote it (I4).
type ownership struct {
	session   *session
	epoch     uint32
	seq       uint32    // of the last token given out
	confirmed time.Time // when the last call was sent whose answer confirmed it

	// A moment until which it is good, by the monotonic and by the wall clock; see good.
	goodUntil time.Time
	goodWall  int64

	quickUntil moment // until then the monotonic clock alone decides; see quick
}

// serves tells whether this node may grant the partition's keys now (rule 1).
func (p *partition) serves(now time.Time) bool {
	o := p.own
	if !guard.Lapse {
		return o != nil && o.seq < noSeq
	}
	return o != nil && o.seq < noSeq && !past(o.session.deadline(), now) && !past(o.confirmed.Add(p.c.opts.lease()), now)
}

// good tells whether this node may grant the partition's keys now: serves, as a rule by two comparisons.
func (o *ownership) good(p *partition, now time.Time) bool {
	if !now.Before(o.goodUntil) || now.UnixNano() >= o.goodWall || o.seq >= noSeq {
		if !p.serves(now) {
			return false
		}
		// The earlier by each clock. They only move on, as long as the partition is owned.
		a, b := o.session.deadline(), o.confirmed.Add(p.c.opts.lease())
		o.goodUntil, o.goodWall = a, min(a.UnixNano(), b.UnixNano())
		if b.Before(a) {
			o.goodUntil = b
		}
	}
	o.quickUntil = min(p.c.at(now)+wallEvery, p.c.at(o.goodUntil))
	return true
}

// wallEvery is for how long, of the time that the process runs, the wall clock is not read again.
const wallEvery = time.Millisecond

// quick is good for grants that follow each other closely. To read both clocks is half of what such a grant costs. The
// wall clock is there for a machine that is suspended, during which the monotonic one stands still: it is read once
// per millisecond of the latter. So in the first millisecond after the machine goes on a key may be granted as if it had
// never stopped, as it may have been in the last one before.
func (o *ownership) quick(p *partition) (at moment, ok bool) {
	if at = p.c.moment(); at < o.quickUntil && o.seq < noSeq {
		return at, true
	}
	now := p.c.now()
	return p.c.at(now), o.good(p, now)
}

// lockOwn is Lock in the usual case of an owner: a key that was used a moment ago, and that nobody else wants. It returns
// nil in all others.
func (p *partition) lockOwn(e *entry) (*turn, uint64) {
	if e == nil || e.hold.source != sourceOwn || e.g != nil || e.q.State() != handoff.Lingering || p.ending != endingNot || p.own == nil {
		return nil, 0
	}
	at, ok := p.own.quick(p)
	if !ok {
		return nil, 0
	}
	fence := uint64(p.token(1))
	e.q.Again(fence)
	return p.begin(e, fence, PathOwn, at), fence
}

// unlockOwn is the same for Unlock. It reads no clock, for nothing is granted: a lock that is as short as most, and whose
// Context nobody has asked for, would pay half as much again for it. One in 64 takes the long way, to be measured.
func (p *partition) unlockOwn(t *turn, fence uint64) bool {
	e := t.e
	if t.fence != fence || t.lost != nil || e.hold.source != sourceOwn || e.g != nil || t.cancel != nil || p.ending != endingNot || p.traced || !e.listed ||
		p.own == nil || p.grants[PathOwn]%64 == 0 || t.began == unmeasured || !e.q.Rest() {
		return false
	}
	e.linger = t.began
	t.fence = 0
	p.ended()
	return true
}

// passOwn is the same where somebody waits in this process, and returns whom to wake. It reads no clock either: the waiter
// does, before its Lock returns, and that is the moment which counts (rule 1). Two in 64 take the long way: the first
// has its beginning measured, the second its end, and both move on until when the clock's quick reading is good.
func (p *partition) passOwn(t *turn, fence uint64) *waiter {
	e, o := t.e, p.own
	if t.fence != fence || t.lost != nil || e.hold.source != sourceOwn || e.g != nil || t.cancel != nil || p.ending != endingNot || p.traced ||
		o == nil || o.seq >= noSeq || o.goodUntil.IsZero() || p.grants[PathOwn]%64 < 2 || e.q.Recalled() || e.q.Waiting() == 0 {
		return nil
	}
	next := uint64(p.token(1))
	w := e.q.Pass(next)
	p.grants[PathOwn]++
	t.fence, t.began, e.used, e.moved = next, unmeasured, true, 0
	s := w.Value
	s.turn, s.valid, s.path, s.quickUntil = t, deadlines{o.goodUntil, o.goodUntil}, PathOwn, o.quickUntil
	return w
}

// ownedUntil is until when the ownership is good.
func (p *partition) ownedUntil() time.Time {
	d := p.own.confirmed.Add(p.c.opts.lease())
	if s := p.own.session.deadline(); s.Before(d) {
		return s
	}
	return d
}

// answersUntil is until when everything is good that this node serves: what it announces to others. c.confirmations is locked.
func (c *Coordinator) answersUntil(now time.Time) time.Time {
	s := c.sessions.current()
	if s == nil {
		return now
	}
	d := s.deadline()
	if slot := c.confirmations.oldest.Add(c.opts.lease()); !c.confirmations.oldest.IsZero() && slot.Before(d) {
		return slot
	}
	return d
}

// take begins to acquire the partition, unless it has just been tried in vain. It reports whether the answer is to be
// waited for. p.mu is held.
func (p *partition) take() bool {
	switch {
	case p.phase == phaseAcquiring:
		return true
	case p.ending != endingNot || p.phase != phaseUnowned || p.c.now().Before(p.notBefore) || p.c.sessions.current() == nil:
		return false
	}
	step(&p.phase, phaseAcquiring, nextPhases[:])
	p.c.work.Add(1)
	p.c.pool.Go(func() {
		defer p.c.work.Done()
		p.acquireOwnership()
	})
	return true
}

// acquireOwnership takes the partition if nobody alive owns it, and then serves or sends away those that wait for it.
func (p *partition) acquireOwnership() {
	c := p.c
	if s := c.sessions.current(); s != nil {
		p.tryAcquire(s)
	}
	var a after
	now := p.c.now()
	p.mu.Lock()
	if p.phase == phaseAcquiring { // else serve has ended it
		step(&p.phase, phaseUnowned, nextPhases[:])
		p.notBefore = now.Add(c.opts.RetryEvery)
		p.acquired(now, &a)
	}
	p.mu.Unlock()
	a.do(c)
}

// acquired serves or sends away what waited for the end of phaseAcquiring.
func (p *partition) acquired(now time.Time, a *after) {
	waiting := p.parked
	p.parked = nil
	p.hearAgain()
	p.wantAll(now, a, p.own == nil)
	for _, x := range waiting {
		switch {
		case x.link.down.Load():
		case p.serves(now):
			p.request(x.claimant, x.key, x.try, now, a)
		default:
			a.send(x.link, p.frame(peer.Moved, x.key, x.id))
		}
	}
}

// tryAcquire makes the calls.
func (p *partition) tryAcquire(s *session) {
	c := p.c
	known := p.known()
	r, err := c.witness(c.ctx, p, known)
	if err != nil || r.Grace > 0 {
		return
	}
	expect := fallback.Expect{Epoch: r.Epoch, Owner: r.Owner}
	switch {
	case r.Owner == s.id:
		p.unserved(s, r.Epoch, true)
		return
	case r.Owner != "":
		if _, expect.OwnerDead = c.liveness.ask(nil, c, r.Owner); !expect.OwnerDead {
			p.pressOwner(r)
			return
		}
	}
	// An answer that is lost is asked for again: Acquire knows its own retry.
	for {
		sent := p.c.now()
		call, cancel := context.WithTimeout(c.ctx, c.opts.CallTimeout)
		got, err := c.ns.Acquire(call, p.number, s.id, expect)
		cancel()
		c.called(OpOwnership, sent, err)
		switch {
		case err == nil && got.Verdict == fallback.Granted && got.Record.Epoch <= known.Epoch(): // of older data than a moment ago
			p.unserved(s, got.Record.Epoch, true)
			return
		case err == nil && got.Verdict == fallback.Granted:
			if !p.serve(s, got, sent) {
				p.unserved(s, got.Record.Epoch, true)
			}
			return
		case err == nil:
			return
		case past(s.deadline(), p.c.now()) || c.ctx.Err() != nil:
			return
		}
		select {
		case <-time.After(jitter(c.opts.RetryEvery)):
		case <-c.ctx.Done():
		}
	}
}

// unserved demotes a record that names this session though it does not serve it (rule 6), once everything announced at
// that epoch has passed.
func (p *partition) unserved(s *session, epoch uint32, taking bool) {
	p.mu.Lock()
	wait := p.own != nil || p.phase == phaseDemoting || p.phase == phaseAcquiring && !taking || !past(p.announcedEnds, p.c.now())
	p.mu.Unlock()
	if wait || !p.forswear(epoch) {
		return
	}
	ctx, cancel := context.WithTimeout(p.c.ctx, p.c.opts.CallTimeout)
	defer cancel()
	start := p.c.now()
	_, err := p.c.ns.DemoteUnserved(ctx, p.number, s.id, epoch)
	p.c.called(OpOwnership, start, err)
}

// forswear makes sure that an epoch is never served, because it is about to be demoted (rule 6). It reports false if it is
// served already.
func (p *partition) forswear(epoch uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own != nil && p.own.epoch >= epoch {
		return false
	}
	p.forsworn = max(p.forsworn, epoch)
	return true
}

// look finds out whether the arbiter's record names this node though it does not serve the partition, and mends that.
func (p *partition) look(s *session) {
	ctx, cancel := context.WithTimeout(p.c.ctx, p.c.opts.CallTimeout)
	defer cancel()
	start := p.c.now()
	r, err := p.c.ns.Load(ctx, p.number)
	p.c.called(OpVerify, start, err)
	if err != nil || r.Grace > 0 {
		return
	}
	if r.Owner == s.id {
		p.unserved(s, r.Epoch, false)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	step(&p.naming, namedElsewhere, nextNamings[:])
}

// pressOwner asks the owner of a partition that should be this node's to demote it, if there is no other way: it is not in
// this node's ring, or there is no stream to it, and that for a while.
func (p *partition) pressOwner(r fallback.Record) {
	x := p.c.cluster
	if x.linkTo(r.Owner) != nil || !x.ring.View().Stable() {
		p.mu.Lock()
		p.unreachableSince = time.Time{}
		p.mu.Unlock()
		return
	}
	now := p.c.now()
	p.mu.Lock()
	first := p.unreachableSince.IsZero()
	if first {
		p.unreachableSince = now
	}
	due := now.Sub(p.unreachableSince) > p.c.opts.RenewEvery
	p.mu.Unlock()
	if first || !due || r.Revoked {
		return
	}
	ctx, cancel := context.WithTimeout(p.c.ctx, p.c.opts.CallTimeout)
	defer cancel()
	start := p.c.now()
	err := p.c.ns.Revoke(ctx, p.number, r.Epoch, p.c.sessions.id())
	p.c.called(OpOwnership, start, err)
}

// serve begins to grant the partition's keys, if the answer came in time. What the arbiter knows of is held already. It reports
// whether it does.
func (p *partition) serve(s *session, got fallback.Acquisition, sent time.Time) bool {
	var a after
	now := p.c.now()
	defer func() { a.do(p.c) }()
	p.mu.Lock()
	defer p.mu.Unlock()
	o := &ownership{session: s, epoch: got.Record.Epoch, confirmed: sent}
	if past(s.deadline(), now) || past(sent.Add(p.c.opts.lease()), now) || p.ending != endingNot || o.epoch <= p.forsworn {
		if p.naming == namedElsewhere { // nothing was ever announced at this epoch
			step(&p.naming, namedPerhaps, nextNamings[:])
		}
		return false
	}
	p.own, p.unreachableSince = o, time.Time{}
	step(&p.naming, namedElsewhere, nextNamings[:])
	p.sawEpoch(got.Record)
	p.c.confirmations.add(sent)
	for key, e := range p.entries {
		if e.q.State() != handoff.Idle && e.hold.row.Identity != got.Rows[key].Identity {
			p.own = nil // the loss is not to be handed on before the rows are imported
			p.lose(e, Superseded, &a)
			p.own = o
		} else if e.q.State() != handoff.Idle {
			p.comeHome(&e.hold)
		}
	}
	for key, row := range got.Rows {
		if !guard.Import {
			continue
		}
		e := p.entry(key)
		if e.q.State() != handoff.Idle {
			continue // this node's own
		}
		if row.Session == s.id {
			if n := p.grantedByRows(e, row.Identity); n > 0 {
				if w := e.q.Take(uint64(row.Token), n, false, now); w != nil {
					e.hold = hold{session: s, row: row, confirmed: sent}
					p.oldest = earlier(p.oldest, sent)
					p.holds++
					p.seat(e, w, PathArbiter, now, &a)
					continue
				}
			}
			a.releases = append(a.releases, p.release(key, row.Identity)) // an orphan
			p.tidy(e)
			continue
		}
		// Another's; or one that was granted to an earlier session of this node, which is as dead as any other's.
		e.g = &grants{holder: row.Identity, token: row.Token, imported: true, link: p.c.cluster.linkTo(row.Session), alone: now}
	}
	// Every other request is void: it was not executed before Acquire, and after it the answer is that this node owns the
	// partition; or its grant was given back. acquired makes new ones.
	for key, e := range p.entries {
		if e.acq != nil {
			e.acq.endFlight()
			e.acq = nil
		}
		if l := e.forward.link; l != nil {
			a.send(l, p.frame(peer.Cancel, key, e.forward.id))
			e.forward = forward{}
		}
		p.tidy(e)
	}
	step(&p.phase, phaseOwned, nextPhases[:])
	p.acquired(now, &a)
	return true
}

// grantedByRows ends a request of this node's that turns out to be granted, as the partition's rows say before its own answer
// has come: nobody else must be given the key meanwhile. It returns the size of the block of tokens, 0 if there is no such
// request.
func (p *partition) grantedByRows(e *entry, id fallback.Identity) uint64 {
	switch {
	case e.acq != nil && e.acq.id == id:
		e.acq.id = fallback.Identity{} // not to be withdrawn
		e.acq.endFlight()
		e.acq = nil
		return block
	case e.forward.link != nil && e.forward.id == id:
		e.forward = forward{}
		return delegated
	}
	return 0
}
