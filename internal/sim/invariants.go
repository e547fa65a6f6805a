package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// won is an epoch of a partition.
type won struct{ partition, epoch uint32 }

// saidDead is called at the moment when the arbiter says that a session is dead: its node must have
// known (I3).
func (w *world) saidDead(id string) {
	for _, s := range w.running() {
		if mine, until := wire.Session(s.c); mine == id && !lease.Past(until, s.h.read()) {
			w.h.say("I3: the arbiter says that session %.4s of %v is dead, %v before its own clock does", id, s, until.Sub(s.h.read()))
		}
	}
}

// hasBuried notes a session that the arbiter has buried.
func (w *world) hasBuried(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead[id] = true
}

// acquired is called at the moment when a partition is given to a session: no other one was ever
// given it at that epoch (I6), and no other one may grant its keys (I4).
func (w *world) acquired(partition, epoch uint32, by string) {
	w.mu.Lock()
	e := won{partition, epoch}
	before := w.epochs[e]
	w.epochs[e] = by
	w.mu.Unlock()
	if before != "" && before != by {
		w.h.say("I6: partition %d is given to session %.4s at epoch %d, and was to %.4s", partition, by, epoch, before)
	}
	for _, s := range w.running() {
		if mine, _ := wire.Session(s.c); mine == by {
			continue
		}
		if old, until := wire.Serves(s.c, partition); !lease.Past(until, s.h.read()) {
			w.h.say("I4: partition %d is given to session %.4s at epoch %d, and %v serves it at %d for another %v", partition, by, epoch, s, old,
				until.Sub(s.h.read()))
		}
	}
}

// taken is called at the moment when something is taken from a session, or given to one, at the
// arbiter: it must not be in Grace (I7). e is not nil if processes are observers. Grace begins when
// something is looked at, so it ends no earlier than Q after the server was changed. The arbiter
// counts in whole milliseconds. The server's clock is that of the world.
func (w *world) taken(e *executed, deposed bool, format string, args ...any) {
	w.takenAfter(w.s.grace, e, deposed, format, args...)
	tabled := w.s.tabled[0]
	if deposed {
		tabled = w.s.tabled[1]
	}
	if !tabled.IsZero() && time.Now().UnixMilli() < tabled.UnixMilli()+(w.s.grace-w.slip()).Milliseconds() {
		w.h.say("I7: "+format+", %v after the server of the sessions became another one", append(args, time.Since(tabled))...)
	}
}

// granted is taken for grants that may come with an early end of Grace: once a deposed server is
// silent.
func (w *world) granted(e *executed, deposed bool, format string, args ...any) {
	least := w.s.grace
	if w.cfg.Opened {
		least -= w.t(11 * time.Second)
	}
	w.takenAfter(least, e, deposed, format, args...)
}

func (w *world) takenAfter(least time.Duration, e *executed, deposed bool, format string, args ...any) {
	since, now := w.s.since, time.Now()
	if deposed {
		since = w.s.before
	}
	if e != nil {
		since, now = e.since, e.at
	}
	if !since.IsZero() && now.UnixMilli() < since.UnixMilli()+(least-w.slip()).Milliseconds() {
		w.h.say("I7: "+format+", %v after the arbiter became another server", append(args, now.Sub(since))...)
	}
}

// seen notes an epoch that a node was told of.
func (w *world) seen(partition, epoch uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.latest[partition] = max(w.latest[partition], epoch)
}

// hasty reports whether some epoch is too far ahead of the arbiter's clock, by many transitions in
// a row: an arbiter that lost it would give it out again after Q, or half of Q after an early end.
// This is a limit of the protocol (see DESIGN.md), and only more time protects from it. One more is
// for a transition of a deposed primary. Epochs are seconds since 2000, when the time of a bubble
// begins. ahead is the lead of the next server's clock.
func (w *world) hasty(ahead time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cfg.Observed { // epochs are by the clocks of processes
		ahead = 0
	}
	early := w.t(1800*time.Millisecond) + w.s.grace/2 // a round is 2 s old by a clock that may be fast
	again := time.Now().Add(ahead+early).Unix() - time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	return int64(slices.Max(w.latest[:]))+1 >= again
}

