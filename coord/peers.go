package coord

import (
	"errors"

	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/peer"
)

// Flags of a Resume frame.
const (
	flagBegin = 1 // the statement begins, and says which session speaks
	flagEnd   = 2 // the statement ends
)

// Up implements [peer.Handler]: the first thing on a new stream is the statement of all holds (rule
// 12).
func (x *cluster) Up(s *peer.Stream) {
	select {
	case <-x.begin.ready:
	case <-x.c.life.ctx.Done():
	}
	if isObserver(s.Node()) {
		x.watchedBy(s)
		return
	}
	l := &link{x: x, s: s}
	l.said.Store(&answer{})
	s.Data = l
	if x.self.observing != nil {
		x.observes(l)
		return
	}
	x.streams.mu.Lock()
	_ = s.Queue(&peer.Frame{Kind: peer.Resume, Flags: flagBegin, Session: []byte(x.streams.id)})
	for i := range x.c.parts {
		var a after
		p := &x.c.parts[i]
		p.mu.Lock()
		p.State(l, &a.Effects)
		p.unlock(&a)
	}
	_ = s.Queue(&peer.Frame{Kind: peer.Resume, Flags: flagEnd})
	l.ping() // before any request: grants name the ping that they count from
	x.streams.up[l] = true
	x.streams.mu.Unlock()
	s.Flush()
}

// introduce tells the other node of a new session. The old session's holds and requests are over.
// It is to be flushed.
func (l *link) introduce(session string) {
	_ = l.s.Queue(&peer.Frame{Kind: peer.Resume, Flags: flagBegin, Session: []byte(session)})
	_ = l.s.Queue(&peer.Frame{Kind: peer.Resume, Flags: flagEnd})
}

// Down implements [peer.Handler].
func (x *cluster) Down(s *peer.Stream, err error) {
	if w, ok := x.c.opts.Cluster.host.(wire.Witness); ok {
		w.Ended(err)
	}
	l := s.Data.(*link)
	l.down.Store(true)
	if l.observer || x.self.observing != nil {
		x.endsWatch(l)
		return
	}
	l.mu.Lock()
	l.part()
	l.mu.Unlock()
	l.unanswered()
	session := l.Session()
	if x.streams.links.CompareAndDelete(session, l) {
		x.unreached.lost(session, x.c.now())
	}
	x.streams.mu.Lock()
	delete(x.streams.up, l)
	x.streams.mu.Unlock()
	x.lostGuardian(session)
	for i := range x.c.parts {
		var a after
		p := &x.c.parts[i]
		now := p.lock()
		p.Cut(l, now, &a.Effects)
		p.unlock(&a)
		a.do(x.c)
	}
	x.streams.ended.cut(l)
	x.adoptNow()
	x.poke()
}

var errNotIts = errors.New("coord: the node speaks for a session that the arbiter does not list as its own")

// resumed takes a frame of the other node's statement of its holds.
func (x *cluster) resumed(l *link, p *partition, f *peer.Frame, a *after) {
	switch f.Flags {
	case flagBegin:
		if len(f.Session) > 0 && !x.members.owns(l.s.Node(), string(f.Session)) {
			x.members.look() // for the next stream
			l.s.Close(errNotIts)
			return
		}
		if x.streams.ended.has(l.s.Node()) && guard.ClearCut {
			l.s.Close(errEnded)
			return
		}
		session := string(f.Session)
		l.mu.Lock()
		old, may := l.Session(), l.says.begin(session)
		if may {
			l.session.Store(&session)
		}
		l.mu.Unlock()
		if !may {
			l.s.Close(peer.ErrProtocol)
			return
		}
		if old != "" && old != session {
			x.streams.links.CompareAndDelete(old, l)
		}
		if session != "" {
			x.streams.links.Store(session, l)
			x.unreached.found(session)
		}
	case flagEnd:
		l.mu.Lock()
		begun := l.says.end()
		l.mu.Unlock()
		if !begun {
			l.s.Close(peer.ErrProtocol)
			return
		}
		for i := range x.c.parts {
			p := &x.c.parts[i]
			now := p.lock()
			p.Stated(l, l.Session(), now, &a.Effects)
			p.unlock(a)
		}
		x.rerouted()
		x.reached(l.Session())
		x.poke()
	default:
		id, _ := l.identity(f)
		now := p.lock()
		p.Resumed(l, id, string(f.Key), now, &a.Effects)
		p.unlock(a)
	}
}
