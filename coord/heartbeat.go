package coord

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/peer"
)

// ping asks the other node for how long it answers for its grants. It is to be flushed.
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

// pinged answers for how long this node's grants are good.
func (l *link) pinged(f *peer.Frame) {
	now := l.x.c.now()
	l.mu.Lock()
	l.beat.heard, l.beat.heardAt, l.ring = f.Ping, now, f.Token
	l.mu.Unlock()
	// The mutex is held until the Pong is queued. A partition that is acquired meanwhile is counted
	// before its first Grant is sent, so that Grant comes after this answer.
	l.x.c.remote.confirmations.mu.Lock()
	defer l.x.c.remote.confirmations.mu.Unlock()
	_ = l.s.Send(&peer.Frame{Kind: peer.Pong, Ping: f.Ping, Left: millis(l.x.answersFor(now)), Token: l.x.ring.View().Fingerprint()})
}

// millis rounds down: an announced time must not exceed the real one.
func millis(d time.Duration) uint32 { return uint32(max(0, min(d, time.Hour)).Milliseconds()) }

func (l *link) ponged(f *peer.Frame) {
	if l.takePong(f) {
		l.x.mayGuard()
	}
}

// takePong reports whether it is the first answer on this stream.
func (l *link) takePong(f *peer.Frame) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = l.beat.answeredAt.IsZero()
	l.ring, l.beat.answeredAt = f.Token, l.x.c.now()
	if f.Ping >= l.beat.last {
		l.part()
	}
	at, ok := l.when(f.Ping)
	if !ok {
		return first
	}
	if !guard.PongSent {
		at = l.x.c.now()
	}
	last := l.said.Load()
	if until := at.Add(time.Duration(f.Left) * time.Millisecond); until.After(last.validUntil) {
		l.said.Store(&answer{until, last.pongs + 1})
	}
	return first
}

// answers notes that the other node has answered, and lastAnswer returns when it did, and its
// session.
func (l *link) answers(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beat.answeredAt = now
}

func (l *link) lastAnswer() (session string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Session(), l.beat.answeredAt
}

// part ends a wait of Close, in farewell: the other node has answered, or the stream has ended.
// l.mu is held.
func (l *link) part() {
	if l.beat.parted != nil {
		close(l.beat.parted)
		l.beat.parted = nil
	}
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

// Announced returns until when the owner answers for a hold. first is the deadline that is known
// already, and pongs the number of pongs when the hold was granted.
func (l *link) Announced(first time.Time, pongs uint64) time.Time {
	if last := l.said.Load(); last.pongs > pongs && last.validUntil.After(first) {
		return last.validUntil
	}
	return first
}

// Offer returns the part of a grant that tells how long it is good.
func (l *link) Offer(deadline time.Time) (ping, left uint32, heard time.Time) {
	l.mu.Lock()
	ping, heard = l.beat.heard, l.beat.heardAt
	l.mu.Unlock()
	if ping == 0 {
		return 0, 0, heard
	}
	return ping, millis(min(lease.Left(deadline, heard), l.x.announced())), heard
}

// Heard returns when the other node's last ping came.
func (l *link) Heard() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.beat.heardAt
}

// looksPerPromise is how often a session looks after its guardians and its wards while a promise
// lasts. Each time it pings them (G2).
const looksPerPromise = 6

// pingEvery is how often the nodes ask each other: at least twice as often as their announcements
// would allow.
func (o *Options) pingEvery() time.Duration {
	if d := o.takeover(); d > 0 {
		return min(o.Cluster.Keepalive, d/looksPerPromise)
	}
	return o.Cluster.Keepalive
}

// guardedPings reports whether a session that has guardians asks all nodes each pingEvery: once,
// with the same writes as its guardians.
func (o *Options) guardedPings() bool {
	d := o.takeover()
	return d > 0 && o.pingEvery() == d/looksPerPromise
}

// keepPinging asks all other nodes each pingEvery, until the coordinator stops. A session that has
// guardians may ask all nodes as often (guardedPings): then keepPinging does the rounds that the
// session has missed.
func (x *cluster) keepPinging() {
	every := x.c.opts.pingEvery()
	if x.c.opts.guardedPings() { // then they come first
		every += every / 8
	}
	t := time.NewTimer(every)
	defer t.Stop()
	var told map[string]bool
	var alone unguarded
	for {
		select {
		case <-t.C:
		case <-x.c.life.ctx.Done():
			return
		}
		left := every - (x.c.moment() - lease.Moment(x.heard.pinged.Load()))
		if left <= 0 {
			x.pingAll()
			left = every
		}
		x.endWatches()
		told = x.tellUnreachable(told)
		alone.look(x)
		t.Reset(left)
	}
}

func (x *cluster) pingAll() {
	var out outbox
	x.queuePings(&out)
	out.flush()
}

// queuePings is pingAll without the writing.
func (x *cluster) queuePings(out *outbox) {
	if x.self.observing != nil {
		return
	}
	x.heard.pinged.Store(int64(x.c.moment()))
	for _, l := range x.all() {
		l.ping()
		out.to(l)
	}
}

// outbox is frames that are queued, and their streams to be flushed once no mutex is held.
type outbox struct{ links []*link }

func (o *outbox) add(l *link, f *peer.Frame) {
	if l == nil {
		return
	}
	_ = l.s.Queue(f)
	o.to(l)
}

// to notes that something is queued on a stream.
func (o *outbox) to(l *link) {
	if !slices.Contains(o.links, l) {
		o.links = append(o.links, l)
	}
}

func (o *outbox) flush() {
	for _, l := range o.links {
		l.s.Flush()
	}
}
