package takeover

import "math/bits"

// LengthGuard is something that a change of Grace's length needs so that nothing bad happens.
type LengthGuard uint16

// Guards of a change of Grace's length (docs/operations.md).
const (
	// OpensLater: no session is opened that needs a longer Grace than another one states.
	OpensLater LengthGuard = 1 << iota
	// DrainsFirst: a longer Grace is stated when no call with the shorter one is on its way.
	DrainsFirst
	// StatesFirst: a shorter one is used when it has been stated.
	StatesFirst
	// OneAtATime: and when no renewal that states the longer one is on its way.
	OneAtATime
	// RefusesBehind: no session is opened that uses a shorter Grace than the mark.
	RefusesBehind
	// KeptWhileNeeded: the mark goes down only if no session needs more.
	KeptWhileNeeded
	// DownOutsideGrace: neither the mark nor a process goes down in the table's Grace.
	DownOutsideGrace
	// NewOutsideGrace: in the table's Grace no session is opened that needs more than the mark.
	NewOutsideGrace
	// SilentWithout: a process makes no calls when its session may have ended.
	SilentWithout
	// TableByMark: the table's Grace is not shorter than the mark says, whatever the caller uses.
	TableByMark
	// RaisedFirst: the mark goes up by one call, and the session is opened by a later one.
	RaisedFirst
)

var lengthGuardNames = []string{
	"OpensLater", "DrainsFirst", "StatesFirst", "OneAtATime", "RefusesBehind", "KeptWhileNeeded", "DownOutsideGrace", "NewOutsideGrace", "SilentWithout", "TableByMark", "RaisedFirst",
}

func (g LengthGuard) String() string { return lengthGuardNames[bits.TrailingZeros16(uint16(g))] }

// LengthOfGrace is the model of a namespace whose Grace changes: process P is content with a short
// Grace, session S needs a long one. There are the table of sessions, and one partition, in which S
// has a hold. A failover loses the row of the hold, and the changes of the table since the replica
// was last in step. Failover 1 is of the partition's server alone.
//
// A call of a partition takes a tick at most, and a renewal as long. A replica has each change of
// the mark downwards, and each one upwards before the session that needs it is opened: it lags by
// less than that session waits.
type LengthOfGrace struct {
	T         [2]int8 // of P's session and S's
	Q         [2]int8 // the short and the long Grace
	Failovers uint8
	Apart     bool // the sessions are on a server of their own, as often in a Redis Cluster
	Slow      bool // renewals of P may be slow, and come after later ones
	Without   LengthGuard
	Limit     int
}

func (m *LengthOfGrace) has(g LengthGuard) bool { return m.Without&g == 0 }

// short and long are the lengths.
const (
	short = iota
	long
)

// lengthTable is a server's data of the sessions.
type lengthTable struct {
	mark int8
	p, s int8 // until the entries expire, 0: there is none
	says int8 // by P's entry: the length that it uses
}

type lengthState struct {
	cur, rep lengthTable
	copied   bool
	seen     bool // the present server has been asked for the table
	tabGrace int8
	begun    bool // and for the partition
	grace    int8
	row      bool
	fails    uint8

	uses, plans int8    // P: the length that its calls use, and the one that its renewals state
	lease       int8    // until P's session may have ended
	call        [2]int8 // calls of P on their way, by the length that they use: how long yet
	late        [3]int8 // renewals of P on their way, by the lengths that they use and state: their sum

	open      bool // S
	sLease    int8
	hold      bool
	confirmed int8
}

// Kinds of events of the model of Grace's length.
const (
	lTick = iota
	lSend
	lArrive
	lRenew
	lRenewLate
	lArriveLate
	lOpen
	lRestart
	lDown
	lWish
	lOpenS
	lRenewS
	lTakeS
	lVerifyS
	lCloseS
	lInStep
	lFailover
)

