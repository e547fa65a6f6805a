package coord

import (
	"slices"
	"time"
	"unsafe"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/peer"
)

// delegated is how many tokens an owner gives to another node with a key.
const delegated = 1024

// grants is what the owner of a partition knows of a key that not only its own callers want.
type grants struct {
	holder   fallback.Identity // another node's hold; zero: this node's own, or nobody's (see entry.q)
	token    fallback.Token
	link     *link  // the holder's stream, nil if there is none
	node     string // whom this node granted it to
	imported bool   // not granted by this node in this epoch: it ends by release, doubt or death only (rule 12)
	vouched  bool   // this node answers for it, though it is imported (rule 17)
	recalled time.Time
	asked    time.Time  // whether it has the hold
	alone    time.Time  // since when there has been no stream to it
	queue    []claimant // who waits: in order of arrival, each node once
}

// claimant is a node that waits for a key. The zero claimant is this node.
type claimant struct {
	id   fallback.Identity
	link *link
}

// token returns the next token of the partition that this node owns, and reserves the n that begin with it.
func (p *partition) token(n uint32) fallback.Token {
	o := p.own
	first := o.seq + 1
	o.seq += n
	if o.seq >= lastSeq && first < lastSeq {
		p.c.cluster.poke()
	}
	return fallback.MakeToken(o.epoch, first)
}

// wantHere wants a key of this node's partition for its own callers.
func (p *partition) wantHere(e *entry, now time.Time, a *after) {
	if e.g != nil {
		if !slices.ContainsFunc(e.g.queue, func(c claimant) bool { return c.link == nil }) {
			e.g.queue = append(e.g.queue, claimant{})
		}
		p.recall(e, now, a)
	}
	p.grantNext(e, now, a)
}

// available reports whether no node has the key.
func (e *entry) available() bool {
	return e.q.State() == handoff.Idle && (e.g == nil || e.g.holder == fallback.Identity{})
}

// grantNext gives a key that nobody has to whoever has waited longest.
func (p *partition) grantNext(e *entry, now time.Time, a *after) {
	if !e.available() || !p.serves(now) { // if it does not, letGo follows
		return
	}
	for e.g != nil && len(e.g.queue) > 0 {
		c := e.g.queue[0]
		e.g.queue = slices.Delete(e.g.queue, 0, 1) // few wait: each node once
		if c.link == nil && p.grantSelf(e, now, a) || c.link != nil && p.grant(e, c, now, a) {
			return
		}
		if c.link != nil && !c.link.down.Load() {
			a.send(c.link, p.frame(peer.Moved, e.key, c.id))
		}
	}
	if p.grantSelf(e, now, a) {
		return
	}
	p.noGrants(e)
	p.tidy(e)
}

// noGrants forgets what others have and want of a key: nothing.
func (p *partition) noGrants(e *entry) {
	if g := e.g; g != nil {
		*g = grants{queue: g.queue[:0]}
		p.spare, e.g = g, nil
	}
}

// grantSelf gives the turn to the first of this node's own waiters, if there is one.
func (p *partition) grantSelf(e *entry, now time.Time, a *after) bool {
	if e.q.Waiting() == 0 {
		return false
	}
	w := e.q.Take(uint64(p.token(1)), 1, e.g != nil && len(e.g.queue) > 0, now)
	e.hold = hold{session: p.own.session, source: sourceOwn}
	p.holds++
	p.seat(e, w, PathOwn, now, a)
	return true
}

// grant gives the key to another node.
func (p *partition) grant(e *entry, c claimant, now time.Time, a *after) bool {
	if c.link.down.Load() {
		return false
	}
	ping, left := c.link.offer(p.ownedUntil())
	if left == 0 {
		return false
	}
	g := e.g
	g.holder, g.link, g.node, g.imported, g.vouched, g.recalled = c.id, c.link, c.link.s.Node(), false, false, time.Time{}
	g.token = p.token(delegated)
	f := p.frame(peer.Grant, e.key, c.id)
	f.Epoch, f.Token, f.Count, f.Ping, f.Left = p.own.epoch, uint64(g.token), delegated, ping, left
	if len(g.queue) > 0 || e.q.Waiting() > 0 {
		f.Flags, g.recalled = flagContended, now
	}
	a.send(c.link, f)
	return true
}

