package coord

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/peer"
	"github.com/holdfast-go/holdfast/singleflight"
)

// block is how many tokens a hold asks for. With 2^16, an epoch lasts for 2^16 holds in a partition.
const block = 1 << 16

// partition is what this process knows of the keys of one partition.
type partition struct {
	c      *Coordinator
	number uint32
	traced bool // somebody wants to know of each lock

	mu      mutex             // protects what follows, the entries, and their turns
	entries map[string]*entry // keys that somebody in this process uses, or that are kept
	peak    int               // largest size of entries since it was made
	holds   int               // entries that have a hold
	oldest  time.Time         // no hold was confirmed before
	clock   time.Time         // when both clocks were read last; see now
	free    *entry            // one entry to be used again
	ending  ending
	empty   chan struct{} // closed when no turn runs any more; made by emptied
	turns   int           // that run
	grants  [pathCount]uint64
	seen    fallback.Token // the highest that the arbiter has told of; never lower
	waitFor news           // contenders at the arbiter may wait for it, and are to be told

	callers map[*entry]*caller // who has locked each key, if Options.LogCallers

	// Of a cluster.
	own      *ownership // nil: this node does not serve the partition
	remote   int        // entries whose hold may have no row
	phase    phase
	exported map[string]fallback.Row     // that demote writes; not to be changed
	late     map[string]fallback.Release // those of them that were given back meanwhile
	naming   naming
	never    uint32    // epochs up to this one are never served
	looked   time.Time // when look last did
	checking checking
	avoid    time.Time           // not to be taken before
	believed time.Time           // until when holders may rely on an epoch that was not demoted; see leave
	quiet    time.Time           // when all that was announced at the last epoch that this node served has passed, by whatever clock
	annoyed  time.Time           // since when its owner cannot be reached
	spare    *grants             // to be used again
	gone     []fallback.Identity // holds that were released while acquireOwnership is at work
	parked   []parked            // requests of other nodes that wait for acquireOwnership
}

// entry is a key that somebody in this process uses: its waiters, and the process's hold.
type entry struct {
	p    *partition
	key  string
	q    handoff.Queue[*seat]
	hold hold         // valid if q is not Idle
	turn *turn        // the one that runs if q is in state Turn; else for the next one
	acq  *acquisition // that gets a hold for the waiters, if q is Idle and somebody waits

	moved   int     // how often in a row a node that was asked did not own the partition
	forward forward // the request at the owner of the partition, in acq's place
	g       *grants // what the owner of the partition knows of others; nil if this is not the owner or there is nothing

	linger   moment // since when it lingers, or a little longer
	since    moment // when the turn whose token is turn.seen began, or was first looked at; told once it was reported
	used     bool   // a turn has begun since the hold was last verified
	listed   bool   // in the coordinator's list of lingering entries
	known    bool   // in p.entries
	recycled bool   // in p.free
}

// hold is what the arbiter gave to this process.
type hold struct {
	session   *session
	row       fallback.Row
	confirmed time.Time // when the last call was sent whose answer confirmed the row; zero: there is none that we know of

	source source
	rowed  bool // there is a row, or may be, though it is not looked after (rule 17)
	unsure bool // a call that makes its row may be executed yet

	// Of sourceOwner and sourceFrozen.
	from      *link     // the owner's stream; nil: the owner was this node
	epoch     uint32    // at which the owner answers for the hold
	announced time.Time // the owner's deadline (rule 7)
	pongs     uint64    // those after so many may extend it, if the source is sourceOwner
}

// remote reports whether the hold may have no row.
func (h *hold) remote() bool { return h.source == sourceOwner || h.source == sourceFrozen }

// turn is one goroutine's lock. An entry uses the same turn again and again: a Lock names the one it means by the token.
// Tokens are unique in a partition, and so is an entry, so a stale Lock can never be taken for a fresh one.
type turn struct {
	e      *entry
	fence  uint64 // 0: unlocked
	lost   *LossError
	seen   uint64          // its token when it was last looked at: see overdue
	began  moment          // or unmeasured
	ctx    context.Context // made when asked for
	cancel context.CancelCauseFunc
}

// seat is what a waiter brings to the queue.
type seat struct {
	ready chan struct{} // capacity 1: gets one value when the waiter has the turn, or err is set
	turn  *turn
	until deadlines // when the hold lapses, as far as known when the turn was given
	brief moment    // until when the monotonic clock alone will do; zero if that is not known
	path  Path
	err   error
	since moment  // when the wait was first looked at; 0: not yet; told once it was reported
	call  *caller // if Options.LogCallers
	try   bool    // does not want to wait for another process
}

type waiter = handoff.Waiter[*seat]

func newWaiter() any { return &waiter{Value: &seat{ready: make(chan struct{}, 1)}} }

func (c *Coordinator) partitionOf(key string) *partition {
	return &c.parts[hash(key)%uint64(len(c.parts))]
}

func hash(s string) uint64 { return xxhash.Sum64String(s) }

