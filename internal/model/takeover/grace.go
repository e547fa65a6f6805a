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
	OldAnswersVoid                         // and takes no answer from then on to an earlier call
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

// EndOfGrace is the model of a partition with one key. Session X may own it, session Y may get the
// key from X, and Z takes all that the arbiter gives. Z is honest and quick: it keeps its takings
// for ever.
//
// All clocks run alike. A call is one step, and an answer to X's acquire may come later. Delta is
// for how long a deposed primary answers.
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
	ans   int8 // an answer to acquire is on its way; its worth
	asked bool // before X has spoken
	ann   int8 // X's last announced deadline
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

// until returns how long X may announce.
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

// Explore sees every state within the bounds, or stops at the first violation.
func (m *EndOfGrace) Explore() Result { return explore[graceState](m, m.Limit) }
