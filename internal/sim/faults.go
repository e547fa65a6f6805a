package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// event is a future action.
type event struct {
	at time.Time
	do func()
}

// timeline executes events one after the other. One goroutine uses it.
type timeline struct{ events []event } // the next one last

func (l *timeline) at(t time.Time, do func()) {
	i, _ := slices.BinarySearchFunc(l.events, t, func(e event, t time.Time) int { return t.Compare(e.at) })
	l.events = slices.Insert(l.events, i, event{t, do}) // after those at the same time
}

// run executes the events before end, each at its time, and returns at end.
func (l *timeline) run(end time.Time) {
	for n := len(l.events); n > 0 && l.events[n-1].at.Before(end); n = len(l.events) {
		e := l.events[n-1]
		l.events = l.events[:n-1]
		time.Sleep(time.Until(e.at))
		e.do()
	}
	time.Sleep(time.Until(end))
}

// schedule injects the plan's faults until the time with faults is over.
func (w *world) schedule(plan []Fault) {
	for _, f := range plan {
		w.times.at(w.begin.Add(f.At), func() { w.inject(f) })
	}
	w.times.run(w.begin.Add(time.Duration(w.cfg.Length) * w.cfg.TTL))
}

// after schedules the end of a fault, or its next step. Processes that are gone by then do not
// mind.
func (w *world) after(d time.Duration, f func()) { w.times.at(time.Now().Add(d), f) }

// inject begins a fault, if there is a node to suffer it.
func (w *world) inject(f Fault) {
	n, m := w.nodes[f.Node], w.nodes[f.Other]
	s, other := n.now, m.now
	switch f.Kind {
	case empty:
		if w.hasty(f.Ahead) {
			return
		}
	case failover, part, down, late, forge, rewind, tick:
	case cut, reset:
		if s == nil || other == nil {
			return
		}
	default:
		if s == nil {
			return
		}
	}
	w.tell(f)
	spell := func(begin, end func(x *weather)) {
		s.client.set(begin)
		w.after(f.For, func() { s.client.set(end) })
	}
	switch f.Kind {
	case cut:
		w.net.setCut(s.h, other.h, true)
		if f.Both {
			w.net.setCut(other.h, s.h, true)
		}
		w.after(f.For, func() {
			w.net.setCut(s.h, other.h, false)
			w.net.setCut(other.h, s.h, false)
		})
	case alone:
		var others []*host
		for _, m := range w.nodes {
			if m != n && m.now != nil {
				others = append(others, m.now.h)
			}
		}
		set := func(cut bool) {
			for _, o := range others {
				w.net.setCut(s.h, o, cut)
				w.net.setCut(o, s.h, cut)
			}
		}
		set(true)
		w.after(f.For, func() { set(false) })
	case away:
		spell(func(x *weather) { x.away = true }, func(x *weather) { x.away = false })
	case lossy:
		spell(func(x *weather) {
			x.lost, x.unheard, x.repeated, x.unmessage, x.echo = f.Share/2, f.Share/2, f.Share, f.Share, f.Late
		},
			func(x *weather) { x.lost, x.unheard, x.repeated, x.unmessage = 0, 0, 0, 0 })
	case slow:
		spell(func(x *weather) { x.latency = f.Late }, func(x *weather) { x.latency = usual })
	case shard:
		spell(func(x *weather) { copy(x.shard[:], f.Some[:]) }, func(x *weather) { x.shard = [partitions]bool{} })
	case still:
		s.h.clock.stand(f.For, f.Reads)
	case tick:
		if !w.cfg.Observed && !w.hasty(f.Ahead) { // or an epoch may be given out again, if all is lost then
			w.s.tick(f.Ahead)
			w.outside.Ticks++
		}
	case ask, breaks, rotate, drain:
		w.operate(f)
	case again:
		n.again(f)
	case wall:
		n.step(f.Ahead)
		w.outside.Steps++
		if f.Both {
			w.after(f.For, func() { n.step(-f.Ahead) })
		}
	case crash, leave:
		if f.Kind == crash {
			n.crash()
		} else {
			left := n.leave()
			w.work.Go(left)
		}
		w.after(f.For, func() {
			if n.now == nil {
				n.start()
			}
		})
	case failover, part:
		if w.cfg.Observed { // all is on one server
			old := w.s.books.copied()
			w.after(f.Late, func() { w.failover(func() { w.s.failoverBook(old) }, f) })
			break
		}
		old := w.s.Snapshot()
		switch {
		case f.Kind == failover && w.cfg.Spread && !f.Both:
			w.after(f.Late, func() { w.failoverTable(old, f) })
		case f.Kind == failover || w.cfg.Opened && !w.cfg.Spread:
			w.after(f.Late, func() { w.failover(func() { w.s.failover(old, true) }, f) })
		default:
			w.after(f.Late, func() { w.failoverPart(old, f) })
		}
	case rewind: // never with observers
		old := w.s.Snapshot()
		w.after(f.Late, func() { w.s.rewind(old) })
	case empty:
		if w.cfg.Spread && !f.Both {
			w.failoverTable(nil, Fault{Ahead: f.Ahead})
			break
		}
		w.s.next = f.Ahead
		w.s.failover(nil, false)
	case down:
		w.s.setDown(true)
		w.after(f.For, func() { w.s.setDown(false) })
	case reset:
		w.net.reset(s.h, other.h)
	case forge:
		w.forge(time.Now().Add(f.For))
	case late:
		w.net.setLatency(f.Late)
		w.after(f.For, func() { w.net.setLatency(usual) })
	}
}

