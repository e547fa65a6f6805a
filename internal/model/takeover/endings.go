package takeover

import "math/bits"

// EndGuard is something that the rules about ended processes do so that nothing bad happens.
type EndGuard uint16

// Guards of the rules about processes that have ended (docs/takeover.md).
const (
	ProofOfEnd    EndGuard = 1 << iota // X's process is said to have ended only if so (G9)
	ProofOfListed                      // and a listed session's: it need not answer then (G11)
	ClearRests                         // a node answers once no hold rests on X's word (G10)
	ClearCut                           // and takes nothing from X's streams any more by then (G10)
	ClearAll                           // an early vote needs answers of all listed sessions (G11)
	ListAfter                          // the guardian lists them after it was told (G11)
	ListGrace                          // outside of Grace (G11)
	ListWaits                          // with AsksFirst it waits for delta after the list
	EndedGrace                         // nothing is buried in Grace (G6)
	EndedNewcomer                      // a new session waits for delta after a failover (E6)
	EndedRowLate                       // and no row is confirmed then (rule 7)
)

var endGuardNames = []string{
	"ProofOfEnd", "ProofOfListed", "ClearRests", "ClearCut", "ClearAll", "ListAfter", "ListGrace", "ListWaits",
	"EndedGrace", "EndedNewcomer", "EndedRowLate",
}

func (g EndGuard) String() string { return endGuardNames[bits.TrailingZeros16(uint16(g))] }

// Endings is the model of an early burial. The process of session X is killed. Holders rest on X's
// word. They are told of the end, and so is a guardian. It votes once its promise has passed, or
// early.
//
// Clocks run alike. [Guardians] has those that do not, and sets of guardians that change.
type Endings struct {
	Holders   int
	D         int8 // a guardian's promise; X announces no more than is left of it
	Grace     int8
	Delta     int8  // a server that was deposed answers for so many ticks
	Failovers uint8 // of each server
	Apart     bool  // the table of sessions and the partition have a server each
	AsksFirst bool  // lists do not tell of Grace: the guardian asks before
	Without   EndGuard
	Limit     int
}

func (m *Endings) has(g EndGuard) bool { return m.Without&g == 0 }

const maxY = 2

// Where data are, as bits: at the server, at the deposed one, or at a replica that has stopped.
const (
	atNow = 1 << iota
	atOld
	atCopy
)

type (
	// endServer is a server, and the one before, which answers for some ticks yet.
	endServer struct {
		grace, oldGrace int8
		answers         int8
		copied          bool
		fails           uint8
	}
	// endHolder is a node Y with a session, and one hold that X granted.
	endHolder struct {
		open   bool
		waits  int8  // for so many ticks it asks X for nothing
		rests  int8  // it relies on X's word for so many ticks
		onWay  int8  // an announcement on its way, good for so many ticks
		held   bool  // it holds by its row, which it writes anew before a Grace ends
		told   bool  // that X's process has ended
		clear  bool  // it has answered
		killed bool  // and its own process has ended
		listed bool  // in the list that the guardian has read
		reg    uint8 // where its session is registered
		row    uint8 // where its row is
	}
	endState struct {
		table, part endServer // the same with one server for both
		known       uint8     // where X's session is registered
		left        int8      // of the guardian's promise
		killed      bool
		taken       bool // a table said that X is dead: all that X had may be taken
		y           [maxY]endHolder

		// The guardian.
		told, asked, read, voted bool
		waits                    int8 // after its list
	}
)

// Kinds of events of endings.
const (
	dTick = iota
	dPing
	dRenew
	dKill
	dOpen
	dOpenOld
	dAnnounce
	dGranted
	dArrives
	dAdopt
	dAdoptOld
	dToldY
	dClear
	dKillY
	dTold
	dAsk
	dAskOld
	dList
	dListOld
	dVoteEarly
	dVote
	dBury
	dBuryOld
	dUnknown
	dCopy
	dFail
	dFailEmpty
	dCopyPart
	dFailPart
	dFailPartEmpty
)