// rests checks that a key's hold rests on a row, or on the owner's table at the epoch that the
// record still has (I5). It checks nothing in Grace, nor until everything from before has lapsed or
// been reclaimed.
func (w *world) rests(key string) {
	w.s.swap.RLock()
	since := w.s.since
	if w.s.rewound.After(since) {
		since = w.s.rewound
	}
	for _, t := range []time.Time{w.s.parted, w.s.tabled[0]} {
		if t.After(since) {
			since = t
		}
	}
	w.s.swap.RUnlock()
	if !since.IsZero() && time.Since(since) < w.s.grace+w.cfg.TTL {
		return
	}
	g, held := w.holding(key)
	if g == nil {
		return
	}
	id, epoch := fallback.Identity{Session: held.Session, Request: held.Request}, held.Owned
	if epoch == 0 {
		epoch = fallback.Token(g.token).Epoch()
	}
	p := uint32(xxhash.Sum64String(key) % partitions)
	at := w.s.look.Verify(context.Background(), []fallback.Read{{Partition: p, Keys: []string{key}}})[0]
	r, why := at.Record, ""
	switch {
	case at.Err != nil || r.Grace > 0 || at.Rows[0].Identity == id:
		return
	case r.Owner == "" || r.Epoch != epoch:
		why = fmt.Sprintf("the row is %v, and the record %+v", at.Rows[0], r)
	default: // the owner that granted it may exist no more: then no other node has the partition
		for _, s := range w.running() {
			epoch, session, request, until := wire.Granted(s.c, key)
			if epoch == r.Epoch && !lease.Past(until, s.h.read()) && (fallback.Identity{Session: session, Request: request}) != id {
				why = fmt.Sprintf("%v serves the partition at %d, and has given the key to %.4s %d", s, epoch, session, request)
			}
		}
	}
	if why == "" {
		return
	}
	// It was there before all this was looked at. If it still is, it was meanwhile.
	if again, same := w.holding(key); again == g && same == held {
		w.h.mu.Lock()
		defer w.h.mu.Unlock()
		if !g.resting {
			g.resting = true
			w.h.fail("I5: %v has %q as %.4s %d with token %d.%d, and %s", g.by, key, id.Session, id.Request, g.token>>32, uint32(g.token), why)
			w.h.bad = append(w.h.bad, w.state(key)...)
		}
	}
}

func (w *world) restAll() {
	for _, k := range w.keys {
		w.rests(k)
	}
}

// holding is a hold in force that its node has not given itself, by its client and by its identity.
func (w *world) holding(key string) (*grant, wire.Hold) {
	w.h.mu.Lock()
	g := w.h.of(key).holder
	bad := g == nil || g.released || g.resting || g.by.dead.Load() || g.by.leaving.Load() || g.ctx.Err() != nil || w.h.excused(g)
	w.h.mu.Unlock()
	if bad || g.by.h.left() > 0 {
		return nil, wire.Hold{}
	}
	h, until := wire.Holding(g.by.c, key)
	if h.Own || lease.Past(until, g.by.h.read()) {
		return nil, wire.Hold{}
	}
	return g, h
}

// running returns the processes that may grant anything at this moment.
func (w *world) running() (list []*start) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.starts {
		if s.dead.Load() || s.leaving.Load() || s.h.left() > 0 {
			continue
		}
		select {
		case <-s.ready:
			if s.c != nil {
				list = append(list, s)
			}
		default:
		}
	}
	return list
}

// now returns the time since the world began.
func (w *world) now() time.Duration { return time.Since(w.begin) }

func (s *start) String() string { return fmt.Sprintf("node %d, start %d", s.n.number, s.number) }