// answers is for how long a deposed server answers: a little less than delta, which is a tenth of T
// here.
func (w *world) answers() time.Duration { return w.cfg.TTL * 19 / 200 }

// mislead makes a node take a deposed server for the present one. That lasts as long as the server
// answers, or until another fault misleads the node. In half of these faults its calls go to either
// one, as by connections of before and after.
func (w *world) mislead(s *start, f Fault, set func(x *weather, is bool)) {
	rng := rand.New(rand.NewPCG(w.cfg.Seed, uint64(f.At)+uint64(s.n.number)))
	end, this := time.Now().Add(w.answers()), s.client.misled.Add(1)
	var flip func(is bool)
	flip = func(is bool) {
		is = is && time.Now().Before(end) && s.client.misled.Load() == this
		s.client.set(func(x *weather) { set(x, is) })
		next := time.Until(end)
		switch {
		case next <= 0:
		case f.Both:
			w.after(min(time.Duration(1+rng.Int64N(40))*time.Millisecond, next), func() { flip(!is) })
		default:
			w.after(next, func() { flip(false) })
		}
	}
	flip(true)
}

// failover makes the arbiter another server by become. Some nodes still believe in the one before
// for a while, which is less than Q - T - M.
func (w *world) failover(become func(), f Fault) {
	if w.hasty(f.Ahead) {
		w.say("failover: not now")
		return
	}
	w.s.next = f.Ahead
	become()
	for _, n := range w.nodes {
		if s := n.now; s != nil && f.Some[n.number] {
			w.mislead(s, f, func(x *weather, is bool) { x.deposed = is })
		}
	}
}

// failoverPart is failover of the server of some partitions.
func (w *world) failoverPart(old *fallback.Snapshot, f Fault) {
	if w.hasty(f.Ahead) {
		w.say("failover: not now")
		return
	}
	w.s.next = f.Ahead
	w.s.failoverPart(old)
	for _, n := range w.nodes {
		if s := n.now; s != nil && f.Some[n.number] {
			w.mislead(s, f, func(x *weather, is bool) { x.apart = is })
		}
	}
}

// failoverTable is failover of the server of the sessions, which has the other partitions.
func (w *world) failoverTable(old *fallback.Snapshot, f Fault) {
	if w.hasty(f.Ahead) {
		w.say("failover: not now")
		return
	}
	w.say("it is the server of the sessions only")
	for _, n := range w.nodes { // the copy that is deposed has all partitions
		if s := n.now; s != nil {
			s.client.misled.Add(1)
			s.client.set(func(x *weather) { x.deposed = false })
		}
	}
	w.s.next = f.Ahead
	w.s.failoverTable(old)
	for _, n := range w.nodes {
		if s := n.now; s != nil && f.Some[n.number] {
			w.mislead(s, f, func(x *weather, is bool) { x.table = is })
		}
	}
}
