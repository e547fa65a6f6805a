package model

import (
	"fmt"
	"slices"
)

// ObservedGrace explores the effects of a failover on observers. The store runs each operation in
// one step, and has no clock that counts. It loses the changes after the copy, and Grace begins.
// Grace has a beat, too: a process that has seen the Grace's beat for Q ends it by a
// compare-and-set. Between two looks of an observer anything may happen, two failovers among it.
type ObservedGrace struct {
	T, M, Q   uint8 // ticks: the lease from the send, the observers' margin, Grace
	Deposed   uint8 // a deposed server acknowledges for so many ticks
	Renewals  uint8 // in all
	Late      uint8 // renewals that are under way at a time, 2 at most
	Failovers uint8 // in all
	Ticks     uint8
	Without   GraceGuard
}

// A GraceGuard is something without which a living session is declared dead after a failover.
type GraceGuard uint8

// Guards of observers at a store that fails over.
const (
	GraceRefuses GraceGuard = 1 << iota // in Grace nothing is declared dead
	GraceLook                           // its length counts from a process's own first look at it, not by the server's clock, which may step
	GraceCompare                        // its end is a compare-and-set on its beat: a later Grace is not ended
	GraceAnew                           // a failover begins another Grace, also of a copy that was made in one
	BeatUnique                          // no beat is used twice: a renewal has its own number, and does not count the record's up
)

type graceStore struct {
	beat  uint8 // of the session's entry; 0: there is none
	grace uint8 // its beat; 0: there is none
}

type graceState struct {
	now, copy graceStore
	acks      uint8 // the deposed server still acknowledges for so many ticks
	lease     uint8 // ticks that are left to the session by its own clock
	dead      bool  // it was declared dead, and the key went to another
	number    uint8 // of the renewal that was sent last
	way       [2]graceRenewal
	o         [observers]graceObserver
	graces    uint8 // that began
	renewals  uint8 // left, as the fields below
	failovers uint8
	ticks     uint8
}

type graceRenewal struct {
	number uint8 // 0: none
	done   bool  // it was executed, and is not answered
	sent   uint8 // ticks ago
}

type graceObserver struct {
	seen          graceStore
	since, length uint8 // ticks since it first saw the beat, and the Grace
	declares      uint8 // the beat of a declaration on its way; 0: none
	ends          uint8 // the Grace of an end on its way; 0: none
}

// Explore sees every state, or stops at the first violation and returns a shortest story of it.
func (m *ObservedGrace) Explore() (states int, broken string, story []string) {
	type origin struct {
		from int
		what string
	}
	first := graceState{now: graceStore{beat: 1}, copy: graceStore{beat: 1}, lease: m.T, number: 1, renewals: m.Renewals, failovers: m.Failovers, ticks: m.Ticks}
	seen := map[graceState]bool{first: true}
	all, origins := []graceState{first}, []origin{{-1, ""}}
	for at := 0; at < len(all) && broken == ""; at++ {
		m.next(all[at], func(n graceState, what string) {
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

func (m *ObservedGrace) has(g GraceGuard) bool { return m.Without&g == 0 }

func (m *ObservedGrace) next(was graceState, emit func(graceState, string)) {
	m.renew(was, emit)
	for i := range was.o {
		m.look(was, i, emit)
		m.act(was, i, emit)
	}
	if n := was; n.copy != n.now {
		n.copy = n.now
		emit(n, "the copy follows")
	}
	if n := was; was.failovers > 0 {
		n.failovers--
		n.now, n.acks = was.copy, m.Deposed
		if n.graces++; was.copy.grace == 0 || m.has(GraceAnew) {
			n.now.grace = n.graces
		}
		n.copy = n.now
		emit(n, fmt.Sprintf("failover to beat %d: Grace %d", n.now.beat, n.now.grace))
	}
	if n := was; was.ticks > 0 {
		n.ticks--
		less(&n.lease)
		less(&n.acks)
		for i := range n.way {
			if n.way[i].number > 0 {
				n.way[i].sent = min(n.way[i].sent+1, m.T)
			}
		}
		for i := range n.o {
			n.o[i].since, n.o[i].length = min(n.o[i].since+1, m.T+m.M), min(n.o[i].length+1, m.Q)
		}
		emit(n, "a tick")
	}
}

// renew is the session's side.
func (m *ObservedGrace) renew(was graceState, emit func(graceState, string)) {
	for i, w := range was.way[:m.Late] {
		n := was
		switch x := &n.way[i]; {
		case w.number == 0:
			if was.renewals > 0 && was.lease > 0 {
				n.renewals--
				n.number++
				x.number = n.number
				emit(n, fmt.Sprintf("the session sends renewal %d", x.number))
			}
			continue
		case w.done:
			if *x = (graceRenewal{}); was.lease > 0 {
				n.lease = max(was.lease, m.T-w.sent)
			}
			emit(n, fmt.Sprintf("renewal %d is answered", w.number))
		default:
			if was.acks > 0 {
				x.done = true
				emit(n, fmt.Sprintf("the deposed server acknowledges renewal %d", w.number))
			}
			n = was
			x = &n.way[i]
			if was.now.beat == 0 && was.now.grace == 0 {
				*x = graceRenewal{} // the session is told that it is dead
			} else if x.done = true; m.has(BeatUnique) {
				n.now.beat = max(was.now.beat, w.number)
			} else {
				n.now.beat++
			}
			emit(n, fmt.Sprintf("renewal %d is executed: beat %d", w.number, n.now.beat))
		}
		n = was
		n.way[i] = graceRenewal{}
		emit(n, fmt.Sprintf("renewal %d, or its answer, is lost", w.number))
	}
}

// look is an observer's look at the table.
func (m *ObservedGrace) look(was graceState, i int, emit func(graceState, string)) {
	n := was
	x := &n.o[i]
	if x.seen == was.now {
		return
	}
	if x.seen.beat != was.now.beat {
		x.since = 0
	}
	if x.seen.grace != was.now.grace {
		if x.length = 0; !m.has(GraceLook) {
			x.length = m.Q
		}
	}
	x.seen = was.now
	emit(n, fmt.Sprintf("%c sees beat %d, Grace %d", 'A'+i, was.now.beat, was.now.grace))
}

// act makes an observer's conclusions, and their effects at any later time.
func (m *ObservedGrace) act(was graceState, i int, emit func(graceState, string)) {
	n := was
	if x := &n.o[i]; x.declares == 0 && x.seen.beat != 0 && x.since >= m.T+m.M {
		x.declares = x.seen.beat
		emit(n, fmt.Sprintf("%c has seen beat %d for long enough", 'A'+i, x.declares))
	}
	n = was
	if x := &n.o[i]; x.ends == 0 && x.seen.grace != 0 && x.length >= m.Q {
		x.ends = x.seen.grace
		emit(n, fmt.Sprintf("%c has seen Grace %d for long enough", 'A'+i, x.ends))
	}
	n = was
	if x := &n.o[i]; x.declares != 0 {
		if was.now.beat == x.declares && (was.now.grace == 0 || !m.has(GraceRefuses)) {
			n.now.beat, n.dead = 0, true
		}
		x.declares = 0
		emit(n, fmt.Sprintf("%c's declaration is executed", 'A'+i))
	}
	n = was
	if x := &n.o[i]; x.ends != 0 {
		if was.now.grace == x.ends || !m.has(GraceCompare) {
			n.now.grace = 0
		}
		x.ends = 0
		emit(n, fmt.Sprintf("%c's end of Grace is executed", 'A'+i))
	}
}