// recall asks the holder of a key back, because somebody else waits.
func (p *partition) recall(e *entry, now time.Time, a *after) {
	g := e.g
	switch {
	case e.q.State() != handoff.Idle:
		if e.q.Recall(now) == handoff.GiveBack {
			p.giveBack(e, a)
		}
	case g.holder != fallback.Identity{} && g.recalled.IsZero():
		g.recalled = now
		if g.link == nil {
			g.link = p.c.cluster.linkTo(g.holder.Session)
		}
		if g.link != nil {
			a.send(g.link, p.frame(peer.Recall, e.key, g.holder))
		}
	}
}

func (p *partition) frame(kind peer.Kind, key string, id fallback.Identity) peer.Frame {
	return peer.Frame{Kind: kind, Partition: p.number, Request: id.Request, Session: bytesOf(id.Session), Key: bytesOf(key)}
}

// bytesOf returns a string's bytes, which nobody may write to: a frame is encoded, and never kept.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// requested: another node wants a key.
func (p *partition) requested(l *link, f *peer.Frame, a *after) {
	id := l.identity(f)
	if id.Session != l.who() {
		return // of a session that has ended, or not the node's
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	switch {
	case l.full():
		p.refuse(l, string(f.Key), id, a)
	case p.serves(now):
		p.request(claimant{id, l}, string(f.Key), f.Flags == flagTry, now, a)
	case p.ending == endingNot && p.c.cluster.route(p.number).mine && p.take():
		p.parked = append(p.parked, parked{claimant{id, l}, string(f.Key), f.Flags == flagTry})
		l.used.Add(1)
	default:
		if p.own == nil && p.naming == namedElsewhere { // perhaps the record names this node: somebody has to look (rule 6)
			step(&p.naming, namedPerhaps, nextNamings[:])
			p.c.cluster.poke()
		}
		a.send(l, p.frame(peer.Moved, string(f.Key), id))
	}
}

// parked is a request that waits until this node has the partition.
type parked struct {
	claimant
	key string
	try bool
}

func (p *partition) request(c claimant, key string, try bool, now time.Time, a *after) {
	e := p.entry(key)
	if e.q.State() != handoff.Idle && !p.inForce(e, now, a) {
		e = p.entry(key)
	}
	if try && e.q.State() == handoff.Lingering {
		e.q.Relax()
		p.giveBack(e, a)
		e = p.entry(key)
	}
	if try && (!e.available() || e.q.Waiting() > 0) {
		f := p.frame(peer.Deny, key, c.id)
		f.Flags = flagBusy
		a.send(c.link, f)
		if e.q.State() == handoff.Idle && e.g != nil {
			p.recall(e, now, a)
		}
		return
	}
	if e.g == nil {
		if e.g = p.spare; e.g == nil {
			e.g = &grants{}
		}
		p.spare = nil
	}
	e.g.queue = slices.DeleteFunc(e.g.queue, func(x claimant) bool { return x.link == c.link }) // each node once
	e.g.queue = append(e.g.queue, c)
	c.link.used.Add(1)
	p.recall(e, now, a)
	if e.known {
		p.grantNext(e, now, a)
	}
}

// released: another node gives a hold back, or gives up its wait.
func (p *partition) released(l *link, f *peer.Frame, a *after) {
	id := l.identity(f)
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	p.parked = slices.DeleteFunc(p.parked, func(x parked) bool { return x.link == l && x.id == id })
	e := p.entries[string(f.Key)]
	if p.own == nil && !past(p.announcedEnds, now) && f.Kind == peer.Release && id.Session == l.who() {
		// It was given back before it was known that this node has given the partition back, with a row for it.
		p.unrow(p.release(string(f.Key), id), a)
	}
	if e == nil || e.g == nil {
		return
	}
	g := e.g
	waits := len(g.queue)
	g.queue = slices.DeleteFunc(g.queue, func(c claimant) bool { return c.link == l && c.id == id })
	if l.used.Add(int64(len(g.queue) - waits)); g.holder == id && (g.link == l || id.Session == l.who()) {
		l.used.Add(-1)
		g.holder, g.link = fallback.Identity{}, nil
	}
	p.grantNext(e, now, a)
}

// unrow removes the row of a hold that was given back, once it is there: this node may be about to write it.
func (p *partition) unrow(r fallback.Release, a *after) {
	switch {
	case p.phase != phaseDemoting:
		a.releases = append(a.releases, r)
	case p.exported[r.Key].Identity == r.Identity:
		p.late[r.Key] = r
	}
}

// cut: a stream has ended. What was granted over it stays granted; who waited over it asks again.
func (p *partition) cut(l *link) {
	var a after
	now := p.c.now()
	p.mu.Lock()
	p.parked = slices.DeleteFunc(p.parked, func(x parked) bool { return x.link == l })
	for _, e := range p.entries {
		if e.g != nil {
			e.g.queue = slices.DeleteFunc(e.g.queue, func(c claimant) bool { return c.link == l })
			if e.g.link == l {
				e.g.link, e.g.alone = nil, now
			}
			p.grantNext(e, now, &a)
		}
		if e.forward.link == l {
			e.forward = forward{}
			p.want(e, now, &a, true)
		}
	}
	p.mu.Unlock()
	a.do(p.c)
}

// stated: the other node has said what it holds. What this node granted to it and it does not know of is free (rule 12).
func (p *partition) stated(l *link, a *after) {
	now, session := p.c.now(), l.who()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own == nil {
		return
	}
	for _, e := range p.entries {
		g := e.g
		if g == nil || g.imported || g.node != l.s.Node() || g.holder == (fallback.Identity{}) {
			continue
		}
		if g.link != l || g.holder.Session != session { // what a session had that has ended is over, too
			g.holder, g.link = fallback.Identity{}, nil
			p.grantNext(e, now, a)
		}
	}
}

// doubtful asks the holders that have been in somebody's way for long whether they are there (rule 13), and takes keys from
// the dead.
func (p *partition) doubtful(now time.Time, used usage, a *after) (suspects []fallback.Identity, lonely bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	used.count(p)
	if p.own == nil {
		return nil, false
	}
	for _, e := range p.entries {
		g := e.g
		if g == nil || g.holder == (fallback.Identity{}) {
			continue
		}
		if g.link == nil {
			if g.link = p.c.cluster.linkTo(g.holder.Session); g.link != nil && !g.recalled.IsZero() {
				a.send(g.link, p.frame(peer.Recall, e.key, g.holder))
			}
		}
		if g.link == nil && now.Sub(g.alone) > p.c.opts.SessionTTL { // also if nobody wants the key
			suspects = append(suspects, g.holder)
		}
		if g.recalled.IsZero() {
			continue
		}
		if g.link == nil {
			suspects = append(suspects, g.holder)
			if now.Sub(g.recalled) > p.c.opts.RenewEvery {
				// It may have given the key back, and could not say so: let the arbiter ask it.
				lonely = true
			}
			continue
		}
		if now.Sub(g.recalled) < p.c.opts.RenewEvery || now.Sub(g.asked) < p.c.opts.RenewEvery {
			continue
		}
		g.asked = now
		a.send(g.link, p.frame(peer.Ask, e.key, g.holder))
	}
	return suspects, lonely
}

// bury frees the keys of a session that is dead.
func (p *partition) bury(session string, a *after) {
	now := p.c.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own == nil {
		return
	}
	for key, e := range p.entries {
		if e.g != nil && e.g.holder.Session == session {
			if e.g.imported {
				a.releases = append(a.releases, p.release(key, e.g.holder))
			}
			e.g.holder, e.g.link = fallback.Identity{}, nil
			p.grantNext(e, now, a)
		}
	}
}
