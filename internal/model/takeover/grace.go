package takeover

import "math/bits"

// GraceGuard is something that an early end of Grace needs so that nothing bad happens.
type GraceGuard uint32

// Guards of an early end of Grace (docs/takeover.md).
const (
	LagCompared     GraceGuard = 1 << iota // only if the server was behind by W - delta at most
	Probation                              // a session takes nothing until W after it was opened
	ProbationAdopts                        // and adopts nothing
	AllSpoken                              // only when each session that is known has spoken, or is dead
	SpeaksLast                             // a session speaks after it has reclaimed all that it has
	SpeaksForOthers                        // and when all that it announced, and has not reclaimed, has passed
	SpeaksLate                             // and delta after the failover, when the deposed primary is silent
	SpeaksByRenewal                        // by a renewal
	OldAnswersVoid                         // and takes no answer from then on to what it asked before
	NoneExpires                            // in Grace a session that has not spoken is not dead by its expiry
	NoneBuried                             // nor by votes, for the recorded version may be an old one
	JointLonger                            // or: X needs both sets' promises until W after the answer
	CopyInGrace                            // not if the data are of a time when Grace was on
	Deposed                                // the deposed primary is silent after delta
	Recreated                              // a session that a server did not know is on probation again
	StatementNamed                         // a statement that all have spoken is for one server
)

var graceGuardNames = []string{
	"LagCompared", "Probation", "ProbationAdopts", "AllSpoken", "SpeaksLast", "SpeaksForOthers", "SpeaksLate", "SpeaksByRenewal", "OldAnswersVoid", "NoneExpires",
	"NoneBuried", "JointLonger", "CopyInGrace", "Deposed", "Recreated", "StatementNamed",
}

func (g GraceGuard) String() string { return graceGuardNames[bits.TrailingZeros32(uint32(g))] }

// Sessions of the model of Grace, as bits.
const (
	sX = 1 << iota // owns the partition
	sY             // holds its key
)

// EndOfGrace is the model of a partition with one key, of session X, which may own it, session Y, to which X may grant the key,
// and Z, which takes what the arbiter gives. Z is honest and quick: what it takes it has for ever.
//
// All clocks run alike. A call is one step, and an answer to X's acquire may come later. Delta is for how long a deposed
// primary answers.
type EndOfGrace struct {
	T, Q, W, Delta, D int8
	Failovers         uint8
	Holder            bool // there is Y
	Sets              bool // X has guardians, and changes them once
	Apart             bool // the sessions are at another server, which does not fail over
	Without           GraceGuard
	Limit             int
}

func (m *EndOfGrace) has(g GraceGuard) bool { return m.Without&g == 0 }

// store is a server's data: the sessions, the partition's record and row, and Grace.
type store struct {
	known, spoken uint8
	expiry        [2]int8
	owner         uint8 // sX, ofZ, or 0: none
	row           bool  // Y's
	grace         int8
	ver           int8
}

const ofZ = 4

const letterX = 'X' - 'a'

type graceState struct {
	cur, rep, old store
	copied        bool
	lag           int8 // since the replica was last in step
	deposed       int8 // for how long old answers
	early         bool // Grace may end early
	stated        bool // the server of the sessions has said that all have spoken; only if they are apart
	fails         uint8

	open  uint8
	age   [2]int8 // since it was opened, W at most
	lease [2]int8
	owns  bool // X
	slot  int8
	ans   int8 // an answer to acquire is on its way; what it is worth
	asked bool // before X has spoken
	ann   int8 // what X has announced at last
	hold  int8 // Y: 0 nothing, 1 a grant by X, 2 a row
	yann  int8
	conf  int8
	zkey  bool // Z has granted the key

	ver   int8 // sets of X's guardians: 0 the first, 1 both, 2 the second
	joint int8 // how long both are needed yet
	prom  [2]int8
	voted uint8
}

