package lease

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/peer"
)

// Wanted returns a channel that is closed when another caller or node asks for the key of a turn,
// or when the turn ends. It is closed already if that has happened.
func (p *Partition) Wanted(t *Turn, fence uint64) <-chan struct{} {
	k := t.Key(fence)
	if k == nil {
		return wantedAlready
	}
	if k.wanted == nil {
		k.wanted = make(chan struct{})
		t.OnEnd(func(error) {}) // an Unlock in the usual case would leave the channel open
		if k.isWanted() {
			k.tellWanted()
		}
	}
	return k.wanted
}

// HasWaiters reports whether callers of this process wait for a key that another node, or the arbiter,
// is asked for.
func (p *Partition) HasWaiters() bool {
	for _, k := range p.table.keys {
		if k.contender != nil || k.request.link != nil {
			return true
		}
	}
	return false
}

// Recalled: the owner wants a key back, or asks whether this node has it at all.
func (p *Partition) Recalled(l Link, f *peer.Frame, now time.Time, fx *Effects) {
	k := p.table.keys[string(f.Key)]
	switch {
	case k != nil && k.q.State() != handoff.Idle && k.hold.row.Request == f.Request && k.hold.source != SourceOwn:
		p.recallHere(k, now, fx)
	case k != nil && k.request.link != nil && k.request.number == f.Request:
		k.asked = true // about to be had
	case k != nil && k.contender != nil && k.contender.id.Request == f.Request:
		k.contender.asked = true // it may become a hold, which is recalled at once then
	default:
		id := ours(f)
		p.send(l, peer.Deny, string(f.Key), id)
		// As a rule a recall has met the release that is on its way. If there was a row, the owner
		// that has read it removes it. If it only asks, this node removes it itself, but no row of
		// another session: the owner may be mistaken, and rows of dead sessions are evicted.
		if s := p.cfg.View.Session(); f.Kind == peer.Ask && s != nil && id.Session == s.ID && !p.toCome(id) {
			fx.Heard = append(fx.Heard, p.ReleaseOf(string(f.Key), id))
		}
	}
}

// notHeld: a node says that it has not got the hold of a key, which it was asked for. If it is the
// one that has it as far as this node, the owner, knows, the key is free.
func (p *Partition) notHeld(l Link, key string, id fallback.Identity, now time.Time, fx *Effects) {
	k := p.table.keys[key]
	if k == nil || k.others == nil || k.others.holder != id || k.others.link != l && k.others.holder.Session != l.Session() {
		return
	}
	if k.others.imported {
		fx.Releases = append(fx.Releases, p.ReleaseOf(k.name, k.others.holder))
	}
	p.freeHolder(k, now, fx)
}

// Released: another node gives the hold id back, or gives up its wait.
func (p *Partition) Released(l Link, f *peer.Frame, id fallback.Identity, now time.Time, fx *Effects) {
	if len(p.moving.parked) > 0 {
		waits := len(p.moving.parked)
		p.moving.parked = slices.DeleteFunc(p.moving.parked, func(x parked) bool { return x.link == l && x.id == id })
		l.Use(len(p.moving.parked) - waits)
	}
	k := p.table.keys[string(f.Key)]
	if p.own == nil && !Over(p.bounds.announcedEnds, now) && f.Kind == peer.Release && id.Session == l.Session() {
		// It was given back before it was known that this node has given the partition back, with a
		// row for it.
		p.unrow(p.ReleaseOf(string(f.Key), id), fx)
	}
	if k == nil || k.others == nil {
		return
	}
	g := k.others
	if waits := len(g.queue); waits > 0 {
		g.queue = slices.DeleteFunc(g.queue, func(c claimant) bool { return c.link == l && c.id == id })
		l.Use(len(g.queue) - waits)
	}
	if g.holder == id && (g.link == l || id.Session == l.Session()) {
		l.Use(-1)
		g.holder, g.link = fallback.Identity{}, nil
	}
	p.grantNext(k, now, fx)
}
