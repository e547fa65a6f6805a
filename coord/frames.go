package coord

import (
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/peer"
)

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
	case peer.Request:
		x.ring.Settle() // the other node has placed this one, as it asks it
	case peer.Moved:
		switch {
		case f.Flags == lease.FlagYours:
			x.ring.Settle() // likewise
		case f.Flags == lease.FlagTaken:
			x.self.handovers.taken(f.Partition, l)
			return
		case f.Flags == lease.FlagLeft && x.members.leaves(s.Node()):
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
	if a.Astray { // the two rings differ: the node that this one names may not have come to rest
		x.yours(f.Partition, 0)
	}
}

// told carries out a frame of another node.
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
			w.Value.QuickUntil = p.quickUntil(w.Value.Valid) // which the waiter compares with the clock when it goes on
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
		if !l.x.c.hintIsOurs(f) {
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

// quickUntil returns until when the monotonic clock alone decides about deadlines that p.now was
// just compared with. [lease.Partition.Quick] does so at an owner.
func (p *partition) quickUntil(d lease.Deadlines) lease.Moment {
	return min(p.c.at(p.clock)+lease.WallEvery, p.c.at(d.Session), p.c.at(d.Slot))
}

// fits reports whether the fields of a frame suit its kind. The session that the node has stated is
// known to be storable.
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

// sound reports whether a grant's block of tokens is one that an owner hands out: at least one
// token, all of the epoch that the frame names. No token at all: the owner answers for a hold of
// that epoch or an earlier one (rule 17).
func sound(f *peer.Frame) bool {
	t := fallback.Token(f.Token)
	if f.Count == 0 {
		return t.Epoch() <= f.Epoch
	}
	return f.Count > 0 && t.Epoch() == f.Epoch && uint64(t.Seq())+uint64(f.Count)-1 <= math.MaxUint32
}

// storable reports whether the arbiter can keep a hold of the session in a row, which is a text of
// words. With any other session, the partition's rows could not be read any more.
func storable(session []byte) bool {
	for _, c := range session {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return len(session) > 0
}

// identity returns the identity of a request or hold in a frame of the other node. It also reports
// whether that is of the node's session.
func (l *link) identity(f *peer.Frame) (id fallback.Identity, current bool) {
	session := l.Session()
	if current = session == string(f.Session); !current { // compared without allocation
		session = string(f.Session)
	}
	return fallback.Identity{Session: session, Request: f.Request}, current
}