func (m *LengthOfGrace) names() []string {
	return []string{
		lTick: "-- a tick --", lSend: "P sends a call with Grace $v", lArrive: "P's call with Grace $v arrives",
		lRenew: "P renews, states $v", lRenewLate: "P sends a renewal that states $v, which is slow", lArriveLate: "P's slow renewal arrives, states $v",
		lOpen: "P opens a session, states $v", lRestart: "P restarts", lDown: "the mark goes down", lWish: "S is told to wait, the mark is $v",
		lOpenS: "S opens its session", lRenewS: "S renews", lTakeS: "S takes the key", lVerifyS: "S verifies", lCloseS: "S closes its session",
		lInStep: "the replica is in step", lFailover: "FAILOVER $v",
	}
}

func (m *LengthOfGrace) initial() []lengthState {
	return []lengthState{{seen: true, begun: true, cur: lengthTable{p: m.T[0]}, lease: m.T[0] - 1}}
}

// holds reports whether S relies on its hold.
func (s *lengthState) holds() bool { return s.open && s.sLease > 0 && s.hold && s.confirmed > 0 }

func (m *LengthOfGrace) check(s *lengthState) string {
	switch {
	case s.holds() && s.begun && s.grace == 0 && !s.row:
		return "S holds a key that is free at the arbiter"
	case s.holds() && s.seen && s.tabGrace == 0 && s.cur.s == 0:
		return "S holds a key and is dead for the arbiter (I3)"
	}
	return ""
}

// table is the beginning of each call on the sessions.
func (m *LengthOfGrace) table(s *lengthState, uses int8) {
	if m.has(TableByMark) {
		uses = max(uses, s.cur.mark)
	}
	if !s.seen {
		s.seen, s.tabGrace = true, m.Q[uses]
	}
	s.tabGrace = min(s.tabGrace, m.Q[uses]) // as if the clock had stepped back
}

// partition is the beginning of each call on the partition.
func (m *LengthOfGrace) partition(s *lengthState, uses int8) {
	if !s.begun {
		s.begun, s.grace = true, m.Q[uses]
	}
	s.grace = min(s.grace, m.Q[uses])
}

func (m *LengthOfGrace) next(was *lengthState, to func(event, lengthState)) {
	add := func(kind int, n int8, s lengthState) {
		if !s.holds() {
			s.hold, s.confirmed = false, 0
		}
		if s.fails >= m.Failovers {
			s.rep, s.copied = lengthTable{}, false
		}
		to(event{int8(kind), 0, n}, s)
	}
	m.tick(was, add)
	m.process(was, add)
	m.session(was, add)
	s := *was
	if s.copied, s.rep = true, s.cur; s != *was {
		add(lInStep, 0, s)
	}
	if was.fails < m.Failovers {
		s = *was
		s.fails++
		s.begun, s.grace, s.row = false, 0, false
		if m.Apart {
			add(lFailover, 1, s)
			s = *was
			s.fails++
		}
		if s.copied {
			s.cur = s.rep
		}
		s.seen, s.tabGrace, s.copied, s.rep = false, 0, false, lengthTable{}
		add(lFailover, 0, s)
	}
	if s = *was; s.cur.mark == long && s.seen && (s.tabGrace == 0 || !m.has(DownOutsideGrace)) && (s.cur.s == 0 || !m.has(KeptWhileNeeded)) {
		s.cur.mark, s.copied, s.rep = short, false, lengthTable{}
		add(lDown, 0, s)
	}
}

func (m *LengthOfGrace) tick(was *lengthState, add func(int, int8, lengthState)) {
	s := *was
	for _, at := range []*int8{&s.tabGrace, &s.grace, &s.lease, &s.call[0], &s.call[1], &s.late[0], &s.late[1], &s.late[2], &s.sLease, &s.confirmed} {
		pass(at, 1)
	}
	for _, entry := range []*int8{&s.cur.p, &s.cur.s, &s.rep.p, &s.rep.s} {
		if *entry > 1 || s.seen && was.tabGrace == 0 {
			pass(entry, 1)
		}
	}
	add(lTick, 0, s)
}