// Kinds of events.
const (
	eTick = iota
	eOpen
	eRenew
	eAcquire
	eAcquireLate
	eAnswer
	eVerify
	eReclaim
	eDrop
	eSpeak
	eGrant
	eAnnounce
	eRelease
	eAdopt
	eInStep
	eFailover
	eFailoverEmpty
	eStated
	eEarly
	eExpires
	eZOwns
	eZGrants
	ePromise
	eVersion
	eSettled
	eVote
	eBury
)

func (m *EndOfGrace) names() []string {
	return []string{
		eTick: "-- a tick --", eOpen: "$a opens its session at server $v", eRenew: "$a renews at server $v", eAcquire: "X acquires at server $v",
		eAcquireLate: "X acquires at server $v; the answer is on its way", eAnswer: "the answer reaches X", eVerify: "X verifies at server $v",
		eReclaim: "$a reclaims", eDrop: "X lets go of the partition", eSpeak: "$a says that it has reclaimed all",
		eGrant: "X grants the key to Y", eAnnounce: "X announces to Y", eRelease: "Y releases the key", eAdopt: "Y adopts at server $v",
		eInStep: "the replica is in step", eFailover: "FAILOVER to the replica, $v behind", eFailoverEmpty: "FAILOVER, everything is lost",
		eStated: "the sessions' server says that all have spoken", eEarly: "Grace ends early", eExpires: "$a has expired at the arbiter", eZOwns: "Z acquires", eZGrants: "Z grants the key",
		ePromise: "X has promises of set $v", eVersion: "server $v records X's second set", eSettled: "server $v answers: X goes by its second set only",
		eVote: "set $v votes that X is dead", eBury: "the arbiter buries X, version $v",
	}
}

func (m *EndOfGrace) initial() []graceState {
	s := graceState{lease: [2]int8{}, age: [2]int8{}}
	if m.Sets {
		s.prom[0] = m.D
	}
	return []graceState{s}
}

// alive reports whether X's (0) or Y's (1) session is, by its own clock.
func (m *EndOfGrace) alive(s *graceState, i int) bool {
	if s.open&(1<<i) == 0 || s.lease[i] == 0 {
		return false
	}
	if i == 0 && m.Sets {
		return (s.ver == 2 || s.prom[0] > 0) && (s.ver == 0 || s.prom[1] > 0)
	}
	return true
}

func (m *EndOfGrace) owned(s *graceState) bool { return s.owns && s.slot > 0 && m.alive(s, 0) }

// until is how long X may announce.
func (m *EndOfGrace) until(s *graceState) int8 {
	if !m.owned(s) {
		return 0
	}
	d := min(s.slot, s.lease[0])
	if m.Sets && s.ver != 2 {
		d = min(d, s.prom[0])
	}
	if m.Sets && s.ver != 0 {
		d = min(d, s.prom[1])
	}
	return d
}

func (m *EndOfGrace) holds(s *graceState) bool {
	return m.alive(s, 1) && (s.hold == 1 && s.yann > 0 || s.hold == 2 && max(s.conf, s.yann) > 0)
}

func (m *EndOfGrace) check(s *graceState) string {
	switch {
	case s.cur.owner == ofZ && m.owned(s):
		return "X and Z own the partition"
	case s.zkey && m.holds(s):
		return "Y and Z hold the key"
	}
	return ""
}

func (m *EndOfGrace) tidy(s *graceState) {
	if m.Apart && s.fails > 0 {
		s.old.known, s.old.expiry, s.old.ver = s.cur.known, s.cur.expiry, s.cur.ver
	}
	for i := range 2 {
		if s.open&(1<<i) == 0 {
			s.age[i], s.lease[i] = 0, 0
		}
	}
	if !m.owned(s) {
		s.owns, s.slot = false, 0
	}
	if !m.holds(s) {
		s.hold, s.yann, s.conf = 0, 0, 0
	}
	if s.ans == 0 {
		s.asked = false
	}
	if s.deposed == 0 && m.has(Deposed) {
		s.old = store{}
	}
	if !s.copied || s.fails >= m.Failovers {
		s.rep, s.lag, s.copied = store{}, 0, false
	}
}