// entry returns the key's entry, a new one if there is none.
func (p *partition) entry(key string) *entry {
	if e := p.entries[key]; e != nil {
		return e
	}
	return p.add(key)
}

// add is entry for a key that has none.
func (p *partition) add(key string) *entry {
	e := p.free
	if e != nil {
		p.free, e.recycled = nil, false
		e.key = key
	} else {
		e = &entry{p: p, key: key}
	}
	if e.turn == nil {
		e.turn = &turn{e: e}
	}
	if p.entries == nil {
		p.entries = make(map[string]*entry)
	}
	p.entries[key], e.known = e, true
	p.peak = max(p.peak, len(p.entries))
	return e
}

// tidy forgets an entry that nobody uses.
func (p *partition) tidy(e *entry) {
	if e.q.State() != handoff.Idle || e.q.Waiting() > 0 || e.acq != nil || e.forward.link != nil || e.g != nil || !e.known {
		return
	}
	delete(p.entries, e.key)
	if p.callers != nil {
		delete(p.callers, e)
	}
	e.known = false
	if len(p.entries) == 0 && p.peak > 8 {
		p.entries, p.peak = nil, 0 // a map does not shrink by itself
	}
	if p.free == nil && !e.listed {
		e.recycled, e.used, e.key, e.hold = true, false, "", hold{}
		p.free = e
	}
}

// deadlines are when a hold lapses: the session's and the slot's, whichever passes first by whichever clock.
type deadlines struct{ session, slot time.Time }

func (p *partition) until(h *hold) deadlines {
	if h.source == sourceOwn && p.own != nil && !p.own.until.IsZero() {
		return deadlines{p.own.until, p.own.until} // at least
	}
	d := deadlines{session: h.session.deadline()}
	switch {
	case (h.source == sourceOwn || h.source == sourceHome) && p.own != nil:
		d.slot = p.own.confirmed.Add(p.c.opts.lease())
	case h.confirmed.IsZero() && !guard.Announced:
		d.slot = d.session
	case h.confirmed.IsZero():
		d.slot = h.answered()
	default:
		d.slot = h.confirmed.Add(p.c.opts.lease())
		if h.remote() {
			if at := h.answered(); at.After(d.slot) {
				d.slot = at
			}
		}
	}
	return d
}

func (d deadlines) past(now time.Time) bool { return past(d.session, now) || past(d.slot, now) }

// past tells whether a deadline has passed, by the monotonic or by the wall clock: one of them goes on while
// the machine is suspended, and the other cannot be set.
func past(deadline, now time.Time) bool {
	return !now.Before(deadline) || now.UnixNano() >= deadline.UnixNano()
}

// inForce checks the entry's hold against the clock, and drops it if it has lapsed.
func (p *partition) inForce(e *entry, now time.Time, after *after) bool {
	if e.q.State() == handoff.Idle {
		return false
	}
	if e.hold.source == sourceOwn && p.own != nil && p.own.good(p, now) {
		return true
	}
	if !p.until(&e.hold).past(now) {
		return true
	}
	cause := LeaseExpired
	if past(e.hold.session.deadline(), now) {
		cause = SessionExpired
	}
	p.lose(e, cause, after)
	return false
}

// begin gives the turn that the queue has begun to whoever gets the Lock for it.
func (p *partition) begin(e *entry, fence uint64, path Path, at moment) *turn {
	p.grants[path]++
	e.turn.fence, e.turn.began, e.used, e.moved = fence, at, true, 0
	p.turns++
	return e.turn
}

// seat gives the turn that the queue has begun to a waiter, to be woken afterwards.
func (p *partition) seat(e *entry, w *waiter, path Path, now time.Time, after *after) {
	s := w.Value
	s.turn, s.until, s.path, s.brief = p.begin(e, w.Fence(), path, p.c.at(now)), p.until(&e.hold), path, 0
	after.wakeUp(w)
}

// ended forgets the running turn of e.
func (p *partition) ended() {
	p.turns--
	if p.turns == 0 && p.empty != nil {
		close(p.empty)
		p.empty = nil
	}
}

// finish ends the turn that runs: the next waiter gets it, or the hold lingers or is given back.
func (p *partition) finish(e *entry, now time.Time, after *after) {
	t := e.turn
	after.cancel = t.cancel
	t.fence, t.ctx, t.cancel = 0, nil, nil
	p.ended()
	limits := p.c.limits
	if p.ending != endingNot {
		limits.Linger = 0
	}
	after.idle = !e.q.Recalled()
	path := p.supply(e)
	next, what := e.q.Done(now, limits)
	switch {
	case next != nil:
		p.seat(e, next, path, now, after)
	case what == handoff.GiveBack:
		p.giveBack(e, after)
	default:
		e.linger = p.c.at(now)
		if !e.listed {
			e.listed = true
			p.c.lingers.add(e)
		}
	}
}

// supply gives the next turn its token, if this node is the grantor, and returns the path of that turn.
func (p *partition) supply(e *entry) Path {
	if e.hold.source != sourceOwn || p.own == nil || p.own.seq >= noSeq {
		return PathTurn
	}
	e.q.Supply(uint64(p.token(1)))
	return PathOwn
}

