package takeover

import (
	"math/bits"

	"github.com/holdfast-go/holdfast/internal/guardians"
)

// Consent is the model of a store that has become two: each goes on for ever, and gives the key to
// the members that speak to it. There are three members and one key. Versions of sets, and requests
// on their way, are those of [Guardians], and left out here: a change or a burial is one step.
type Consent struct {
	// Stores of the members, as bits: 0 the old one, 1 the promoted one. Links between members:
	// bits 0 a-b, 1 a-c, 2 b-c.
	Stores, Links uint8

	Agreed   bool // a set is changed only with p members of the set before it
	Buried   bool // a session with guardians is not dead by its expiry, but by votes only
	Quorum   int  // so many members, itself among them, have to promise, and sets are not smaller; 0: as the set says
	Restarts uint8
	Held     bool // a has the key when the store becomes two; else it is free
	Limit    int
}

type consentState struct {
	absent   [2]int8 // until a store takes members that do not speak to it for dead: T, or Grace
	grace    int8    // of the promoted store
	set      [3]uint8
	prom     [3][3]int8
	holder   [2]int8 // of the key by store: -1 none, a member, or ghost
	ghost    int8    // until the session of a member that restarted has expired
	lapsed   uint8   // members after the end of their session
	restarts uint8
}

const (
	ghost    = 3
	consentD = 2
	consentT = 3
	consentQ = 4
)

const (
	cTick = iota
	cPing
	cChange
	cTake
	cRestart
)

func (m *Consent) names() []string {
	return []string{
		cTick: "-- a tick --", cPing: "$a has promises of members $v", cChange: "$a changes its guardians to $v",
		cTake: "$a takes the key at store $v", cRestart: "$a restarts, with a new session",
	}
}

func (m *Consent) initial() []consentState {
	s := consentState{absent: [2]int8{consentT, consentQ}, grace: consentQ, holder: [2]int8{-1, -1}}
	if m.Held {
		s.holder = [2]int8{0, 0}
	}
	for i := range 3 {
		s.set[i] = 7 &^ (1 << i)
		for j := range 3 {
			if i != j {
				s.prom[i][j] = consentD
			}
		}
	}
	return []consentState{s}
}

func (m *Consent) linked(i, j int) bool { return i != j && m.Links&(1<<(i+j-1)) != 0 }

func (m *Consent) store(i int) int { return int(m.Stores >> i & 1) }

// promises returns which members of a set have promised i, and not yet passed.
func (s *consentState) promises(i int, set uint8) (in uint8) {
	for j := range 3 {
		if set&(1<<j) != 0 && s.prom[i][j] > 0 {
			in |= 1 << j
		}
	}
	return in
}

func (m *Consent) valid(s *consentState, i int) bool {
	if s.lapsed&(1<<i) != 0 {
		return false
	}
	if m.Quorum > 0 && 1+bits.OnesCount8(s.promises(i, 7)) < m.Quorum {
		return false
	}
	p, _ := guardians.Quorum(bits.OnesCount8(s.set[i]))
	return s.set[i] == 0 || bits.OnesCount8(s.promises(i, s.set[i])) >= p
}

// dead reports whether a store says that a holder is.
func (m *Consent) dead(s *consentState, store int, holder int8) bool {
	if store == 1 && s.grace > 0 {
		return false
	}
	if holder == ghost {
		return s.ghost == 0
	}
	i := int(holder)
	_, e := guardians.Quorum(bits.OnesCount8(s.set[i]))
	votes := 0
	for j := range 3 {
		if s.set[i]&(1<<j) != 0 && s.prom[i][j] == 0 && m.store(j) == store && s.lapsed&(1<<j) == 0 {
			votes++
		}
	}
	if s.set[i] != 0 && votes >= e {
		return true
	}
	expired := s.absent[store] == 0 && (m.store(i) != store || s.lapsed&(1<<i) != 0)
	return expired && (!m.Buried || s.set[i] == 0)
}

func (m *Consent) check(s *consentState) string {
	if o, p := s.holder[0], s.holder[1]; o != p && o >= 0 && p >= 0 && o != ghost && p != ghost &&
		m.store(int(o)) == 0 && m.store(int(p)) == 1 && m.valid(s, int(o)) && m.valid(s, int(p)) {
		return "two members hold the key, each by its store"
	}
	if o, p := s.holder[0], s.holder[1]; m.Held && p > 0 && p != ghost && o == 0 && m.valid(s, 0) && m.valid(s, int(p)) {
		return "two members hold the key"
	}
	return ""
}

func (m *Consent) next(was *consentState, to func(event, consentState)) {
	s := *was
	pass(&s.absent[0], 1)
	pass(&s.absent[1], 1)
	pass(&s.grace, 1)
	pass(&s.ghost, 1)
	for i := range 3 {
		for j := range 3 {
			pass(&s.prom[i][j], 1)
		}
	}
	for i := range 3 {
		if !m.valid(&s, i) && (s.set[i] != 0) {
			s.lapsed |= 1 << i
		}
	}
	to(event{cTick, 0, 0}, s)
	for i := range 3 {
		if was.lapsed&(1<<i) == 0 {
			m.member(was, i, to)
		}
		if was.restarts < m.Restarts {
			s = *was
			s.restarts++
			s.lapsed &^= 1 << i
			s.set[i], s.prom[i] = 0, [3]int8{}
			for j := range 3 {
				s.prom[j][i] = 0 // its guardian is gone; that the new session may vote makes j shorter-lived only
			}
			for k := range s.holder {
				if s.holder[k] == int8(i) {
					s.holder[k], s.ghost = ghost, consentT
				}
			}
			to(event{cRestart, int8(i), 0}, s)
		}
	}
}

func (m *Consent) member(was *consentState, i int, to func(event, consentState)) {
	s := *was
	var all uint8
	for j := range 3 {
		if m.linked(i, j) && s.lapsed&(1<<j) == 0 {
			s.prom[i][j] = consentD
			all |= 1 << j
		}
	}
	if s != *was {
		to(event{cPing, int8(i), int8(all)}, s)
	}
	for set := uint8(0); set < 8; set++ {
		if set == was.set[i] || set&(1<<i) != 0 || bits.OnesCount8(set)+1 < m.Quorum {
			continue
		}
		p, _ := guardians.Quorum(bits.OnesCount8(was.set[i]))
		if m.Agreed && was.set[i] != 0 && bits.OnesCount8(all&was.set[i]) < p {
			continue
		}
		s = *was
		s.set[i] = set
		if m.valid(&s, i) {
			to(event{cChange, int8(i), int8(set)}, s)
		}
	}
	k := m.store(i)
	if m.valid(was, i) && was.holder[k] != int8(i) && (k == 0 || was.grace == 0) && (was.holder[k] < 0 || m.dead(was, k, was.holder[k])) {
		s = *was
		s.holder[k] = int8(i)
		to(event{cTake, int8(i), int8(k)}, s)
	}
}

// Explore sees every state within the bounds, or stops at the first violation.
func (m *Consent) Explore() Result { return explore[consentState](m, m.Limit) }
