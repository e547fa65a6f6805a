package coord

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/peer"
)

// forward is a request at a key's owner, for all of this node's waiters. Its zero value is none.
type forward struct {
	link *link
	id   fallback.Identity
	try  bool
}

// want gets a hold for the waiters of an entry that has none: by the owner if there is one, and else from the arbiter.
// direct leaves out the owner, because it has just said that it is none.
func (p *partition) want(e *entry, now time.Time, a *after, direct bool) {
	if e.q.State() != handoff.Idle || e.q.Waiting() == 0 || e.acq != nil || e.forward.link != nil {
		return
	}
	if p.serves(now) {
		p.wantHere(e, now, a)
		return
	}
	if !direct {
		r := p.c.cluster.route(p.number)
		if r.link != nil && p.forward(e, r.link, a) {
			return
		}
		if r.mine && p.take() {
			return // wantAll follows
		}
	}
	p.acquire(e).fly(0)
}

// wantAll is want for every entry: who owns the partition has changed.
func (p *partition) wantAll(now time.Time, a *after, direct bool) {
	for _, e := range p.entries {
		p.want(e, now, a, direct)
	}
}

// forward sends the request to the owner.
func (p *partition) forward(e *entry, l *link, a *after) bool {
	s := p.c.sessions.current()
	if s == nil || l.down.Load() {
		return false
	}
	e.forward = forward{l, fallback.Identity{Session: s.id, Request: p.c.requests.Add(1)}, !e.q.Any(waits)}
	f := p.frame(peer.Request, e.key, e.forward.id)
	if e.forward.try {
		f.Flags = flagTry
	}
	a.send(l, f)
	return true
}

// requestOf returns the entry whose request f is about, nil if it is over.
func (p *partition) requestOf(l *link, f *peer.Frame) *entry {
	e := p.entries[string(f.Key)]
	if e == nil || e.forward.link != l || e.forward.id.Request != f.Request {
		return nil
	}
	return e
}

// granted: the owner gives a key.
func (p *partition) granted(l *link, f *peer.Frame, a *after) {
	deadline, pongs := l.deadlineOf(f.Ping, f.Left)
	s := p.c.sessions.current()
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	e := p.requestOf(l, f)
	if f.Count == 0 {
		e = nil // it is no grant of a request
	}
	doubtful := e != nil && !p.believable(fallback.Token(f.Token)) // the arbiter knows who owns the partition now
	if e == nil || doubtful || s == nil || p.own != nil || e.forward.id.Session != s.id || e.q.State() != handoff.Idle {
		if h := p.entries[string(f.Key)]; h != nil && h.q.State() != handoff.Idle && h.hold.row.Identity == l.ours(f) {
			p.vouched(l, &h.hold, f.Epoch, deadline, pongs, now)
			return
		}
		a.send(l, p.frame(peer.Release, string(f.Key), l.ours(f))) // nobody waits for it any more (rule 11)
		if e != nil {
			e.forward = forward{}
			if doubtful {
				e.moved++
			}
			p.want(e, now, a, doubtful)
		}
		return
	}
	h := hold{
		session: s, row: fallback.Row{Identity: e.forward.id, Token: fallback.Token(f.Token)},
		source: sourceOwner, from: l, epoch: f.Epoch, announced: deadline, pongs: pongs,
	}
	e.forward = forward{}
	var w *waiter
	until := p.deadlines(&h)
	if !until.past(now) {
		w = e.q.Take(f.Token, uint64(f.Count), f.Flags == flagContended, now)
	}
	if w == nil {
		a.send(l, p.frame(peer.Release, e.key, h.row.Identity))
		p.want(e, now, a, true)
		p.tidy(e)
		return
	}
	e.hold, p.brought = h, h.row.Token+fallback.Token(f.Count-1)
	p.holds++
	p.remote++
	if guard.Sooner && until.slot.Before(now.Add(p.c.opts.RenewEvery)) { // its owner may be about to lose the partition
		p.c.sooner.add(until.slot)
	}
	p.seat(e, w, PathForwarded, now, a)
	w.Value.quickUntil = p.quickUntil(until)
}

// maxAhead is by how many seconds the epoch of a grant may be ahead of the arbiter's and of this node's clock: a year.
const maxAhead = 365 * 24 * 60 * 60

// believable reports whether a grant's first token may be its owner's to give. It is above all that owners have given to this node
// and that the arbiter has told of, and not years ahead.
func (p *partition) believable(t fallback.Token) bool {
	return t > p.seen && t > p.brought &&
		int64(t.Epoch()) <= max(int64(p.seen.Epoch()), fallback.EpochAt(p.now()))+maxAhead
}

