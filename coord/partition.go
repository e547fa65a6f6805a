package coord

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/peer"
	"github.com/holdfast-go/holdfast/singleflight"
)

// block is how many tokens a hold asks for. With 2^16, an epoch lasts for 2^16 holds in a partition.
const block = 1 << 16

// partition is this process's state of one partition: the keys in use and, in a cluster, the ownership.
type partition struct {
	c      *Coordinator
	number uint32
	traced bool // each lock is traced, or its caller is recorded

	mu         mutex[partitionRank] // protects what follows, the entries, and their turns
	entries    map[string]*entry    // keys that callers of this process use, or that linger
	peak       int                  // largest size of entries since it was made
	spareEntry *entry               // one entry to be used again
	clock      time.Time            // when both clocks were read last; see now
	grants     [pathCount]uint64    // turns that began, by path
	callers    map[*entry]*caller   // the caller that has locked each key, if Options.LogCallers

	holds   int            // entries that have a hold
	remote  int            // entries whose hold may have no row
	oldest  time.Time      // no row was confirmed before
	seen    fallback.Token // the highest that the arbiter has told of; never lower
	brought fallback.Token // the highest that an owner has granted here; no evidence of what the arbiter has

	ending ending
	turns  int           // that run
	empty  chan struct{} // closed when no turn runs any more; made by emptied

	waitFor awaited // that contenders at the arbiter may wait for

	// Of a cluster.
	phase    phase
	own      *ownership // nil: this node does not serve the partition
	spare    *grants    // to be used again
	naming   naming
	checking checking
	lookedAt time.Time // when look began last

	parked     []parked                    // requests of other nodes that wait for the end of phaseAcquiring
	freedEarly []rumor                     // holds that are said to have been released, in phaseAcquiring or phaseDemoting
	exported   map[string]fallback.Row     // that demote writes; not to be changed
	late       map[string]fallback.Release // those of them that were given back meanwhile

	forsworn         uint32    // epochs up to this one are never served
	notBefore        time.Time // the partition is not acquired earlier
	announcedEnds    time.Time // when the last deadline announced at an epoch of this node's has passed by any node's clock
	reliedUntil      time.Time // the same, if that epoch may not have been demoted; see giveBackAll
	unreachableSince time.Time // its owner cannot be reached
}

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
	e := p.spareEntry
	if e != nil {
		p.spareEntry, e.recycled = nil, false
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
	if p.spareEntry == nil && !e.listed {
		e.recycled, e.used, e.key, e.hold = true, false, "", hold{}
		p.spareEntry = e
	}
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
				next = earlier(next, p.deadlines(&e.hold).slot)
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
