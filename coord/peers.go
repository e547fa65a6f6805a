package coord

import (
	"errors"
	"math"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/peer"
)

// Flags of a Resume frame.
const (
	flagBegin = 1 // the statement begins, and says which session speaks
	flagEnd   = 2 // the statement ends
)

// link is a stream to another node: as a holder of keys that the other one owns, and as an owner of keys that it holds.
type link struct {
	x    *cluster
	s    *peer.Stream
	down atomic.Bool
	said atomic.Pointer[answer] // the last one that was worth something; written with mu held
	// session is the other node's; nil until the node has stated one. Written with mu held.
	session atomic.Pointer[string]
	quota
	asks     asks
	observer bool // the other side only asks questions

	mu     mutex[linkRank] // protects what follows
	stated bool            // the other node has begun the statement of that session's holds: there is one for each session
	ring   uint64          // fingerprint of the other's placement
	beat   heartbeat
}

// Up implements [peer.Handler]: the first thing on a new stream is the statement of all holds (rule 12).
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
	l.ping() // before any request: grants say from which ping they count
	x.streams.up[l] = true
	x.streams.mu.Unlock()
	s.Flush()
}

// introduce tells the other node of a new session. What belonged to the old one is over. It is to be flushed.
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
	for i := range x.c.parts {
		var a after
		p := &x.c.parts[i]
		now := p.lock()
		p.Cut(l, now, &a.Effects)
		p.unlock(&a)
		a.do(x.c)
	}
	x.adoptNow()
	x.poke()
}

// Frame implements [peer.Handler].
func (x *cluster) Frame(s *peer.Stream, f *peer.Frame) {
	l := s.Data.(*link)
	if x.c.life.ctx.Err() != nil {
		return
	}
	if l.observer && f.Kind != peer.Query || x.self.observing != nil && f.Kind != peer.Answer {
		s.Close(peer.ErrProtocol)
		return
	}
	switch f.Kind {
	case peer.Ping:
		l.pinged(f)
		return
	case peer.Pong:
		l.ponged(f)
		return
	case peer.Guard:
		x.guarding(l, f)
		return
	case peer.Query:
		l.queried(f)
		return
	case peer.Answer:
		l.replied(f)
		return
	case peer.Moved:
		if f.Flags == lease.FlagLeft && x.members.leaves(s.Node()) {
			x.ring.Recheck()
		}
	}
	if int64(f.Partition) >= int64(len(x.c.parts)) || len(f.Key) > peer.MaxKey || f.Epoch > fallback.MaxEpoch || f.Token > math.MaxInt64-uint64(f.Count) {
		s.Close(peer.ErrProtocol)
		return
	}
	if len(f.Key) > 0 && xxhash.Sum64(plain(f.Key))%uint64(len(x.c.parts)) != uint64(f.Partition) {
		s.Close(peer.ErrProtocol)
		return
	}
	p := &x.c.parts[f.Partition]
	if !fits(l, f) {
		s.Close(peer.ErrProtocol)
		return
	}
	a := after{in: s}
	if f.Kind == peer.Resume {
		x.resumed(l, p, f, &a)
	} else {
		p.told(l, f, &a)
	}
	a.do(x.c)
}

