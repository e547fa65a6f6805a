package lease

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/peer"
)

// grants is an owner's knowledge of a key that not only its own callers want.
type grants struct {
	holder   fallback.Identity // another node's hold; zero: none; the key's own queue says whether this node has it
	token    fallback.Token
	link     Link   // the holder's stream, nil if there is none
	node     string // that this node granted it to
	imported bool   // not granted by this node in this epoch: it ends by release, doubt or death only (rule 12)
	vouched  bool   // this node answers for it, though it is imported (rule 17)
	recalled time.Time
	asked    time.Time  // whether the holder has the hold
	granted  Moment     // when this node gave it the key
	alone    time.Time  // since then the holder counts as out of reach, without a link (aloneSince)
	queue    []claimant // nodes that wait, in order of arrival, each once
	group    *group     // of the key, if it is wanted in several modes
	mode     fallback.Mode
}

// claimant is a node that waits for a key. The zero claimant is this node.
type claimant struct {
	id    fallback.Identity
	link  Link
	order uint64 // of the requests for a group; 0: before there was one
}

// parked is a request that waits until this node has the partition.
type parked struct {
	claimant
	key string
	try bool
}

// delegated is the number of tokens that an owner gives to another node with a key.
const delegated = 1024

// newGrants returns grants for a key that has none.
func (p *Partition) newGrants() *grants {
	g := p.shelf.spare
	if g == nil {
		g = &grants{}
	}
	p.shelf.spare = nil
	return g
}

// Requested: another node wants a key.
func (p *Partition) Requested(l Link, id fallback.Identity, key string, try bool, now time.Time, fx *Effects) {
	switch {
	case l.Full() && !p.lessens(l, key):
		l.Refuse()
		p.send(l, peer.Deny, key, id).Flags = FlagFull
	case p.serves(now):
		p.meets(l)
		p.request(claimant{id: id, link: l}, key, try, now, fx)
	case p.closing.ending == Open && p.cfg.View.Route(p.number).Mine && p.take(now):
		p.meets(l)
		p.moving.parked = append(p.moving.parked, parked{claimant{id: id, link: l}, key, try})
		l.Use(1)
	default:
		if p.own == nil && p.record.naming == NamedElsewhere { // perhaps the record names this node, which has to look (rule 6)
			step(&p.record.naming, NamedPerhaps, nextNamings[:])
			fx.Balance = true
		}
		p.send(l, peer.Moved, key, id)
		fx.Astray = true
	}
}

func (p *Partition) request(c claimant, key string, try bool, now time.Time, fx *Effects) {
	k := p.Key(key)
	if k.q.State() != handoff.Idle && !p.InForce(k, now, fx) {
		k = p.Key(key) // the other one may have been forgotten with its hold
	}
	if try && k.q.State() == handoff.Lingering {
		k.q.Relax()
		p.giveBack(k, now, fx)
		k = p.Key(key) // giveBack may have forgotten the other one
	}
	of := k.otherSize()
	if try && k.group() != nil && p.refuses(k, now, fx) {
		if of != 0 {
			p.denySize(c, key, of)
		} else {
			p.send(c.link, peer.Deny, key, c.id).Flags = FlagBusy
		}
		return
	}
	if try && (!k.available() || k.q.Waiting() > 0) {
		p.send(c.link, peer.Deny, key, c.id).Flags = FlagBusy
		if k.q.State() == handoff.Idle && k.others != nil {
			p.recall(k, now, fx)
		}
		return
	}
	if k.others == nil {
		k.others = p.newGrants()
	}
	k.others.queue = slices.DeleteFunc(k.others.queue, func(x claimant) bool { // each node once
		if x.link != c.link {
			return false
		}
		c.link.Use(-1)
		return true
	})
	k.queue(c)
	c.link.Use(1)
	if k.others.group == nil {
		p.recall(k, now, fx)
	}
	if k.known { // recall may have found the claimant gone, and forgotten the key
		p.grantNext(k, now, fx)
	}
}

// queue queues a node for a key.
func (k *Key) queue(c claimant) {
	if g := k.group(); g != nil {
		g.requests++
		c.order = g.requests
	}
	k.others.queue = append(k.others.queue, c)
}

// wantHere wants a key of this node's partition for its own callers.
func (p *Partition) wantHere(k *Key, now time.Time, fx *Effects) {
	if k.others != nil {
		if !slices.ContainsFunc(k.others.queue, func(c claimant) bool { return c.link == nil }) {
			k.queue(claimant{})
		}
		if k.others.group == nil {
			p.recall(k, now, fx)
		}
	}
	p.grantNext(k, now, fx)
}