func (m *EndOfGrace) next(was *graceState, to func(event, graceState)) {
	add := func(kind, node int, n int8, s graceState) {
		m.tidy(&s)
		to(event{int8(kind), int8(node), n}, s)
	}
	m.tick(was, add)
	for i := range 2 {
		if i == 0 || m.Holder {
			m.sessions(was, i, add)
		}
	}
	m.owner(was, add)
	if m.Holder {
		m.holder(was, add)
	}
	if m.Sets {
		m.sets(was, add)
	}
	m.servers(was, add)
	m.taker(was, add)
}

func (m *EndOfGrace) tick(was *graceState, add adderG) {
	s := *was
	for _, at := range []*int8{
		&s.cur.grace, &s.deposed, &s.lease[0], &s.lease[1], &s.slot, &s.ans, &s.ann, &s.yann, &s.conf, &s.joint, &s.prom[0], &s.prom[1],
		&s.cur.expiry[0], &s.cur.expiry[1], &s.old.expiry[0], &s.old.expiry[1], &s.rep.expiry[0], &s.rep.expiry[1], &s.rep.grace, &s.old.grace,
	} {
		pass(at, 1)
	}
	if s.cur.grace == 0 {
		s.early = false
	}
	s.age[0], s.age[1] = min(s.age[0]+1, m.W), min(s.age[1]+1, m.W)
	s.lag = min(s.lag+1, m.W+1)
	for i := range 2 {
		if was.open&(1<<i) != 0 && !m.alive(&s, i) {
			s.open |= 4 << i // a session that is over is over: it is not modelled that the process opens another one
			s.open &^= 1 << i
		}
	}
	add(eTick, 0, 0, s)
}

type adderG func(kind, node int, n int8, s graceState)

// sessions makes X (0) or Y (1) open its session, and renew it.
func (m *EndOfGrace) sessions(was *graceState, i int, add adderG) {
	me := uint8(1) << i
	m.atEach(was, func(s *graceState, x *store, n int8) {
		switch {
		case m.Apart && n == 1: // there is one server of sessions
		case s.open&(5<<i) == 0:
			s.open |= me
			s.age[i], s.lease[i] = 0, m.T
			x.known |= me
			x.expiry[i] = m.T
			add(eOpen, letterX+i, n, *s)
		case m.alive(s, i) && (x.grace > 0 && !m.Apart || x.known&me != 0 && x.expiry[i] > 0):
			if x.known&me == 0 && m.has(Recreated) {
				s.age[i] = 0
			}
			x.known |= me
			s.lease[i], x.expiry[i] = m.T, m.T
			m.nameSet(s, x, i)
			add(eRenew, letterX+i, n, *s)
		}
	})
	s := *was
	if s.cur.grace > 0 && m.alive(&s, i) && s.cur.known&me != 0 && s.cur.spoken&me == 0 && s.fails > 0 {
		reclaimed := i == 0 && (!m.owned(&s) || s.cur.owner == sX) || i == 1 && (s.hold != 2 || s.cur.row)
		if (reclaimed || !m.has(SpeaksLast)) && (s.deposed == 0 || !m.has(SpeaksLate)) &&
			(i == 1 || m.owned(&s) || s.ann == 0 || !m.has(SpeaksForOthers)) {
			s.cur.spoken |= me
			if m.has(SpeaksByRenewal) {
				s.lease[i], s.cur.expiry[i] = m.T, m.T
				m.nameSet(&s, &s.cur, i)
			}
			if i == 0 && m.has(OldAnswersVoid) {
				s.ans = 0
			}
			add(eSpeak, letterX+i, 0, s)
		}
	}
}

