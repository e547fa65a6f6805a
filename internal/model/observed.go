package model

import (
	"fmt"
	"slices"
)

// Observed explores deaths by an observer's clock: the store has none. A session is a record with a
// counter, its beat, that each renewal raises by compare-and-set. An observer that has seen the
// same beat for T + M by its own clock declares the session dead, by compare-and-set on that beat.
// Then the key goes to another session. Bounds: renewals under way, renewals in all, ticks.
type Observed struct {
	T, M     uint8 // ticks: the lease from the send, and the observers' margin
	Renewals uint8 // in all
	Late     uint8 // renewals that are under way at a time
	Ticks    uint8
	Fast     uint8 // ticks that an observer's clock gains, in all
	Steps    uint8 // steps of an observer's wall clock, past everything
	Without  ObservedGuard
}

// An ObservedGuard is something without which a living session is declared dead.
type ObservedGuard uint8

// Guards of observers. CompareBeat and RenewCompare on the one side, InTime on the other are
// defences of each other.
const (
	SameBeat     ObservedGuard = 1 << iota // another beat begins the count anew
	OwnLook                                // the count begins with the observer's own look, not with a time that the record tells
	CompareBeat                            // the death is a compare-and-set on the beat that was seen
	RenewCompare                           // and so is a renewal: one that had read the record before the death fails
	DeathMargin                            // observers count M more than the lease has
	InTime                                 // an answer to a renewal that comes after the old deadline is too late (rule 3)
)

const (
	observers   = 2
	observedMax = 3 // renewals under way
)

// observed is a state. Beats count from 1; 0 is none.
type observed struct {
	beat     uint8 // of the record; 0: it was declared dead
	dead     bool  // it was declared dead, and the key went to another
	written  uint8 // ticks since the beat was written
	lease    uint8 // ticks that are left to the session by its own clock
	way      [observedMax]observedRenewal
	o        [observers]observer
	renewals uint8 // left, as the fields below
	ticks    uint8
	fast     uint8
	steps    uint8
}

type observedRenewal struct {
	stage uint8 // 0: none; 1: sent; 2: it has read the record; 3: it was executed, and is not answered
	sent  uint8 // ticks ago
	read  uint8 // the beat that it has read
}

type observer struct {
	beat  uint8 // that it has seen last; 0: none
	since uint8 // ticks, by its clock
	going uint8 // the beat of a declaration that is under way; 0: none
	ahead bool  // its wall clock stepped
}

// Explore sees every state, or stops at the first violation and returns a shortest story of it.
func (m *Observed) Explore() (states int, broken string, story []string) {
	type origin struct {
		from int
		what string
	}
	first := observed{beat: 1, lease: m.T, renewals: m.Renewals, ticks: m.Ticks, fast: m.Fast, steps: m.Steps}
	seen := map[observed]bool{first: true}
	all, origins := []observed{first}, []origin{{-1, ""}}
	for at := 0; at < len(all) && broken == ""; at++ {
		m.next(all[at], func(n observed, what string) {
			if broken != "" || seen[n] {
				return
			}
			seen[n] = true
			all, origins = append(all, n), append(origins, origin{at, what})
			if n.dead && n.lease > 0 {
				broken = "I3: a session is declared dead that has its lease"
				for i := len(all) - 1; i > 0; i = origins[i].from {
					story = append(story, origins[i].what)
				}
				slices.Reverse(story)
			}
		})
	}
	return len(all), broken, story
}

func (m *Observed) has(g ObservedGuard) bool { return m.Without&g == 0 }

// enough is for how long an observer sees one beat before it declares.
func (m *Observed) enough() uint8 {
	if m.has(DeathMargin) {
		return m.T + m.M
	}
	return m.T
}

func (m *Observed) next(was observed, emit func(observed, string)) {
	m.renew(was, emit)
	for i := range was.o {
		m.observe(was, i, emit)
	}
	if was.ticks > 0 {
		n := was
		n.ticks--
		less(&n.lease)
		n.written = min(n.written+1, m.enough())
		for i := range n.way {
			if n.way[i].stage > 0 {
				n.way[i].sent = min(n.way[i].sent+1, m.T)
			}
		}
		for i := range n.o {
			n.o[i].since = min(n.o[i].since+1, m.enough())
		}
		emit(n, "a tick")
	}
}

// renew is the session's side: a renewal is sent, reads, writes, and is answered, each at any time.
func (m *Observed) renew(was observed, emit func(observed, string)) {
	for i := range min(m.Late, observedMax) {
		w := was.way[i]
		n := was
		x := &n.way[i]
		switch w.stage {
		case 0:
			if was.renewals > 0 && was.lease > 0 {
				n.renewals--
				*x = observedRenewal{stage: 1}
				emit(n, "the session sends a renewal")
			}
			continue
		case 1:
			if x.stage, x.read = 2, was.beat; was.beat == 0 {
				*x = observedRenewal{} // the session is told that it is dead
			}
			emit(n, fmt.Sprintf("a renewal reads beat %d", was.beat))
		case 2:
			*x = observedRenewal{} // another one was faster: it is given up
			if was.beat == w.read || !m.has(RenewCompare) {
				*x = observedRenewal{stage: 3, sent: w.sent}
				n.beat, n.written = w.read+1, 0
			}
			emit(n, fmt.Sprintf("a renewal would write beat %d: the record has %d", w.read+1, n.beat))
		default:
			*x = observedRenewal{}
			if was.lease > 0 || !m.has(InTime) {
				n.lease = max(was.lease, m.T-w.sent)
			}
			emit(n, "a renewal is answered")
		}
		n = was
		n.way[i] = observedRenewal{}
		emit(n, "a renewal, or its answer, is lost")
	}
}

func (m *Observed) observe(was observed, i int, emit func(observed, string)) {
	n := was
	x := &n.o[i]
	name := string(rune('A' + i))
	if was.beat != 0 && x.beat != was.beat {
		if x.beat == 0 || m.has(SameBeat) {
			x.since = 0
		}
		if x.beat = was.beat; !m.has(OwnLook) {
			if x.since = was.written; x.ahead {
				x.since = m.enough()
			}
		}
		emit(n, fmt.Sprintf("%s sees beat %d", name, was.beat))
	} else if was.beat != 0 && x.going == 0 && x.since >= m.enough() {
		x.going = was.beat
		emit(n, fmt.Sprintf("%s has seen beat %d for long enough", name, was.beat))
	}
	if n = was; x.going != 0 {
		if was.beat == x.going || !m.has(CompareBeat) {
			n.beat, n.dead = 0, true
		}
		x.going = 0
		emit(n, name+"'s declaration is executed")
	}
	if n = was; was.fast > 0 && x.since < m.enough() {
		n.fast--
		x.since++
		emit(n, name+"'s clock gains a tick")
	}
	if n = was; was.steps > 0 && !x.ahead {
		n.steps--
		x.ahead = true
		emit(n, name+"'s wall clock steps")
	}
}
