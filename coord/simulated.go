package coord

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// What simulations need, and nobody else can reach.
func init() {
	wire.Use = func(cluster any, h wire.Host) { cluster.(*Cluster).host = h }
	wire.Session = func(c any) (string, time.Time) {
		if s := c.(*Coordinator).sessions.current(); s != nil {
			return s.id, s.deadline()
		}
		return "", time.Time{}
	}
	wire.Serves = func(c any, number uint32) (uint32, time.Time) {
		p := &c.(*Coordinator).parts[number]
		if !p.mu.TryLock() {
			return 0, time.Time{}
		}
		defer p.mu.Unlock()
		if p.own == nil {
			return 0, time.Time{}
		}
		return p.own.epoch, p.ownedUntil()
	}
	wire.Holding = func(c any, key string) (wire.Hold, time.Time) {
		p := c.(*Coordinator).partitionOf(key)
		if !p.mu.TryLock() {
			return wire.Hold{}, time.Time{}
		}
		defer p.mu.Unlock()
		e := p.entries[key]
		if e == nil || e.q.State() == handoff.Idle {
			return wire.Hold{}, time.Time{}
		}
		h := &e.hold
		d := p.deadlines(h)
		return wire.Hold{
			Session: h.row.Session, Request: h.row.Request, Own: h.source == sourceOwn || h.source == sourceHome, Owned: h.epoch,
		}, earlier(d.session, d.slot)
	}
	wire.Granted = func(c any, key string) (epoch uint32, session string, request uint64, until time.Time) {
		p := c.(*Coordinator).partitionOf(key)
		if !p.mu.TryLock() {
			return 0, "", 0, time.Time{}
		}
		defer p.mu.Unlock()
		if p.own == nil {
			return 0, "", 0, time.Time{}
		}
		if e := p.entries[key]; e != nil && e.g != nil {
			session, request = e.g.holder.Session, e.g.holder.Request
		}
		return p.own.epoch, session, request, p.ownedUntil()
	}
	wire.Forget = func(c any, key string) {
		p := c.(*Coordinator).partitionOf(key)
		p.mu.Lock()
		defer p.mu.Unlock()
		if e := p.entries[key]; e != nil && e.g != nil {
			e.g.holder, e.g.link = fallback.Identity{}, nil
		}
	}
	wire.State = func(c any, key string) string { return c.(*Coordinator).partitionOf(key).describe(key) }
}

// describe tells what this node knows of a key.
func (p *partition) describe(key string) string {
	var s strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&s, format+"; ", args...) }
	now := p.c.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	say("session %.4s, partition %d", p.c.sessions.id(), p.number)
	if o := p.own; o != nil {
		say("owned by session %.4s at %d", o.session.id, o.epoch)
	}
	say("%v, %v, %v, %v", p.phase, p.naming, p.ending, p.checking)
	if !past(p.reliedUntil, now) {
		say("an earlier epoch is believed")
	}
	say("should be %+v, never %d, %d parked", p.c.cluster.route(p.number).mine, p.forsworn, len(p.parked))
	e := p.entries[key]
	if e == nil {
		return s.String()
	}
	say("%v, %d wait", e.q.State(), e.q.Waiting())
	if e.q.State() != handoff.Idle {
		h := &e.hold
		say("hold of session %.4s with row %v, confirmed %.3f s ago, rests on %v at %d, recalled %v",
			h.session.id, h.row, now.Sub(h.confirmed).Seconds(), h.source, h.epoch, e.q.Recalled())
		d := p.deadlines(h)
		say("session's deadline in %.3f s, slot's in %.3f s", d.session.Sub(now).Seconds(), d.slot.Sub(now).Seconds())
	}
	if e.acq != nil {
		say("asks the arbiter as %v: %v", e.acq.id, e.acq.trouble)
	}
	if l := e.forward.link; l != nil {
		say("asks %v as %v", l.s, e.forward.id)
	}
	if g := e.g; g != nil {
		say("granted to %v, imported %v, recalled %v, stream %v, %d nodes wait", g.holder, g.imported, !g.recalled.IsZero(), g.link != nil, len(g.queue))
		if g.holder == (fallback.Identity{}) {
			say("to nobody")
		}
	}
	return s.String()
}
