package coord

import (
	"github.com/holdfast-go/holdfast/internal/guardians"
	"github.com/holdfast-go/holdfast/peer"
)

// Flags of a Guard frame. They are a kind of their own, as the pings of streams concern the grants
// of an owner. Nodes answer those pings whatever sessions the two have, and the holders of keys
// read the answers.
const (
	guardPing  = 1 + iota // Session asks for a promise of Left ms; Request is the ping's number, Key the sets
	guardPong             // Session promises; Request is the ping's number, Count the version that it has voted for
	guardVote             // the stream's session votes that Session is dead; Key is the set
	guardDead             // the arbiter is said to have buried Session: a hint
	guardEnded            // the process of the node Key has ended: when does nothing rest on its word?
	guardClear            // nothing of the other's rests on the word of the node Key
)

func pingFrame(ward string, p guardians.Ping, t guardians.Times) *peer.Frame {
	return &peer.Frame{
		Kind: peer.Guard, Flags: guardPing, Session: []byte(ward), Request: p.Seq, Left: millis(t.Promise), Key: guardians.EncodeSets(p.Sets),
	}
}

func voteFrame(v guardians.Vote) *peer.Frame {
	return &peer.Frame{Kind: peer.Guard, Flags: guardVote, Session: []byte(v.Ward), Key: guardians.EncodeSets([]guardians.Set{v.Set})}
}

// guarding takes a Guard frame of another node. It believes that node about that node's own session
// only.
func (x *cluster) guarding(l *link, f *peer.Frame) {
	if f.Flags == guardEnded || f.Flags == guardClear {
		x.aboutEnd(l, f)
		return
	}
	sets, ok := guardians.DecodeSets(string(f.Key))
	if !ok || f.Flags < guardPing || f.Flags > guardDead || !storable(f.Session) {
		l.s.Close(peer.ErrProtocol)
		return
	}
	s, from, about := x.c.sessions.current(), l.Session(), string(f.Session)
	if from == "" || s == nil || s.guarded == nil {
		return
	}
	g := s.guarded
	switch f.Flags {
	case guardPing:
		if about == from && f.Left == millis(g.times.Promise) {
			_ = l.s.Send(g.answer(from, guardians.Ping{Seq: f.Request, Sets: sets}))
		}
	case guardPong:
		if about == from {
			g.promised(from, guardians.Pong{Seq: f.Request, Voted: f.Count})
			l.answers(x.c.now())
		}
	case guardVote:
		if len(sets) == 1 && x.members.lists(about) {
			g.heard(guardians.Vote{Ward: about, Voter: from, Set: sets[0]})
		}
	case guardDead:
		if x.members.lists(about) {
			x.c.sessions.others.hint(x.c, about)
		}
	}
}

// answer promises, and returns the answer. The clock is read after the ping was received.
func (g *guarded) answer(ward string, p guardians.Ping) *peer.Frame {
	g.mu.Lock()
	defer g.mu.Unlock()
	pong := g.guard.Pinged(ward, p, g.monotonic(g.c.now()))
	return &peer.Frame{Kind: peer.Guard, Flags: guardPong, Session: []byte(g.s.ID), Request: pong.Seq, Count: pong.Voted}
}

// promised takes the answer to a ping.
func (g *guarded) promised(guardian string, a guardians.Pong) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.c.now()
	g.ward.Promised(guardian, a, g.instant(now))
	g.publish(now)
	if _, _, phase := g.ward.Sets(); phase == guardians.Collecting {
		g.wake() // perhaps it may be asked for
	}
}

// heard takes another guardian's vote.
func (g *guarded) heard(v guardians.Vote) {
	g.mu.Lock()
	g.guard.Heard(v, g.monotonic(g.c.now()))
	more := len(g.guard.Burials()) > 0
	g.mu.Unlock()
	if more {
		g.wake()
	}
}
