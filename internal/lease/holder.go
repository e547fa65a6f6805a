package lease

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/peer"
)

// request is a request at a key's owner, for all of this node's waiters. Its zero value is none.
type request struct {
	link    Link
	session *Session // that it is made for
	number  uint64
}

func (r *request) id() fallback.Identity {
	if r.session == nil {
		return fallback.Identity{}
	}
	return fallback.Identity{Session: r.session.ID, Request: r.number}
}

// Want gets a hold for the waiters of a key that has none: from the owner if there is one, which
// may be this node; by taking the partition, if it should be this node's; and else from the
// arbiter. For the last a contender begins, and the shell runs it: contender.run. (Without a
// cluster a caller may have made it, and makes its first call: contender.first.)
func (p *Partition) Want(k *Key, now time.Time, fx *Effects) { p.want(k, now, fx, false) }

// want is Want. toArbiter leaves out the node that should own the partition. It has just denied the
// ownership, it was this node until now, or its stream has ended. Or its grant was doubtful or came
// too late.
func (p *Partition) want(k *Key, now time.Time, fx *Effects, toArbiter bool) {
	if k.q.State() != handoff.Idle || k.q.Waiting() == 0 || k.contender != nil || k.request.link != nil {
		return
	}
	if p.serves(now) {
		p.wantHere(k, now, fx)
		return
	}
	if !toArbiter {
		r := p.cfg.View.Route(p.number)
		if r.Link != nil && p.ask(k, r.Link) {
			return
		}
		if r.Mine && p.take(now) {
			return // Serve or EndAcquire calls want again
		}
	}
	out := p.order()
	out.Starts = append(out.Starts, p.Contend(k))
}

// wantAll is want for every key: the partition has another owner.
func (p *Partition) wantAll(now time.Time, fx *Effects, toArbiter bool) {
	for _, k := range p.table.keys {
		p.want(k, now, fx, toArbiter)
	}
}

// ask sends the request to the owner.
func (p *Partition) ask(k *Key, l Link) bool {
	s := p.cfg.View.Session()
	if s == nil || l.Down() {
		return false
	}
	p.meets(l)
	k.request, k.asked = request{l, s, p.cfg.Requests.Add(1)}, false
	f := p.send(l, peer.Request, k.name, k.request.id())
	if !k.q.Any(waits) {
		f.Flags = FlagTry
	}
	return true
}

// linkNode returns the stream to a node, nil if there is none; also one that has stated a hold of
// the partition, and that the shell does not know yet.
func (p *Partition) linkNode(name string) Link {
	if l := p.cfg.View.LinkNode(name); l != nil {
		return l
	}
	for _, l := range p.table.links {
		if l.Node() == name && !l.Down() {
			return l
		}
	}
	return nil
}

// linkTo returns the stream to the process of a session, nil if there is none, for a key to keep.
func (p *Partition) linkTo(session string) Link {
	l := p.cfg.View.LinkTo(session)
	if l != nil {
		p.meets(l)
	}
	return l
}

// meets notes that the partition is about to keep a stream. Cut goes through the keys of those
// partitions only that have met the stream.
func (p *Partition) meets(l Link) {
	if !slices.Contains(p.table.links, l) {
		p.table.links = append(p.table.links, l)
	}
}