// atEach calls f with a copy of the state for each server that answers: 0 the present one, 1 the deposed one.
func (m *EndOfGrace) atEach(was *graceState, f func(s *graceState, x *store, n int8)) {
	s := *was
	f(&s, &s.cur, 0)
	if was.fails > 0 && (was.deposed > 0 || !m.has(Deposed)) {
		s = *was
		f(&s, &s.old, 1)
	}
}

// owner makes the steps of X as an owner.
func (m *EndOfGrace) owner(was *graceState, add adderG) {
	if !m.alive(was, 0) {
		return
	}
	m.atEach(was, func(s *graceState, x *store, n int8) {
		switch {
		case x.owner == 0 && x.grace == 0 && !s.owns && s.ans == 0 && (s.age[0] >= m.W || !m.has(Probation)) && x.known&sX != 0 && !x.row:
			t := *s
			x.owner = sX
			s.ans = m.T
			add(eAcquireLate, 0, n, *s)
			*s = t
			x.owner = sX
			s.owns, s.slot = true, m.T
			add(eAcquire, 0, n, *s)
		case x.owner == sX && m.owned(s):
			s.slot = m.T
			add(eVerify, 0, n, *s)
		}
	})
	s := *was
	if s.ans > 0 {
		s.owns, s.slot, s.ans = true, s.ans, 0
		add(eAnswer, 0, 0, s)
	}
	if s = *was; m.owned(&s) {
		if s.cur.grace > 0 && s.cur.owner == 0 {
			s.cur.owner, s.slot = sX, m.T
			add(eReclaim, letterX, 0, s)
		}
		s = *was
		s.owns = false
		add(eDrop, 0, 0, s)
	}
}

// holder makes the steps of Y, and those of X towards it.
func (m *EndOfGrace) holder(was *graceState, add adderG) {
	if !m.alive(was, 1) {
		return
	}
	s := *was
	if d := m.until(&s); d > 0 && s.hold != 2 {
		s.yann, s.ann = max(s.yann, d), max(s.ann, d)
		kind := eAnnounce
		if s.hold == 0 {
			kind = eGrant
		}
		s.hold = 1
		add(kind, 0, 0, s)
	}
	if !m.holds(was) {
		return
	}
	m.atEach(was, func(s *graceState, x *store, n int8) {
		if x.owner == ofZ || s.age[1] < m.W && m.has(ProbationAdopts) || x.known&sY == 0 {
			return
		}
		if x.row || x.owner == sX || x.grace > 0 {
			if x.grace > 0 && s.hold == 2 && !x.row {
				x.row, s.conf = true, m.T
				add(eReclaim, letterX+1, 0, *s)
				return
			}
			x.row, s.hold, s.conf = true, 2, m.T
			add(eAdopt, 0, n, *s)
		}
	})
}

// sets makes the change of X's guardians, promises and votes. A set votes as one.
func (m *EndOfGrace) sets(was *graceState, add adderG) {
	for v := range int8(2) {
		s := *was
		if s.voted&(1<<v) == 0 && m.alive(&s, 0) && s.prom[v] < m.D {
			s.prom[v] = m.D
			add(ePromise, 0, v, s)
		}
		s = *was
		if s.voted&(1<<v) == 0 && s.prom[v] == 0 {
			s.voted |= 1 << v
			add(eVote, 0, v, s)
		}
		s = *was
		if s.voted&(1<<v) != 0 && s.cur.ver == v && s.cur.known&sX != 0 && (s.cur.grace == 0 || m.Apart || !m.has(NoneBuried) && s.early) {
			s.cur.known &^= sX
			s.cur.spoken &^= sX
			s.cur.expiry[0] = 0
			add(eBury, 0, v, s)
		}
	}
	if !m.alive(was, 0) {
		return
	}
	if s := *was; s.ver == 0 && s.prom[1] >= max(s.ann, 1) {
		m.atEach(&s, func(s *graceState, x *store, n int8) {
			if x.known&sX != 0 && (x.expiry[0] > 0 || x.grace > 0 && !m.Apart) && (!m.Apart || n == 0) {
				x.ver = 1
				s.ver, s.joint = 1, 0
				if m.has(JointLonger) {
					s.joint = m.W
				}
				s.lease[0], x.expiry[0] = m.T, m.T
				add(eVersion, 0, n, *s)
			}
		})
	}
	if s := *was; s.ver == 1 && s.joint == 0 {
		m.atEach(&s, func(s *graceState, x *store, n int8) { // by the answer of a server that has the version
			if x.ver == 1 && x.known&sX != 0 {
				s.ver = 2
				add(eSettled, 0, n, *s)
			}
		})
	}
}