// recall asks the holder of a key back, because another caller or node waits.
func (p *Partition) recall(k *Key, now time.Time, fx *Effects) {
	g := k.others
	switch {
	case k.q.State() != handoff.Idle:
		p.recallHere(k, now, fx)
	case g.holder != fallback.Identity{} && g.recalled.IsZero():
		g.recalled, p.table.unsure = now, true
		if g.link == nil {
			g.link = p.linkTo(g.holder.Session)
		}
		if g.link != nil {
			p.send(g.link, peer.Recall, k.name, g.holder)
		} else {
			fx.Absent = true
		}
	}
}

// recallHere asks this node's own callers for a key, for another caller or node.
func (p *Partition) recallHere(k *Key, now time.Time, fx *Effects) {
	k.tellWanted()
	if k.q.Recall(p.cfg.At(now)) == handoff.GiveBack { // it lingered; one in use goes back when Done says so: after the turn, or a quantum
		p.giveBack(k, now, fx)
		return
	}
	p.makeWay(k, now, fx)
}

// grantNext gives a key that no node has to the node that has waited longest.
func (p *Partition) grantNext(k *Key, now time.Time, fx *Effects) {
	if g := k.group(); g != nil {
		p.grantGroup(g, now, fx)
		return
	}
	if !k.available() || !p.serves(now) { // if it does not, Lapsed ends the ownership, and tells those that wait
		return
	}
	for k.others != nil && len(k.others.queue) > 0 {
		if p.grantFirst(k, now, fx) {
			return
		}
	}
	if p.grantSelf(k, now, fx) {
		return
	}
	p.noGrants(k)
	p.tidy(k)
}

// grantFirst gives a key that no node has to the first one that waits. It reports false if that one
// is gone, or has too little time left to get a row (Config.Least).
func (p *Partition) grantFirst(k *Key, now time.Time, fx *Effects) bool {
	c := k.others.queue[0]
	k.others.queue = slices.Delete(k.others.queue, 0, 1) // few wait: each node once
	if c.link == nil && p.grantSelf(k, now, fx) || c.link != nil && p.grant(k, c, now) {
		return true
	}
	if c.link != nil {
		c.link.Use(-1)
		if !c.link.Down() {
			p.send(c.link, peer.Moved, k.name, c.id)
		}
	}
	return false
}

// grantSelf gives the turn to the first of this node's own waiters, if there is one.
func (p *Partition) grantSelf(k *Key, now time.Time, fx *Effects) bool {
	if k.q.Waiting() == 0 {
		return false
	}
	w := k.q.Take(uint64(p.token(1)), 1, k.others != nil && len(k.others.queue) > 0, p.cfg.At(now))
	k.hold = &p.own.hold
	p.basis.holds++
	p.seat(k, w, PathOwn, now, fx)
	return true
}

// grant gives the key to another node, if that has time enough to get a row for it. Else an owner
// without the arbiter, or without pings of that node, would grant a hold that its holder loses in
// the next moment. If it reports false grantFirst sends a Moved frame.
func (p *Partition) grant(k *Key, c claimant, now time.Time) bool {
	if c.link.Down() {
		return false
	}
	ping, left, heard := c.link.Offer(p.ownedUntil()) // left counts from the sending of that ping, which was before
	if left == 0 || Left(heard.Add(time.Duration(left)*time.Millisecond), now) < p.cfg.Least {
		return false
	}
	g := k.others
	g.holder, g.link, g.node, g.imported, g.vouched, g.recalled = c.id, c.link, c.link.Node(), false, false, time.Time{}
	g.token, g.granted = p.token(delegated), p.cfg.At(now)
	p.show(SightGrants, p.own.session.ID, 0, k)
	f := p.send(c.link, peer.Grant, k.name, c.id)
	f.Epoch, f.Token, f.Count, f.Ping, f.Left = p.own.epoch, uint64(g.token), delegated, ping, left
	if len(g.queue) > 0 || k.q.Waiting() > 0 {
		f.Flags, g.recalled, p.table.unsure = FlagContended, now, true
	}
	return true
}

// noGrants forgets that other nodes have or want a key: none does.
func (p *Partition) noGrants(k *Key) {
	if g := k.others; g != nil && g.group == nil {
		*g = grants{queue: g.queue[:0]}
		p.shelf.spare, k.others = g, nil
	}
}

// freeHolder notes that the holder of a key, another node, has it no more.
func (p *Partition) freeHolder(k *Key, now time.Time, fx *Effects) {
	k.others.holder, k.others.link = fallback.Identity{}, nil
	p.grantNext(k, now, fx)
}
