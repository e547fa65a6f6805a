package coord

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

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

// heartbeat has the pings of a stream, sent and answered. The link's mutex protects it.
type heartbeat struct {
	pings      uint32 // that were sent
	sent       [16]time.Time
	heard      uint32        // the other's last ping
	heardAt    time.Time     // when it came
	last       uint32        // the ping of farewell
	parted     chan struct{} // closed when that is answered, or the stream has ended; nil without a waiter
	answeredAt time.Time     // when the last ping of either kind was answered
}

// answer is until when the other node answers for what it has granted, and how many such answers there were with it.
type answer struct {
	validUntil time.Time
	pongs      uint64
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

// ping asks the other node for how long it answers for what it has granted. It is to be flushed.
func (l *link) ping() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pingNow()
}

// pingNow is ping with l.mu held.
func (l *link) pingNow() {
	l.beat.pings++
	l.beat.sent[l.beat.pings%uint32(len(l.beat.sent))] = l.x.c.now()
	_ = l.s.Queue(&peer.Frame{Kind: peer.Ping, Ping: l.beat.pings, Token: l.x.ring.View().Fingerprint()})
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

// pinged answers for how long what this node has granted is good.
func (l *link) pinged(f *peer.Frame) {
	now := l.x.c.now()
	l.mu.Lock()
	l.beat.heard, l.beat.heardAt, l.ring = f.Ping, now, f.Token
	l.mu.Unlock()
	// A grant of a partition that is not counted here comes after this answer.
	l.x.c.remote.confirmations.mu.Lock()
	defer l.x.c.remote.confirmations.mu.Unlock()
	left := min(l.x.c.answersUntil(now).Sub(now), l.x.announced())
	_ = l.s.Send(&peer.Frame{Kind: peer.Pong, Ping: f.Ping, Left: millis(left), Token: l.x.ring.View().Fingerprint()})
}

// millis rounds down: what is announced must not be longer than it is.
func millis(d time.Duration) uint32 { return uint32(max(0, min(d, time.Hour)).Milliseconds()) }

func (l *link) ponged(f *peer.Frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ring, l.beat.answeredAt = f.Token, l.x.c.now()
	if f.Ping >= l.beat.last {
		l.part()
	}
	at, ok := l.when(f.Ping)
	if !ok {
		return
	}
	last := l.said.Load()
	if until := at.Add(time.Duration(f.Left) * time.Millisecond); until.After(last.validUntil) {
		l.said.Store(&answer{until, last.pongs + 1})
	}
}

// part ends what farewell waits for. l.mu is held.
func (l *link) part() {
	if l.beat.parted != nil {
		close(l.beat.parted)
		l.beat.parted = nil
	}
}

// farewell asks the other nodes for an answer, and waits for it until ctx ends, for one CallTimeout at most. What they have sent
// until they knew that this node serves nothing any more has been read then: a hold that was given back meanwhile may
// have got a row, which is this node's to remove (see unrow). And it asks once more: what this node has said to that has
// left it then.
func (x *cluster) farewell(ctx context.Context) {
	if s := x.c.sessions.current(); s != nil {
		s.guarded.leave()
	}
	ctx, cancel := context.WithTimeout(ctx, x.c.opts.CallTimeout)
	defer cancel()
	for range 2 {
		for _, parted := range x.askAll() {
			select {
			case <-parted:
			case <-ctx.Done():
				return
			}
		}
	}
}

// askAll pings all nodes, and returns a channel for each that is closed when it has answered, or its stream has ended.
func (x *cluster) askAll() (parted []chan struct{}) {
	for _, l := range x.all() {
		done := make(chan struct{})
		l.mu.Lock()
		l.pingNow()
		l.beat.last, l.beat.parted = l.beat.pings, done
		if l.down.Load() { // Down may have been there before
			l.part()
		}
		l.mu.Unlock()
		l.s.Flush()
		parted = append(parted, done)
	}
	return parted
}

// when returns when a ping was sent; false for one of long ago.
func (l *link) when(ping uint32) (time.Time, bool) {
	if ping == 0 || ping > l.beat.pings || l.beat.pings-ping >= uint32(len(l.beat.sent)) {
		return time.Time{}, false
	}
	return l.beat.sent[ping%uint32(len(l.beat.sent))], true
}

// deadlineOf turns an announcement of an owner, which counts from a ping, into a deadline.
func (l *link) deadlineOf(ping, left uint32) (deadline time.Time, pongs uint64) {
	l.mu.Lock()
	at, ok := l.when(ping)
	pongs = l.said.Load().pongs
	l.mu.Unlock()
	if !ok {
		return time.Time{}, pongs
	}
	return at.Add(time.Duration(left) * time.Millisecond), pongs
}

// Announced returns until when the owner answers for a hold that was granted when there had been so many pongs.
func (l *link) Announced(first time.Time, pongs uint64) time.Time {
	if last := l.said.Load(); last.pongs > pongs && last.validUntil.After(first) {
		return last.validUntil
	}
	return first
}

// Offer is the part of a grant that says for how long it is good.
func (l *link) Offer(deadline time.Time) (ping, left uint32) {
	l.mu.Lock()
	ping, at := l.beat.heard, l.beat.heardAt
	l.mu.Unlock()
	if ping == 0 {
		return 0, 0
	}
	return ping, millis(min(deadline.Sub(at), l.x.announced()))
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

// keepPinging asks all other nodes, every Keepalive, until the coordinator stops.
func (x *cluster) keepPinging() {
	t := time.NewTicker(x.c.opts.pingEvery())
	defer t.Stop()
	var told map[string]bool
	for {
		select {
		case <-t.C:
		case <-x.c.life.ctx.Done():
			return
		}
		x.pingAll()
		x.endWatches()
		x.adoptNow() // of an owner that answers, but for less and less
		told = x.tellUnreachable(told)
	}
}

var errNotIts = errors.New("coord: the node speaks for a session that the arbiter does not list as its own")

func (x *cluster) pingAll() {
	if x.self.observing != nil {
		return
	}
	for _, l := range x.all() {
		l.ping()
		l.s.Flush()
	}
}

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