// told lets a frame of another node happen.
func (p *partition) told(l *link, f *peer.Frame, a *after) {
	switch f.Kind {
	case peer.Request:
		id, current := l.identity(f)
		if !current {
			return // of a session that has ended, or not the node's
		}
		now := p.lock()
		p.Requested(l, id, string(f.Key), f.Flags == lease.FlagTry, now, &a.Effects)
	case peer.Grant:
		deadline, pongs := l.deadlineOf(f.Ping, f.Left)
		now := p.lock()
		if w := p.Granted(l, f, deadline, pongs, now, &a.Effects); w != nil {
			w.Value.QuickUntil = p.quickUntil(w.Value.Valid)
		}
	case peer.Recall, peer.Ask:
		now := p.lock()
		p.Recalled(l, f, now, &a.Effects)
	case peer.Release, peer.Cancel:
		id, _ := l.identity(f)
		now := p.lock()
		p.Released(l, f, id, now, &a.Effects)
	case peer.Deny:
		id, _ := l.identity(f)
		now := p.lock()
		p.Denied(l, f, id, now, &a.Effects)
	case peer.Moved:
		now := p.lock()
		p.Moved(l, f, now, &a.Effects)
	case peer.Hint:
		if !l.x.c.hinted(f) {
			return // of a session that has ended
		}
		now := p.lock()
		p.hinted(f, now, &a.Effects)
	case peer.Frozen:
		p.mu.Lock()
		p.Frozen(l, f.Epoch)
		a.Adopt = true
	default:
		return
	}
	p.unlock(a)
}

// fits reports whether the fields of a frame suit its kind. The session that the node has stated is known to be storable.
func fits(l *link, f *peer.Frame) bool {
	switch f.Kind {
	case peer.Request:
		return len(f.Key) > 0 && (len(f.Session) > 0 && string(f.Session) == l.Session() || storable(f.Session))
	case peer.Grant:
		return sound(f)
	case peer.Resume:
		return len(f.Session) == 0 || storable(f.Session)
	case peer.Hint:
		return l.s.Frames() >= framesHint && hints(f)
	}
	return true
}

// plain returns the key of a hold's name: it is in the key's partition.
func plain(name []byte) []byte {
	if name[len(name)-1] != 0xff { // as a rule
		return name
	}
	key, _ := fallback.Split(string(name))
	return []byte(key)
}

// sound reports whether a grant's block of tokens is one that an owner hands out: at least one token,
// all of the epoch that the frame names. No token at all: the owner answers for a hold of that epoch or an earlier one (rule 17).
func sound(f *peer.Frame) bool {
	t := fallback.Token(f.Token)
	if f.Count == 0 {
		return t.Epoch() <= f.Epoch
	}
	return f.Count > 0 && t.Epoch() == f.Epoch && uint64(t.Seq())+uint64(f.Count)-1 <= math.MaxUint32
}

// storable tells whether the arbiter can keep a hold of such a session in a row, which is a text of words. With one that it
// cannot, the partition's rows could not be read any more.
func storable(session []byte) bool {
	for _, c := range session {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return len(session) > 0
}

func (l *link) agrees(fingerprint uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ring == fingerprint
}

// identity is that of a request or hold in a frame of the other node's. It also reports whether it is of the node's session.
func (l *link) identity(f *peer.Frame) (id fallback.Identity, current bool) {
	session := l.Session()
	if current = session == string(f.Session); !current { // compared without allocation
		session = string(f.Session)
	}
	return fallback.Identity{Session: session, Request: f.Request}, current
}

// Session implements [lease.Link].
func (l *link) Session() string {
	if s := l.session.Load(); s != nil {
		return *s
	}
	return ""
}

var errNotIts = errors.New("coord: the node speaks for a session that the arbiter does not list as its own")

// resumed hears what the other node holds.
func (x *cluster) resumed(l *link, p *partition, f *peer.Frame, a *after) {
	switch f.Flags {
	case flagBegin:
		if len(f.Session) > 0 && !x.members.owns(l.s.Node(), string(f.Session)) {
			x.members.look() // for the next stream
			l.s.Close(errNotIts)
			return
		}
		session := string(f.Session)
		l.mu.Lock()
		old, again := l.Session(), l.stated && l.Session() == session
		l.session.Store(&session)
		l.stated = true
		l.mu.Unlock()
		if again { // a statement makes this node look at all partitions
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

// Node implements [lease.Link].
func (l *link) Node() string { return l.s.Node() }

// Down implements [lease.Link].
func (l *link) Down() bool { return l.down.Load() }
