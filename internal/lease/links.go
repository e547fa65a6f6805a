package lease

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/peer"
)

// State puts the holds that were granted by the node at the other end on the stream.
func (p *Partition) State(l Link, fx *Effects) {
	if p.basis.remote == 0 {
		return
	}
	for key, k := range p.table.keys {
		if k.q.State() == handoff.Idle || k.hold.from == nil || k.hold.from.Node() != l.Node() {
			continue
		}
		p.meets(l)
		p.send(l, peer.Resume, key, k.hold.row.Identity).Token = uint64(k.hold.row.Token)
	}
}

// Stated: the other node has stated all its holds. A grant of this node's that was not among them
// is free (rule 12).
func (p *Partition) Stated(l Link, session string, now time.Time, fx *Effects) {
	if p.own == nil {
		return
	}
	for _, k := range p.table.keys {
		g := k.others
		if g == nil || g.imported || g.node != l.Node() || g.holder == (fallback.Identity{}) {
			continue
		}
		if g.link != l || g.holder.Session != session { // the holds of a session that has ended are over, too
			p.freeHolder(k, now, fx)
		}
	}
}

// Resumed: the other node states that it has a hold, or offers it (rule 17). If the hold is in this
// node's table, it is granted once more, at the present epoch.
func (p *Partition) Resumed(l Link, id fallback.Identity, key string, now time.Time, fx *Effects) {
	k := p.table.keys[key]
	if k == nil || k.others == nil || k.others.holder != id || id.Session != l.Session() {
		return
	}
	p.meets(l)
	lost := k.others.link != l && !k.others.recalled.IsZero()
	k.others.link = l
	if !p.serves(now) {
		return
	}
	if lost { // the recall may have been, with the stream of before
		p.send(l, peer.Recall, k.name, k.others.holder)
	}
	ping, left, _ := l.Offer(p.ownedUntil())
	if left == 0 {
		return
	}
	k.others.vouched = true
	f := p.send(l, peer.Grant, k.name, k.others.holder)
	f.Epoch, f.Token, f.Ping, f.Left = p.own.epoch, uint64(k.others.token), ping, left // and no count
}

// vouched: the owner answers for a hold that this node has (rule 17). From now on the hold rests on
// that, and its row, which stays, is looked after no more.
func (p *Partition) vouched(l Link, h *hold, epoch uint32, deadline time.Time, pongs uint64, now time.Time) {
	s := p.cfg.View.Session()
	if h.source == SourceOwn || h.source == SourceHome || p.own != nil || h.session != s || epoch < h.epoch || Past(deadline, now) {
		return
	}
	next := hold{source: SourceOwner, from: l, announced: deadline, pongs: pongs}
	if !p.cfg.View.Adoption().Trusts(false, next.announcedUntil().Sub(now)) {
		return // with so little left it would be adopted again at once
	}
	if !h.remote() {
		p.basis.remote++
	}
	step(&h.source, SourceOwner, nextSources[:])
	p.basis.common.known = false
	h.from, h.epoch, h.announced, h.pongs = l, epoch, deadline, pongs
	h.confirmed, h.rowed = time.Time{}, true
}

// Cut: a stream has ended. Its grants stay; the requests that waited over it are made again.
func (p *Partition) Cut(l Link, now time.Time, fx *Effects) {
	i := slices.Index(p.table.links, l)
	if i < 0 {
		p.assertCut(l)
		return
	}
	p.table.links = slices.Delete(p.table.links, i, i+1)
	if p.moving.giver == l {
		p.moving.giver = nil
	}
	p.moving.parked = slices.DeleteFunc(p.moving.parked, func(x parked) bool { return x.link == l })
	for _, k := range p.table.keys {
		if k.others != nil {
			k.others.queue = slices.DeleteFunc(k.others.queue, func(c claimant) bool { return c.link == l })
			if k.others.link == l {
				k.others.link, k.others.alone, p.table.unsure = nil, p.aloneSince(l, now), true
			}
			p.grantNext(k, now, fx)
		}
		if k.request.link == l {
			k.request = request{}
			p.want(k, now, fx, true)
		}
	}
}

// Usage calls f with the stream of each node that holds or waits for a key of this node's
// partition, once per key.
func (p *Partition) Usage(f func(Link)) {
	for _, x := range p.moving.parked {
		f(x.link)
	}
	if p.own == nil {
		return
	}
	for _, k := range p.table.keys {
		if k.others == nil {
			continue
		}
		if k.others.link != nil && k.others.holder != (fallback.Identity{}) {
			f(k.others.link)
		}
		for _, c := range k.others.queue {
			if c.link != nil {
				f(c.link)
			}
		}
	}
}