func (m *Endings) names() []string {
	return []string{
		dTick: "-- a tick --", dPing: "the guardian promises X $v ticks", dRenew: "X renews at the new server", dKill: "X IS KILLED",
		dOpen: "holder $a opens its session", dOpenOld: "holder $a opens its session at the deposed server",
		dAnnounce: "X announces $v ticks to holder $a; this is on its way", dGranted: "this reaches holder $a with a hold: $v ticks are left",
		dArrives: "this reaches holder $a, about its hold: $v ticks are left",
		dAdopt:   "holder $a adopts", dAdoptOld: "holder $a adopts at the deposed server",
		dToldY: "holder $a is told that X's process has ended", dClear: "holder $a answers: clear", dKillY: "HOLDER $a IS KILLED",
		dTold: "the guardian is told that X's process has ended",
		dAsk:  "the guardian asks about X, outside of Grace", dAskOld: "the guardian asks the deposed server about X, outside of Grace",
		dList: "the guardian lists the sessions", dListOld: "the guardian lists the sessions at the deposed server",
		dVoteEarly: "the guardian votes early", dVote: "the guardian votes, as its promise has passed",
		dBury: "X is buried", dBuryOld: "X is buried at the deposed server", dUnknown: "the arbiter does not know X: it is dead",
		dCopy: "a replica stops following", dFail: "FAILOVER to the replica", dFailEmpty: "FAILOVER, everything is lost",
		dCopyPart: "a replica of the partition's server stops following", dFailPart: "FAILOVER of the partition's server to the replica",
		dFailPartEmpty: "FAILOVER of the partition's server, everything is lost",
	}
}

func (m *Endings) initial() []endState {
	return []endState{{known: atNow, left: m.D}}
}

// lives reports whether X does, and is valid.
func (s *endState) lives() bool { return !s.killed && s.left > 0 }

// announced returns how long X tells a holder that it is valid. A lease of the server before ends
// before Grace does.
func (s *endState) announced() int8 {
	if s.known&atNow == 0 {
		return min(s.left, s.table.grace)
	}
	return s.left
}

// check looks at each server of the partition that answers outside of Grace. Once X is said to be
// dead, other sessions may take the key there, unless it has a row.
func (m *Endings) check(s *endState) string {
	if !s.taken {
		return ""
	}
	if s.part.grace == 0 {
		if broken := s.lost(atNow); broken != "" {
			return broken
		}
	}
	if s.part.answers > 0 && s.part.oldGrace == 0 {
		return s.lost(atOld)
	}
	return ""
}

// lost returns what is wrong if other sessions take all that X had at a server.
func (s *endState) lost(at uint8) string {
	if s.lives() {
		return "X is dead at the arbiter, and valid"
	}
	for _, y := range s.y {
		switch {
		case y.row&at != 0:
		case y.rests > 0:
			return "X is dead at the arbiter, and a holder relies on what it announced"
		case y.held:
			return "X is dead at a server that lacks the row by which a holder holds"
		}
	}
	return ""
}

// young reports whether a server took over less than delta ago.
func (m *Endings) young(grace int8) bool { return grace > m.Grace-m.Delta }

func (m *Endings) tick(s endState) endState {
	pass(&s.left, 1)
	pass(&s.waits, 1)
	for i := range s.y {
		y := &s.y[i]
		pass(&y.waits, 1)
		pass(&y.rests, 1)
		pass(&y.onWay, 1)
		// A session that lives renews before Grace ends, and writes its rows anew: at the last moment,
		// or by an adoption. It does so at a server that is deposed meanwhile, too. So with two
		// failovers Delta is one tick: no Grace ends before the deposed server falls silent.
		if y.open && s.table.grace == 1 {
			y.reg |= atNow
		}
		if y.held && s.part.grace == 1 {
			y.row |= atNow
		}
	}
	if s.lives() && s.table.grace == 1 {
		s.known |= atNow
	}
	for _, x := range []*endServer{&s.table, &s.part} {
		pass(&x.grace, 1)
		pass(&x.oldGrace, 1)
		pass(&x.answers, 1)
	}
	return s
}