// nameSet: X's renewals name the version that it has asked for.
func (m *EndOfGrace) nameSet(s *graceState, x *store, i int) {
	if i == 0 && s.ver > 0 && x.ver == 0 {
		x.ver = 1
		if s.ver == 1 && m.has(JointLonger) {
			s.joint = m.W
		}
	}
}

// servers makes failovers, and ends Grace early.
func (m *EndOfGrace) servers(was *graceState, add adderG) {
	if was.fails < m.Failovers {
		s := *was
		s.copied, s.rep, s.lag = true, s.cur, 0
		if s != *was {
			add(eInStep, 0, 0, s)
		}
		if was.copied {
			s = *was
			m.failover(&s, was.rep, (was.lag <= m.W-m.Delta || !m.has(LagCompared)) && (was.rep.grace == 0 || !m.has(CopyInGrace)))
			add(eFailover, 0, was.lag, s)
		}
		s = *was
		m.failover(&s, store{}, false)
		add(eFailoverEmpty, 0, 0, s)
	}
	s := *was
	all := s.early && s.cur.grace > 0 && (s.cur.known&^s.cur.spoken == 0 || !m.has(AllSpoken)) && (s.deposed == 0 || !m.has(SpeaksLate))
	if m.Apart {
		if all && !s.stated {
			s.stated = true
			add(eStated, 0, 0, s)
		}
		s = *was
		all = s.stated && s.cur.grace > 0
	}
	if all {
		s.cur.grace, s.early, s.stated = 0, false, false
		add(eEarly, 0, 0, s)
	}
	for i := range 2 {
		s = *was
		if me := uint8(1) << i; s.cur.known&me != 0 && s.cur.expiry[i] == 0 && (s.cur.grace == 0 || m.Apart || s.early && !m.has(NoneExpires)) {
			s.cur.known &^= me
			s.cur.spoken &^= me
			add(eExpires, letterX+i, 0, s)
		}
	}
}

func (m *EndOfGrace) failover(s *graceState, to store, early bool) {
	s.fails++
	s.old, s.deposed = s.cur, m.Delta
	s.cur = to
	if m.Apart {
		s.cur.known, s.cur.expiry, s.cur.ver, early = s.old.known, s.old.expiry, s.old.ver, true
	}
	s.cur.grace, s.cur.spoken, s.early = m.Q, 0, early
	if m.has(StatementNamed) {
		s.stated = false
	}
	s.copied, s.rep, s.lag = false, store{}, 0
	s.asked = s.ans > 0
}

// taker makes the steps of Z.
func (m *EndOfGrace) taker(was *graceState, add adderG) {
	s := *was
	if s.cur.grace == 0 && s.cur.owner != ofZ && (s.cur.owner == 0 || s.cur.known&sX == 0) && s.fails > 0 {
		s.cur.owner = ofZ
		add(eZOwns, 0, 0, s)
	}
	s = *was
	if s.cur.owner == ofZ && !s.zkey && (!s.cur.row || s.cur.known&sY == 0 && s.cur.grace == 0) {
		s.zkey, s.cur.row = true, false
		add(eZGrants, 0, 0, s)
	}
}

// Explore sees every state within the bounds, or stops at the first violation.
func (m *EndOfGrace) Explore() Result { return explore[graceState](m, m.Limit) }