// giveBack returns the hold that the queue has let go of, and gets another if somebody waits.
func (p *partition) giveBack(e *entry, after *after) {
	h := &e.hold
	if h.unsure {
		p.c.doubts.add(doubt{p, e.key, h.row.Identity, p.c.now().Add(p.c.opts.SessionTTL)})
	}
	if h.source != sourceOwn && (h.source != sourceOwner || !h.confirmed.IsZero() || h.rowed || h.from.down.Load()) { // there is a row, or may be
		after.releases = append(after.releases, p.release(e.key, h.row.Identity))
	}
	if h.source != sourceOwn && p.c.cluster != nil && p.own == nil {
		p.handBack(e, after)
	}
	p.dropped(e, after)
}

func (p *partition) release(key string, id fallback.Identity) fallback.Release {
	return fallback.Release{Partition: p.number, Key: key, Identity: id}
}

// dropped is called when the queue has dropped its hold.
func (p *partition) dropped(e *entry, after *after) {
	if e.hold.remote() {
		p.remote--
	}
	e.hold = hold{}
	p.holds--
	switch {
	case e.q.Waiting() == 0 && e.g == nil: // nobody wants it
	case p.own == nil:
		p.want(e, p.c.now(), after, false)
	case e.q.Waiting() > 0:
		p.claim(e, p.c.now(), after)
	default:
		p.grantNext(e, p.c.now(), after)
	}
	p.tidy(e)
}

// lose takes the hold away from whoever has it. The row may still be at the arbiter: it is released.
func (p *partition) lose(e *entry, cause LossCause, after *after) {
	if e.q.State() == handoff.Turn {
		t := e.turn
		t.lost = &LossError{Key: e.key, Fence: Fence(t.fence), Cause: cause}
		after.losses = append(after.losses, t.lost)
		if t.cancel != nil {
			// With the mutex held, which is safe as it runs nobody's code: once it is free, a message may make this
			// process give the key away.
			t.cancel(t.lost)
		}
		e.turn = &turn{e: e} // the lost one belongs to its Lock
		p.ended()
	}
	e.q.Drop()
	p.giveBack(e, after)
}

// loseAll takes away the holds of a session, or all for a nil one.
func (p *partition) loseAll(s *session, cause LossCause, after *after) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own != nil && (s == nil || p.own.session == s) {
		p.freeze(phaseUnowned, after)
	}
	p.loseHolds(s, cause, after)
}

// loseHolds is loseAll once the partition is not served any more. p.mu is held.
func (p *partition) loseHolds(s *session, cause LossCause, after *after) {
	for _, e := range p.entries {
		if e.q.State() != handoff.Idle && (s == nil || e.hold.session == s) {
			p.lose(e, cause, after)
		}
		if l := e.forward.link; l != nil && (s == nil || e.forward.id.Session == s.id) {
			a := e.forward
			e.forward = forward{}
			after.send(l, p.frame(peer.Cancel, e.key, a.id))
			p.want(e, p.c.now(), after, true)
		}
	}
}

// lapsed takes away the holds that have lapsed, and returns when the next one may, zero if there is none.
func (p *partition) lapsed(now time.Time, after *after) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own != nil && !p.serves(now) {
		p.letGo(now, after)
	}
	var next time.Time
	if p.own != nil {
		next = p.ownedUntil()
	}
	if p.holds == 0 {
		return next
	}
	if p.remote > 0 { // each has a deadline of its own
		for _, e := range p.entries {
			if e.hold.remote() && p.inForce(e, now, after) {
				next = earlier(next, p.until(&e.hold).slot)
			}
		}
	}
	if p.oldest.IsZero() {
		return next
	}
	lapse := p.oldest.Add(p.c.opts.lease())
	if past(lapse, now) {
		p.oldest = time.Time{}
		for _, e := range p.entries {
			if p.inForce(e, now, after) && !e.hold.confirmed.IsZero() {
				p.oldest = earlier(p.oldest, e.hold.confirmed)
			}
		}
		if p.oldest.IsZero() {
			return next
		}
		lapse = p.oldest.Add(p.c.opts.lease())
	}
	return earlier(next, lapse)
}

func (p *partition) count(s *Stats) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own != nil {
		s.Owned++
	}
	for path, n := range p.grants {
		s.Granted[Path(path)] += n
	}
	for _, e := range p.entries {
		s.Waiting += e.q.Waiting()
		switch e.q.State() {
		case handoff.Turn:
			s.Locked++
		case handoff.Lingering:
			s.Kept++
		}
	}
}

// crash ends the process if a function of the user's panicked in a flight, as it would in any other goroutine: nobody
// asks for a flight's result, so the panic would be lost, and with it all who wait for the flight.
func crash() {
	if v := recover(); v != nil {
		text := fmt.Sprintf("%v\n\n%s", v, debug.Stack())
		go panic(text)
		select {}
	}
}

type flight = singleflight.Member[string, struct{}]