// tidy drops data without any further effect.
func (m *Endings) tidy(s *endState) {
	kept := func(x *endServer) (bits uint8) {
		bits = atNow
		if x.answers > 0 {
			bits |= atOld
		} else {
			x.oldGrace = 0
		}
		if x.copied {
			bits |= atCopy
		}
		return bits
	}
	table, part := kept(&s.table), kept(&s.part)
	s.known &= table
	for i := range s.y {
		y := &s.y[i]
		if y.killed {
			*y = endHolder{killed: true, reg: y.reg, listed: y.listed}
		}
		if y.told && m.has(ClearCut) {
			y.onWay, y.waits = 0, 0
		}
		if s.killed {
			y.waits = 0
		}
		if !y.held && y.rests == 0 {
			y.row = 0
		}
		y.reg &= table
		y.row &= part
		if s.read {
			y.reg = 0 // it was for the list
		}
		if s.voted {
			y.listed, y.clear = false, false
		}
	}
	if s.voted {
		s.told, s.asked, s.read, s.waits = false, false, true, 0
	}
	if s.read {
		s.asked = false
	}
	if m.Holders == 2 && s.y[0].before(s.y[1]) { // which is which has no effect
		s.y[0], s.y[1] = s.y[1], s.y[0]
	}
}

func (y endHolder) before(x endHolder) bool { return y.key() < x.key() }

func (y endHolder) key() (k uint32) {
	for i, b := range []bool{y.open, y.held, y.told, y.clear, y.killed, y.listed} {
		if b {
			k |= 1 << i
		}
	}
	for _, n := range []int8{y.waits, y.rests, y.onWay, int8(y.reg), int8(y.row)} {
		k = k<<4 | uint32(n)
	}
	return k
}

type endAdder func(kind int, node int, n int8, change func(s *endState))

func (m *Endings) next(was *endState, to func(event, endState)) {
	add := func(kind int, node int, n int8, change func(s *endState)) {
		s := *was
		change(&s)
		m.tidy(&s)
		if s != *was {
			to(event{int8(kind), int8(node), n}, s)
		}
	}
	add(dTick, 0, 0, func(s *endState) { *s = m.tick(*s) })
	if was.lives() {
		if !was.voted {
			add(dPing, 0, m.D, func(s *endState) { s.left = m.D })
		}
		if was.table.grace > 0 {
			add(dRenew, 0, 0, func(s *endState) { s.known |= atNow })
		}
		add(dKill, 0, 0, func(s *endState) { s.killed = true })
	}
	for i := range m.Holders {
		if !was.y[i].killed {
			m.holder(was, i, add)
		}
	}
	m.guardian(was, add)
	m.servers(was, add)
}

// holder makes the steps of a holder, and X's announcements to it.
func (m *Endings) holder(was *endState, i int, add endAdder) {
	y := &was.y[i]
	if !y.open && was.lives() {
		open := func(at uint8, grace int8) func(s *endState) {
			return func(s *endState) {
				s.y[i].open, s.y[i].reg = true, at
				if m.young(grace) && m.has(EndedNewcomer) {
					s.y[i].waits = m.Delta
				}
			}
		}
		add(dOpen, i, 0, open(atNow, was.table.grace))
		if was.table.answers > 0 {
			add(dOpenOld, i, 0, open(atOld, was.table.oldGrace))
		}
	}
	if y.open && y.waits == 0 && was.lives() {
		d := was.announced()
		add(dAnnounce, i, d, func(s *endState) { s.y[i].onWay = max(s.y[i].onWay, d) })
	}
	if y.onWay > 0 { // with another hold, or for the one that it has: the row is of that one
		add(dGranted, i, y.onWay, func(s *endState) {
			y := &s.y[i]
			y.held, y.row, y.rests, y.onWay = false, 0, y.onWay, 0
		})
		if y.rests > 0 {
			add(dArrives, i, y.onWay, func(s *endState) {
				y := &s.y[i]
				y.rests, y.onWay = max(y.rests, y.onWay), 0
			})
		}
	}
	if y.rests > 0 {
		adopt := func(at uint8, grace int8) func(s *endState) {
			return func(s *endState) {
				y := &s.y[i]
				y.row |= at
				if !m.young(grace) || !m.has(EndedRowLate) {
					y.held, y.rests = true, 0
				}
			}
		}
		add(dAdopt, i, 0, adopt(atNow, was.part.grace))
		if was.part.answers > 0 {
			add(dAdoptOld, i, 0, adopt(atOld, was.part.oldGrace))
		}
	}
	if !y.told && m.tells(was.killed) {
		add(dToldY, i, 0, func(s *endState) { s.y[i].told = true })
	}
	if y.told && (y.rests == 0 || !m.has(ClearRests)) {
		add(dClear, i, 0, func(s *endState) { s.y[i].clear = true })
	}
	if y.open {
		add(dKillY, i, 0, func(s *endState) { s.y[i].killed = true })
	}
}