// process makes the steps of P. It begins to use a longer Grace as soon as it is told.
func (m *LengthOfGrace) process(was *lengthState, add func(int, int8, lengthState)) {
	for u := range int8(2) {
		s := *was
		if u == s.uses && s.call[u] == 0 && (s.lease > 0 || !m.has(SilentWithout)) {
			s.call[u] = 2
			add(lSend, u, s)
		}
		if s = *was; s.call[u] > 0 {
			m.partition(&s, u)
			s.call[u] = 0
			add(lArrive, u, s)
		}
	}
	for i := range was.late {
		if s := *was; s.late[i] > 0 {
			uses, states := int8(i+1)/2, int8(i)/2
			s.late[i] = 0
			if m.table(&s, uses); s.cur.p > 0 {
				s.cur.p, s.cur.says = m.T[0], states
			}
			add(lArriveLate, states, s)
		}
	}
	states := min(was.uses, was.plans)
	if was.call[short]+was.late[0] > 0 && m.has(DrainsFirst) {
		states = short
	}
	if s := *was; s.lease > 0 {
		if i := s.uses + states; m.Slow && s.late[i] == 0 {
			s.late[i] = 2
			add(lRenewLate, states, s)
		}
		s = *was
		if m.table(&s, s.uses); s.cur.p > 0 || s.tabGrace > 0 {
			s.cur.p, s.cur.says, s.lease = m.T[0], states, m.T[0]-1
			m.told(&s, states)
			add(lRenew, states, s)
		}
	}
	if s := *was; s.lease == 0 && s.cur.p == 0 {
		m.table(&s, s.uses)
		if s.uses < s.cur.mark && m.has(RefusesBehind) {
			s.uses, s.plans, states = s.cur.mark, s.cur.mark, s.cur.mark
			if s.call[short]+s.late[0] > 0 && m.has(DrainsFirst) {
				states = short
			}
		}
		s.cur.p, s.cur.says, s.lease = m.T[0], states, m.T[0]-1
		add(lOpen, states, s)
	}
	s := *was
	s.uses, s.plans, s.lease = short, short, 0
	add(lRestart, 0, s)
}

// told is the answer to a renewal: the mark, and whether the table is in Grace.
func (m *LengthOfGrace) told(s *lengthState, stated int8) {
	switch {
	case s.cur.mark == long:
		s.uses, s.plans = long, long
	case s.tabGrace > 0 && m.has(DownOutsideGrace):
	case !m.has(StatesFirst) || stated == short && s.plans == short && (s.late[2] == 0 || !m.has(OneAtATime)):
		s.uses, s.plans = short, short
	default:
		s.plans = short
	}
}

// session makes the steps of S, which uses the long Grace.
func (m *LengthOfGrace) session(was *lengthState, add func(int, int8, lengthState)) {
	s := *was
	if s.sLease == 0 && s.cur.s == 0 {
		m.table(&s, long)
		switch {
		case s.tabGrace > 0 && s.cur.mark == short && m.has(NewOutsideGrace):
		case s.cur.mark == short && m.has(RaisedFirst), s.cur.p > 0 && s.cur.says == short && m.has(OpensLater):
			s.cur.mark = long
			add(lWish, long, s)
		default:
			if m.has(RaisedFirst) && s.rep.mark == short {
				s.copied, s.rep = false, lengthTable{}
			}
			s.cur.mark, s.cur.s = long, m.T[1]
			s.open, s.sLease, s.hold = true, m.T[1]-1, false
			add(lOpenS, 0, s)
		}
	}
	if s = *was; !s.open || s.sLease == 0 {
		return
	}
	if m.table(&s, long); s.cur.s > 0 || s.tabGrace > 0 {
		s.cur.mark, s.cur.s, s.sLease = long, m.T[1], m.T[1]-1
		add(lRenewS, 0, s)
	}
	s = *was
	m.partition(&s, long)
	switch {
	case s.hold && (s.row || s.grace > 0):
		s.row, s.confirmed = true, m.T[1]-1
		add(lVerifyS, 0, s)
	case s.hold:
		s.hold = false
		add(lVerifyS, 0, s)
	case s.grace == 0:
		s.hold, s.row, s.confirmed = true, true, m.T[1]-1
		add(lTakeS, 0, s)
	}
	if s = *was; s.seen {
		s.open, s.sLease, s.hold, s.row, s.cur.s = false, 0, false, false, 0
		add(lCloseS, 0, s)
	}
}

// Explore sees every state within the bounds, or stops at the first violation.
func (m *LengthOfGrace) Explore() Result { return explore[lengthState](m, m.Limit) }