// recalled: the owner wants a key back, or knows whether this node has it at all.
func (p *partition) recalled(l *link, f *peer.Frame, a *after) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[string(f.Key)]
	switch {
	case e != nil && e.q.State() != handoff.Idle && e.hold.row.Request == f.Request && e.hold.source != sourceOwn:
		if e.q.Recall(p.c.now()) == handoff.GiveBack {
			p.giveBack(e, a)
		}
	case e != nil && e.forward.link != nil && e.forward.id.Request == f.Request:
		// about to be had
	case e != nil && e.acq != nil && e.acq.id.Request == f.Request:
		e.acq.asked = true // the same, and then it is recalled at once
	default:
		id := l.ours(f)
		a.send(l, p.frame(peer.Deny, string(f.Key), id))
		// As a rule a recall has met the release that is on its way. If there was a row, its importer removes it. Asked
		// in doubt, this node does: not what a mistaken owner says of others; and a dead session is evicted.
		if s := p.c.sessions.current(); f.Kind == peer.Ask && s != nil && id.Session == s.id {
			a.releases = append(a.releases, p.release(string(f.Key), id))
		}
	}
}

// ours is the identity, in a frame from an owner, of a request or hold of this node's.
func (l *link) ours(f *peer.Frame) fallback.Identity {
	return fallback.Identity{Session: string(f.Session), Request: f.Request}
}

// denied: the key is not free for those who only try; or a node has not got what it was believed to hold.
func (p *partition) denied(l *link, f *peer.Frame, a *after) {
	now := p.c.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.Flags == flagFull {
		if e := p.requestOf(l, f); e != nil {
			p.refused(l, e, a)
		}
		return
	}
	if f.Flags == flagBusy {
		if e := p.requestOf(l, f); e != nil {
			e.forward = forward{}
			p.fail(e, tries, &WaitError{Key: e.key, Reason: ErrLocked}, a)
			p.want(e, now, a, false)
			p.tidy(e)
		}
		return
	}
	e := p.entries[string(f.Key)]
	if e != nil && e.g != nil && e.g.holder == l.identity(f) && (e.g.link == l || e.g.holder.Session == l.who()) {
		if e.g.imported {
			a.releases = append(a.releases, p.release(e.key, e.g.holder))
		}
		e.g.holder, e.g.link = fallback.Identity{}, nil
		p.grantNext(e, now, a)
	}
}

// moved: the node that was asked does not own the partition; the arbiter knows who does (rule 14). Or this node should.
func (p *partition) moved(l *link, f *peer.Frame, a *after) {
	now := p.c.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.Flags == flagYours {
		if p.own == nil && p.c.cluster.route(p.number).mine {
			p.notBefore = time.Time{}
			p.take()
		}
		return
	}
	if e := p.requestOf(l, f); e != nil {
		e.forward = forward{}
		e.moved++
		p.want(e, now, a, true)
	}
}

// frozen: what the owner has announced for an epoch is not extended any more (rule 5).
func (p *partition) frozen(l *link, f *peer.Frame) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.entries {
		if e.q.State() != handoff.Idle && e.hold.from == l && e.hold.epoch == f.Epoch {
			e.hold.freeze()
		}
	}
}

// freeze fixes the deadline of a hold that its owner will not answer for any longer.
func (h *hold) freeze() {
	if h.source == sourceOwner {
		h.announced = h.from.announced(h.announced, h.pongs)
		step(&h.source, sourceFrozen, nextSources[:])
	}
}

// announcedUntil returns the deadline of a hold without a row, which its owner has announced.
func (h *hold) announcedUntil() time.Time {
	if h.source != sourceOwner {
		return h.announced
	}
	return h.from.announced(h.announced, h.pongs)
}

// handBack tells the owner that a hold is given back. Whoever does not hear it asks (rule 13).
func (p *partition) handBack(e *entry, a *after) {
	l := e.hold.from
	switch {
	case e.hold.source != sourceOwner: // there is a row, and whoever owns the partition now has read it
		if l != nil && !l.down.Load() { // or the last owner is about to write it
			a.send(l, p.frame(peer.Release, e.key, e.hold.row.Identity))
		}
		l = p.c.cluster.route(p.number).link
	case l.down.Load():
		l = p.c.cluster.linkNode(l.s.Node())
	}
	if l != nil {
		a.send(l, p.frame(peer.Release, e.key, e.hold.row.Identity))
	}
}

// linkNode returns the stream to a node, nil if there is none.
func (x *cluster) linkNode(name string) *link {
	s := x.net.Stream(name)
	if s == nil {
		return nil
	}
	l, _ := s.Data.(*link)
	return l
}
