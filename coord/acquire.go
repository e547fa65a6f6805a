package coord

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// startAcquiring makes the calls of Acquire, in the background. p.mu is held.
func (p *partition) startAcquiring() { p.c.background(p.acquireOwnership) }

// acquireOwnership takes the partition if no live session owns it. Then requests that wait for it
// are served or sent away.
func (p *partition) acquireOwnership() {
	defer func() { // also if a trace function ends the goroutine
		var a after
		now := p.lock()
		p.EndAcquire(now, &a.Effects)
		p.unlock(&a)
		a.do(p.c)
	}()
	if s := p.c.sessions.current(); s != nil {
		p.tryAcquire(s)
	}
}

// tryAcquire makes the calls: one, if the record is as this node was told. Where the arbiter does
// not answer it looks first, as a look ends.
func (p *partition) tryAcquire(s *session) {
	c := p.c
	p.mu.Lock()
	known := p.Seen()
	expect, told := p.Expected()
	p.mu.Unlock()
	if told && c.cluster.takes() && !c.cluster.outlook().Silent && p.acquireAt(s, expect, known) {
		return
	}
	known = p.known()
	r, err := c.witness(c.life.ctx, p, known)
	if err != nil || r.Grace > 0 {
		return
	}
	expect = fallback.Expect{Epoch: r.Epoch, Owner: r.Owner}
	p.mu.Lock()
	p.InTheWay(r.Owner)
	p.mu.Unlock()
	switch {
	case r.Owner == s.ID:
		p.unserved(s, r.Epoch, true)
		return
	case r.Owner != "":
		if _, expect.OwnerDead = c.sessions.others.ask(nil, c, r.Owner); !expect.OwnerDead {
			p.pressOwner(r)
			return
		}
	}
	if c.cluster.takes() { // else it was offered the partition, or is placed for it yet, or the record has named it
		p.acquireAt(s, expect, known)
	}
}

// acquireAt acquires the partition if its record is as expected. known is the highest token that
// was seen before. It reports false if the record is another one, or in Grace: a look tells.
func (p *partition) acquireAt(s *session, expect fallback.Expect, known fallback.Token) bool {
	c := p.c
	flight := c.flights.begin() // of one call each
	defer func() { c.flights.end(flight) }()
	// An answer that is lost is asked for again: Acquire knows its own retry.
	for {
		c.flights.end(flight)
		flight = c.flights.begin()
		sent := p.c.now()
		call, cancel := context.WithTimeout(c.life.ctx, c.opts.CallTimeout)
		got, err := c.remote.ns.Acquire(call, p.Number(), s.ID, expect)
		cancel()
		c.called(OpOwnership, sent, err)
		switch {
		case err == nil && got.Verdict != fallback.Granted:
			return false
		case err == nil && got.Record.Epoch <= known.Epoch(): // of older data than a moment ago
			p.unserved(s, got.Record.Epoch, true)
			return true
		case err == nil:
			if !p.serve(s, got, sent) {
				p.unserved(s, got.Record.Epoch, true)
			}
			return true
		case lease.Past(s.Deadline(), p.c.now()) || c.life.ctx.Err() != nil:
			return true
		}
		select {
		case <-time.After(jitter(c.opts.RetryEvery)):
		case <-c.life.ctx.Done():
		}
	}
}

// serve begins to grant the partition's keys, if the answer came in time. It reports whether it
// does.
func (p *partition) serve(s *session, got fallback.Acquisition, sent time.Time) bool {
	var a after
	now := p.lock()
	served := p.Serve(s.Session, got, sent, now, &a.Effects)
	if served {
		p.c.remote.confirmations.add(sent) // before the first grant is announced
	}
	p.unlock(&a)
	a.do(p.c)
	return served
}

// unserved demotes a record that names this session though it does not serve it (rule 6), once
// everything announced at that epoch has passed.
func (p *partition) unserved(s *session, epoch uint32, taking bool) {
	now := p.lock()
	// A session that is over by this node's clock ends its ownerships M later, by the arbiter's
	// clock. Its announcements count until then.
	sworn := !lease.Past(s.Deadline(), now) && p.MayForswear(taking, now) && p.Forswear(epoch)
	p.mu.Unlock()
	if !sworn {
		return
	}
	ctx, cancel := context.WithTimeout(p.c.life.ctx, p.c.opts.CallTimeout)
	defer cancel()
	start := p.c.now()
	_, err := p.c.remote.ns.DemoteUnserved(ctx, p.Number(), s.ID, epoch)
	p.c.called(OpOwnership, start, err)
}

// forswear makes sure that an epoch is never served, because it is about to be demoted (rule 6). It
// reports false if it is served already.
func (p *partition) forswear(epoch uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Forswear(epoch)
}

// look finds out whether the arbiter's record names this node though it does not serve the
// partition, and mends that.
func (p *partition) look(s *session) {
	ctx, cancel := context.WithTimeout(p.c.life.ctx, p.c.opts.CallTimeout)
	defer cancel()
	r, err := p.c.witness(ctx, p, p.known())
	if err != nil || r.Grace > 0 {
		return
	}
	if r.Owner == s.ID {
		p.unserved(s, r.Epoch, false)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.NotNamed()
}

// pressOwner asks the owner of a partition that should be this node's to demote it, if there is no
// other way: there has been no stream to it for a while, and the ring is stable.
func (p *partition) pressOwner(r fallback.Record) {
	x := p.c.cluster
	if x.linkTo(r.Owner) != nil || !x.ring.View().Stable() {
		p.mu.Lock()
		p.Reachable()
		p.mu.Unlock()
		return
	}
	now := p.lock()
	due := p.Unreachable(now)
	p.mu.Unlock()
	if !due || r.Revoked {
		return
	}
	ctx, cancel := context.WithTimeout(p.c.life.ctx, p.c.opts.CallTimeout)
	defer cancel()
	start := p.c.now()
	err := p.c.remote.ns.Revoke(ctx, p.Number(), r.Epoch, p.c.sessions.id())
	p.c.called(OpOwnership, start, err)
}
