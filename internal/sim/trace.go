package sim

import (
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/model/spec"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// told is how many events are told of a partition whose trace diverges.
const told = 30

// traces compares a run's events with package spec, which package model refines: one trace for each
// partition.
type traces struct {
	w *world

	mu      sync.Mutex // protects the fields below; it is taken with the mutexes of partitions held, and takes none but by TryLock
	parts   [partitions]trace
	starts  map[string]*start // by session
	events  [spec.Kinds]int   // that were compared
	unknown int               // deadlines that were asked for of a node that was busy
	bad     []string
}

// A trace is that of a partition.
type trace struct {
	*spec.State
	recent   []happened // the last ones, in a ring
	next     int        // where the oldest one is, once the ring is full
	diverged bool       // it is not looked at any more
}

// happened is an event, with its time.
type happened struct {
	at time.Duration
	spec.Event
}

func newTraces(w *world) *traces {
	x := &traces{w: w, starts: make(map[string]*start)}
	for i := range x.parts {
		s := spec.New()
		s.Lapsed = func(session string, epoch uint32, h *spec.Hold) spec.Answer {
			return x.lapsed(uint32(i), session, epoch, h)
		}
		x.parts[i].State = s
	}
	return x
}

// lapsed asks a node by its own clock.
func (x *traces) lapsed(p uint32, session string, epoch uint32, h *spec.Hold) (a spec.Answer) {
	defer func() {
		if a == spec.Unknown {
			x.unknown++
		}
	}()
	s := x.starts[session]
	if s == nil {
		return spec.Unknown
	}
	if s.dead.Load() {
		return spec.Lapsed
	}
	select {
	case <-s.ready:
	default:
		return spec.Unknown
	}
	if s.c == nil {
		return spec.Unknown
	}
	now := s.h.read()
	if id, until := wire.Session(s.c); id != session || lease.Past(until, now) {
		return spec.Lapsed
	}
	name := ""
	if h != nil {
		name = h.Name
	}
	seen, ok := wire.Look(s.c, p, name)
	until := seen.ServesUntil
	if h != nil {
		ok, until = ok && seen.Request == h.Request, seen.HasUntil
	} else {
		ok = ok && seen.Epoch == epoch
	}
	switch {
	case !ok:
		return spec.Unknown
	case lease.Past(until, now):
		return spec.Lapsed
	}
	return spec.Lasts
}

// step notes an event of a partition.
func (x *traces) step(p uint32, e spec.Event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stepLocked(p, &e)
}

func (x *traces) stepLocked(p uint32, e *spec.Event) {
	t := &x.parts[p]
	if t.diverged || !wire.Clocks || x.w.cfg.apart { // nodes show their decisions with the build tag simulation only, and where they have a Cluster
		return
	}
	x.events[e.Kind]++
	now := x.w.now()
	if len(t.recent) < told {
		t.recent = append(t.recent, happened{now, *e})
	} else {
		t.recent[t.next] = happened{now, *e}
		t.next = (t.next + 1) % told
	}
	if err := t.Step(e); err != nil {
		t.diverged = true
		x.bad = append(x.bad, fmt.Sprintf("%8.3fs trace: partition %d: %v: %v; these were its last events:", now.Seconds(), p, e, err))
		for i := range t.recent {
			y := &t.recent[(t.next+i)%len(t.recent)]
			x.bad = append(x.bad, fmt.Sprintf("%8.3fs   %v", y.at.Seconds(), &y.Event))
		}
	}
}

// hold is a hold as package spec sees it. That of permits is none: other checks count them.
func hold(name string, row fallback.Row) (h spec.Hold, ok bool) {
	key, m := fallback.Split(name)
	h = spec.Hold{Key: key, Name: name, Shared: m.Reads(), Downgraded: m.Kind == fallback.Downgraded, Row: row}
	return h, m.Kind == fallback.Exclusive || h.Shared
}

// about notes an event of a hold.
func (x *traces) about(p uint32, kind spec.Kind, name string, row fallback.Row) {
	if h, ok := hold(name, row); ok {
		x.step(p, spec.Event{Kind: kind, Hold: h})
	}
}

// elsewhere notes the grants of a deposed primary. The specification has one arbiter: it allows
// that, and does not ask when.
func (x *traces) elsewhere(p uint32, epoch uint32, session string, rows ...fallback.Row) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := &x.parts[p]
	if epoch > 0 {
		s.Given[epoch], s.Takers[epoch] = session, session
	}
	for _, r := range rows {
		s.Offers[r.Identity] = r.Token
	}
}

var sights = map[lease.SightKind]spec.Kind{
	lease.SightServes: spec.Served, lease.SightFreezes: spec.Frozen, lease.SightKeeps: spec.Kept, lease.SightGrants: spec.Granted, lease.SightTakes: spec.Took,
	lease.SightAccepts: spec.Accepted, lease.SightDrops: spec.Dropped,
}

// saw notes a decision of a node.
func (x *traces) saw(s *start, y lease.Sight) {
	if s.dead.Load() {
		return
	}
	e := spec.Event{Kind: sights[y.Kind], Session: y.Session, Epoch: y.Epoch}
	if y.Name != "" {
		var ok bool
		if e.Hold, ok = hold(y.Name, y.Row); !ok {
			return
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	late := func() bool { return y.Until.Past(s.h.read()) } // the node stood still since it has read its clock: this is over
	switch y.Kind {
	case lease.SightServes: // with that it grants only in the cases below
		if late() && s.h.holdsOld(x.w.begin) {
			x.parts[y.Partition].Had[y.Epoch] = y.Session
			delete(x.parts[y.Partition].Given, y.Epoch)
			return
		}
	case lease.SightAccepts, lease.SightKeeps:
		if late() {
			x.parts[y.Partition].Accepted[y.Row.Identity] = y.Row.Token
			return
		}
	case lease.SightGrants: // it is sent late, and its node compares it with the announced deadline
		if late() && s.h.holdsOld(x.w.begin) {
			x.parts[y.Partition].Offers[y.Row.Identity] = y.Row.Token
			return
		}
	case lease.SightTakes:
		if late() && s.h.holdsOld(x.w.begin) {
			return
		}
	}
	x.stepLocked(y.Partition, &e)
}

// opened notes which process has a session.
func (x *traces) opened(s *start, session string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.starts[session] = s
}

// dead notes that the arbiter takes a session for dead.
func (x *traces) dead(session string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for p := range x.parts {
		x.stepLocked(uint32(p), &spec.Event{Kind: spec.Dead, Session: session})
	}
}

func rowsOf(rows map[string]fallback.Row) (all []fallback.Row) {
	for _, r := range rows {
		all = append(all, r)
	}
	return all
}