// tells reports whether a process is said to have ended.
func (m *Endings) tells(killed bool) bool { return killed || !m.has(ProofOfEnd) }

// guardian makes the steps of a guardian. Another vote makes a burial later, and not sooner.
func (m *Endings) guardian(was *endState, add endAdder) {
	if was.voted {
		return
	}
	if !was.told && m.tells(was.killed) {
		add(dTold, 0, 0, func(s *endState) { s.told = true })
	}
	if (was.told || !m.has(ListAfter)) && !was.read {
		m.lists(was, add, atNow, was.table.grace, dAsk, dList)
		if was.table.answers > 0 {
			m.lists(was, add, atOld, was.table.oldGrace, dAskOld, dListOld)
		}
	}
	early := was.told && was.read && was.waits == 0
	for _, y := range was.y {
		if y.listed && !y.clear && !y.killed && m.has(ProofOfListed) && m.has(ClearAll) {
			early = false
		}
	}
	if early {
		add(dVoteEarly, 0, 0, func(s *endState) { s.voted = true })
	}
	if was.left == 0 {
		add(dVote, 0, 0, func(s *endState) { s.voted = true })
	}
}

// lists makes the guardian's calls to a server.
func (m *Endings) lists(was *endState, add endAdder, at uint8, grace int8, ask, list int) {
	if m.AsksFirst && grace == 0 {
		add(ask, 0, 0, func(s *endState) { s.asked = true })
	}
	if was.asked || !m.AsksFirst && grace == 0 || !m.has(ListGrace) {
		add(list, 0, 0, func(s *endState) {
			if s.read = true; m.AsksFirst && m.has(ListWaits) {
				s.waits = m.Delta
			}
			for i := range s.y {
				s.y[i].listed = s.y[i].reg&at != 0
			}
		})
	}
}

// servers makes the steps of the arbiter.
func (m *Endings) servers(was *endState, add endAdder) {
	dies := func(s *endState) { s.taken = true }
	if was.voted && (was.table.grace == 0 || !m.has(EndedGrace)) {
		add(dBury, 0, 0, dies)
	}
	if was.voted && was.table.answers > 0 && (was.table.oldGrace == 0 || !m.has(EndedGrace)) {
		add(dBuryOld, 0, 0, dies)
	}
	if was.known&atNow == 0 && was.table.grace == 0 {
		add(dUnknown, 0, 0, dies)
	}
	table := func(s *endState) []*uint8 { return []*uint8{&s.known, &s.y[0].reg, &s.y[1].reg} }
	part := func(s *endState) []*uint8 { return []*uint8{&s.y[0].row, &s.y[1].row} }
	if !m.Apart {
		m.fails(was, add, dCopy, func(s *endState) []*endServer { return []*endServer{&s.table, &s.part} },
			func(s *endState) []*uint8 { return append(table(s), part(s)...) })
		return
	}
	m.fails(was, add, dCopy, func(s *endState) []*endServer { return []*endServer{&s.table} }, table)
	m.fails(was, add, dCopyPart, func(s *endState) []*endServer { return []*endServer{&s.part} }, part)
}

// fails makes the steps of a server's failover: copy is the kind of the first one.
func (m *Endings) fails(was *endState, add endAdder, copied int, of func(s *endState) []*endServer, data func(s *endState) []*uint8) {
	first := *was
	if of(&first)[0].fails >= m.Failovers {
		return
	}
	another := func(empty bool) func(s *endState) {
		return func(s *endState) {
			for _, x := range of(s) {
				*x = endServer{grace: m.Grace, oldGrace: x.grace, answers: m.Delta, fails: x.fails + 1}
			}
			for _, d := range data(s) {
				was := *d
				*d = 0
				if was&atNow != 0 {
					*d |= atOld
				}
				if was&atCopy != 0 && !empty {
					*d |= atNow
				}
			}
		}
	}
	if of(&first)[0].copied {
		add(copied+1, 0, 0, another(false))
	} else {
		add(copied, 0, 0, func(s *endState) {
			for _, x := range of(s) {
				x.copied = true
			}
			for _, d := range data(s) {
				if *d&atNow != 0 {
					*d |= atCopy
				}
			}
		})
	}
	add(copied+2, 0, 0, another(true))
}

// Explore sees every state within the bounds, or stops at the first violation.
func (m *Endings) Explore() Result { return explore[endState](m, m.Limit) }
