package takeover

import "math/bits"

// RoundGuard is something that rounds need so that nothing bad happens. Rounds end Grace early.
type RoundGuard uint32

// Guards of rounds (docs/adr/0023).
const (
	RoundUnique     RoundGuard = 1 << iota // each round has a name of its own (E1)
	SightedBefore                          // a round ends a Grace that was seen before the round began, and no other (E2)
	EndNamed                               // the end of a Grace compares its name (E5)
	RoundOld                               // a session's pass begins when the round is delta old (E3)
	AnswersIn                              // and when no answer to an earlier call is outstanding (E3)
	PassReclaims                           // it speaks when the pass has found all that it has (E3)
	PassWaits                              // and when its earlier announced deadlines have passed (E3)
	EachSpoke                              // a round is complete when all living sessions spoke (E4)
	CompleteOld                            // and it is delta old: a session may be opened yet (E4)
	TableOutOfGrace                        // not while the table of sessions is in Grace, unless it cannot have lost anything (E4)
	NewcomerWaits                          // one opened in Grace of its table takes nothing for delta (E6)
	PrimarySilent                          // a deposed server is silent after delta
	OpenedAtAll                            // one server: an opening counts once replicas have it (E7)
	OpenedOnDisk                           // and once its own disk has it (E7)
	Unexpired                              // in Grace of such a table no session is dead by its expiry (E7)
	Missing                                // a table that lacks a session does not have all (E8)
	Chained                                // nor does that of another server that takes over in such a Grace (E8)
	PassWhole                              // the pass leaves out no row, however new (E3)
	LostLacks                              // a table that is made anew does not have all (E8)
	MovedInStep                            // replicas of one that gets the table lack earlier ones (E7)
	PassOld                                // the pass waits for the server before one that has just taken over (E3)
)

var roundGuardNames = []string{
	"RoundUnique", "SightedBefore", "EndNamed", "RoundOld", "AnswersIn", "PassReclaims", "PassWaits", "EachSpoke", "CompleteOld", "TableOutOfGrace", "NewcomerWaits", "PrimarySilent",
	"OpenedAtAll", "OpenedOnDisk", "Unexpired", "Missing", "Chained", "PassWhole", "LostLacks", "MovedInStep", "PassOld",
}

func (g RoundGuard) String() string { return roundGuardNames[bits.TrailingZeros32(uint32(g))] }

// Rounds is the model of an early end of Grace by rounds. Partitions and sessions are in different
// slots. Their servers fail over each by itself, or together.
//
// Session X may own the partition, and announces deadlines to a holder H. Process A sees that the
// partition is in Grace, begins a round, and ends Grace when the round is complete. A's own session
// has spoken whenever that counts. Z is honest and quick, and takes all that the arbiter gives. A
// session's lease ends M before it expires.
type Rounds struct {
	T, M, Q, Delta int8
	Failovers      uint8 // of the partition's server
	Tables         uint8 // of the sessions' server
	Moves          uint8 // of the partition's slot to another server
	TableMoves     uint8 // with Apart: of the table to a server with replicas that lack it yet
	Begun          int8  // rounds, at most
	Replicated     bool  // the table is at the same server, and no change of a session counts before it is on all replicas
	Opened         bool  // the table is at the same server, and an opening counts once it is on all replicas: they may lack renewals
	Apart          bool  // with Opened: the table is at another server, and all its replicas have each opening
	Restarts       bool  // the server may start again with the data of its disk, and its replicas follow it
	Backups        uint8 // with Opened: a backup from before all sessions is restored; session W, which is not cut off, is another one that it lacks
	Rows           bool  // X may give the partition back, with a row for its own caller's hold
	Older          bool  // X is of a version that never speaks
	Asks           bool  // Z may ask the deposed table whether X is dead
	Without        RoundGuard
	Limit          int
}

func (m *Rounds) has(g RoundGuard) bool { return m.Without&g == 0 }

// one reports whether one server has both the partition and the table, which is not without any session that was opened.
func (m *Rounds) one() bool { return m.Replicated || m.Opened }

type (
	// record is a server's data of the partition.
	record struct {
		owner       uint8 // sX, ofZ, or 0: none
		grace, name int8
		row         bool // of X
	}
	// table is a server's data of the sessions.
	table struct {
		known      bool // X
		expiry     int8
		spoke      int8 // the round that X has spoken for
		round, age int8
		grace      int8
		w          bool // with Backups: W
		lacks      bool // with Opened: it is in a Grace in which it does not have all sessions
	}
)

// dead reports whether the table says that X is.
func (x *table) dead() bool { return x.grace == 0 && (!x.known || x.expiry == 0) }

type roundState struct {
	p, pOld, pCopy record
	s, sOld, sCopy table
	pGone, sGone   int8 // for how long the deposed server answers
	pCopied        bool
	sCopied        bool
	pFails, sFails uint8
	moves, backups uint8
	sMoves         uint8
	sAway          behind
	graces, rounds int8 // names that were given out

	life    int8 // of X's session: 0 before, 1 alive, 2 over
	lease   int8
	waits   int8 // X takes nothing yet
	owns    bool
	slot    int8
	ans     int8 // an answer to acquire is on its way; its worth
	asked   bool // before the pass began
	ann     int8 // X's last announced deadline, as H has it
	hold    int8 // the hold of X's caller, by a row
	fresh   int8 // for how long a pass without PassWhole leaves that out
	heard   int8 // the round that X was told of
	due     int8 // until X may begin its pass
	passing int8 // the round of that
	spoken  int8 // the one that X has spoken for, as its renewals say

	sight  int8 // the Grace that A has seen
	round  int8 // the round that A has begun
	before int8 // the Grace that A had seen then
	stated bool // that round is complete
}

// Kinds of events of rounds.
const (
	rTick = iota
	rOpen
	rRenew
	rAcquire
	rAcquireLate
	rAnswer
	rVerify
	rReclaim
	rDrop
	rAnnounce
	rBegin
	rPass
	rCopyP
	rCopyS
	rFailP
	rFailPEmpty
	rRestart
	rFailS
	rFailSEmpty
	rMove
	rSight
	rRound
	rOther
	rStated
	rEnd
	rZOwns
	rBackup
	rNotice
	rGiveBack
	rVerifyRow
	rRestore
	rMoveS
	rEndOld
	rZOwnsOld
)

func (m *Rounds) names() []string {
	return []string{
		rTick: "-- a tick --", rOpen: "X opens its session at table $v", rRenew: "X renews at table $v", rAcquire: "X acquires at server $v",
		rAcquireLate: "X acquires at server $v; the answer is on its way", rAnswer: "the answer reaches X", rVerify: "X verifies at server $v",
		rReclaim: "X reclaims", rDrop: "X lets go of the partition", rAnnounce: "X announces to H", rBegin: "X begins its pass for round $v",
		rPass: "X has what it found at server $v: it says so with its next renewal", rCopyP: "the partition's replica is in step", rCopyS: "the table's replica is in step",
		rFailP: "FAILOVER of the partition to its replica", rFailPEmpty: "FAILOVER of the partition, everything is lost", rRestart: "RESTART of the server, with what its disk has", rFailS: "FAILOVER of the table to its replica",
		rFailSEmpty: "FAILOVER of the table, everything is lost", rMove: "the partition's slot moves", rSight: "A sees Grace $v", rRound: "A begins a round at table $v", rOther: "B begins a round at table $v",
		rStated: "table $v says to A that the round is complete", rEnd: "A ends Grace", rZOwns: "Z acquires",
		rBackup: "a BACKUP is restored, of before all sessions", rNotice: "W renews; the table does not know it", rGiveBack: "X gives the partition back at server $v, its caller's hold has a row there",
		rVerifyRow: "X verifies the row at server $v", rRestore: "X restores the row",
		rMoveS: "the table's slot moves to another server", rEndOld: "A ends Grace at the deposed server", rZOwnsOld: "Z acquires at the deposed server",
	}
}

func (m *Rounds) initial() []roundState {
	return []roundState{{s: table{w: m.Backups > 0}, sCopy: table{w: m.Backups > 0}}}
}

func (m *Rounds) owned(s *roundState) bool { return s.life == 1 && s.owns && s.slot > 0 }

func (m *Rounds) check(s *roundState) string {
	for _, x := range []*record{&s.p, &s.pOld} {
		switch {
		case x.owner != ofZ:
		case m.owned(s):
			return "X and Z own the partition"
		case s.ann > 0:
			return "Z owns what H holds"
		case !x.row && s.life == 1 && s.hold > 0:
			return "Z owns what X's caller holds"
		}
	}
	return ""
}

type adderR func(kind int, n int8, s roundState)

func (m *Rounds) next(was *roundState, to func(event, roundState)) {
	add := func(kind int, n int8, s roundState) {
		m.tidy(&s)
		to(event{int8(kind), 0, n}, s)
	}
	m.tick(was, add)
	m.session(was, add)
	m.ownership(was, add)
	m.pass(was, add)
	m.fails(was, add)
	m.restored(was, add)
	m.rows(was, add)
	m.tableMoves(was, add)
	m.ender(was, add)
	m.atRecords(was, func(s *roundState, x *record, n int8) {
		free := s.s.dead() || m.Asks && s.sGone > 0 && s.sOld.dead() // X's ownership and row
		if x.grace == 0 && (s.pFails+s.backups > 0 || m.Asks && s.sFails > 0) && (x.owner == 0 || x.owner == sX && free) && (!x.row || free) {
			x.owner = ofZ
			add(rZOwns+(rZOwnsOld-rZOwns)*int(n), 0, *s)
		}
	})
}

func (m *Rounds) tidy(s *roundState) {
	if s.life == 1 && s.lease == 0 {
		s.life = 2
	}
	if s.life != 1 {
		s.lease, s.waits, s.ans, s.heard, s.due, s.passing, s.spoken, s.hold = 0, 0, 0, 0, 0, 0, 0, 0
	}
	if !m.owned(s) {
		s.owns, s.slot = false, 0
	}
	if s.ans == 0 {
		s.asked = false
	}
	if s.pGone == 0 && m.has(PrimarySilent) {
		s.pOld = record{}
	}
	if s.sGone == 0 && m.has(PrimarySilent) || m.Replicated {
		s.sOld = table{}
	}
	if s.pFails >= m.Failovers || !s.pCopied {
		s.pCopy, s.pCopied = record{}, false
	}
	if s.sFails >= m.Tables || !s.sCopied {
		s.sCopy, s.sCopied = table{}, false
	}
	if s.sFails >= m.Tables {
		s.sAway = inStep
	}
	for _, p := range []*record{&s.p, &s.pOld, &s.pCopy} {
		if p.grace == 0 {
			p.name = 0
		}
	}
	if s.hold = min(s.hold, s.lease); s.hold == 0 || m.has(PassWhole) {
		s.fresh = 0
	}
	for _, x := range []*table{&s.s, &s.sOld, &s.sCopy} {
		x.lacks = x.lacks && x.grace > 0
	}
}

func (m *Rounds) tick(was *roundState, add adderR) {
	s := *was
	if m.Backups > 0 && !s.s.w {
		return // W renews more often than that
	}
	for _, at := range []*int8{
		&s.p.grace, &s.pOld.grace, &s.pCopy.grace, &s.s.grace, &s.sOld.grace, &s.sCopy.grace, &s.s.expiry, &s.sOld.expiry, &s.sCopy.expiry,
		&s.pGone, &s.sGone, &s.lease, &s.waits, &s.slot, &s.ans, &s.ann, &s.due, &s.hold, &s.fresh,
	} {
		pass(at, 1)
	}
	for _, x := range []*table{&s.s, &s.sOld, &s.sCopy} {
		if x.round > 0 {
			x.age = min(x.age+1, m.Delta)
		}
	}
	add(rTick, 0, s)
}

// atTables calls f with a copy of the state for each table that answers: 0 the present one, 1 the deposed one.
func (m *Rounds) atTables(was *roundState, f func(s *roundState, x *table, n int8)) {
	s := *was
	f(&s, &s.s, 0)
	if was.sFails+was.backups > 0 && !m.Replicated && (was.sGone > 0 || !m.has(PrimarySilent)) {
		s = *was
		f(&s, &s.sOld, 1)
	}
}

// atRecords is atTables of the partition's servers.
func (m *Rounds) atRecords(was *roundState, f func(s *roundState, x *record, n int8)) {
	s := *was
	f(&s, &s.p, 0)
	if was.pFails+was.backups > 0 && (was.pGone > 0 || !m.has(PrimarySilent)) {
		s = *was
		f(&s, &s.pOld, 1)
	}
}

// session makes X open its session, and renew it.
func (m *Rounds) session(was *roundState, add adderR) {
	m.atTables(was, func(s *roundState, x *table, n int8) {
		switch {
		case s.life == 0 && m.Opened && n > 0: // it gets no acknowledgement
		case s.life == 0:
			s.life, s.lease = 1, m.T-m.M
			x.known, x.expiry, x.spoke = true, m.T, 0
			if x.grace > 0 && m.has(NewcomerWaits) {
				s.waits = m.Delta
			}
			m.acknowledged(s, n)
			add(rOpen, n, *s)
		case s.life == 1 && (x.grace > 0 || x.known && x.expiry > 0):
			if !x.known {
				m.unknown(x)
				m.acknowledged(s, n)
			}
			x.known, x.expiry, s.lease, x.spoke = true, m.T, m.T-m.M, s.spoken
			if x.round > 0 && x.round != s.heard && !m.Older {
				s.heard, s.due = x.round, 0
				if m.has(RoundOld) {
					s.due = m.Delta - x.age
				}
			}
			add(rRenew, n, *s)
		}
	})
}

// ownership makes the steps of X as an owner.
func (m *Rounds) ownership(was *roundState, add adderR) {
	if was.life != 1 {
		return
	}
	m.atRecords(was, func(s *roundState, x *record, n int8) {
		switch {
		case x.owner == 0 && x.grace == 0 && !s.owns && s.ans == 0 && s.waits == 0:
			x.owner = sX
			t := *s
			t.ans = m.T
			add(rAcquireLate, n, t)
			s.owns, s.slot = true, m.T
			add(rAcquire, n, *s)
		case x.owner == sX && m.owned(s):
			s.slot = m.T
			add(rVerify, n, *s)
		}
	})
	s := *was
	if s.ans > 0 {
		s.owns, s.slot, s.ans = true, s.ans, 0
		add(rAnswer, 0, s)
	}
	if !m.owned(was) {
		return
	}
	if s = *was; s.p.grace > 0 && s.p.owner == 0 {
		s.p.owner, s.slot = sX, m.T
		add(rReclaim, 0, s)
	}
	s = *was
	s.owns = false
	add(rDrop, 0, s)
	s = *was
	s.ann = max(s.ann, min(s.slot, s.lease))
	add(rAnnounce, 0, s)
}

// pass makes X look at all that it has, and say that it has reclaimed it.
func (m *Rounds) pass(was *roundState, add adderR) {
	if was.life != 1 || was.heard == 0 {
		return
	}
	s := *was
	if s.due == 0 && s.passing != s.heard && s.spoken != s.heard {
		s.passing, s.asked = s.heard, s.ans > 0
		add(rBegin, s.heard, s)
	}
	m.atRecords(was, func(s *roundState, x *record, n int8) {
		if s.passing != s.heard || s.asked && m.has(AnswersIn) || x.grace > m.Q-m.Delta && m.has(PassOld) {
			return
		}
		if m.owned(s) && x.owner != sX && m.has(PassReclaims) || !m.owned(s) && s.ann > 0 && m.has(PassWaits) || s.hold > 0 && !x.row && s.fresh == 0 {
			return
		}
		s.spoken, s.passing = s.passing, 0
		add(rPass, n, *s)
	})
}

// fails makes failovers.
func (m *Rounds) fails(was *roundState, add adderR) {
	s := *was
	if s.pFails < m.Failovers {
		s.pCopied, s.pCopy = true, s.p
		add(rCopyP, 0, s)
		if s = *was; s.pCopied {
			m.failed(&s, s.pCopy, m.has(OpenedAtAll))
			add(rFailP, 0, s)
		}
		if s = *was; m.Restarts {
			m.failed(&s, s.pCopy, m.has(OpenedOnDisk))
			add(rRestart, 0, s)
		}
		s = *was
		m.failed(&s, record{}, m.has(OpenedAtAll))
		add(rFailPEmpty, 0, s)
	}
	if s = *was; s.moves < m.Moves {
		s.moves++
		s.graces++
		s.p.grace, s.p.name = m.Q, s.graces
		add(rMove, 0, s)
	}
	if s = *was; s.sFails < m.Tables && !m.Replicated {
		s.sCopied, s.sCopy, s.sAway = true, s.s, inStep
		add(rCopyS, 0, s)
		if m.Opened && !m.Apart { // the server has both
			return
		}
		if s = *was; s.sCopied {
			m.tableFailed(&s, m.replica(&s, m.has(OpenedAtAll)))
			add(rFailS, 0, s)
		}
		s = *was
		s.sCopy = table{}
		m.tableFailed(&s, m.replica(&s, m.has(OpenedAtAll)))
		add(rFailSEmpty, 0, s)
	}
}

// failed makes another server, or another life of it, that of the partition. opened: of one server, its table has the sessions that were opened.
func (m *Rounds) failed(s *roundState, to record, opened bool) {
	s.pFails++
	s.graces++
	s.pOld, s.pGone, s.p, s.pCopied = s.p, m.Delta, to, false
	s.p.grace, s.p.name = m.Q, s.graces
	switch {
	case m.Replicated:
		m.tableFailed(s, s.s)
	case m.Opened && !m.Apart:
		m.tableFailed(s, m.replica(s, opened))
	}
}

// ender makes the steps of A.
func (m *Rounds) ender(was *roundState, add adderR) {
	s := *was
	if s.p.grace > 0 && s.sight != s.p.name {
		s.sight = s.p.name
		add(rSight, s.sight, s)
	}
	m.atTables(was, func(s *roundState, x *table, n int8) {
		if s.rounds >= m.Begun {
			return
		}
		s.rounds++
		x.age = 0
		if x.round = s.rounds; !m.has(RoundUnique) {
			x.round = 1
		}
		add(rOther, n, *s)
		if s.sight == 0 {
			return
		}
		s.round, s.before, s.stated = x.round, s.sight, false
		add(rRound, n, *s)
	})
	m.atTables(was, func(s *roundState, x *table, n int8) {
		inGrace := x.grace > 0 && m.has(TableOutOfGrace) && (!m.one() || x.lacks)
		dead := !x.known || x.expiry == 0 && (x.grace == 0 || !m.has(Unexpired))
		if s.round > 0 && x.round == s.round && !s.stated && !inGrace && (x.age >= m.Delta || !m.has(CompleteOld)) && (dead || x.spoke == x.round || !m.has(EachSpoke)) {
			s.stated = true
			add(rStated, n, *s)
		}
	})
	named := s.before
	if !m.has(SightedBefore) {
		named = was.sight
	}
	m.atRecords(was, func(s *roundState, x *record, n int8) {
		if !s.stated || x.grace == 0 || x.name != named && m.has(EndNamed) {
			return
		}
		x.grace = 0
		if m.Replicated {
			s.s.grace = 0
		}
		add(rEnd+(rEndOld-rEnd)*int(n), 0, *s)
	})
}

// Explore sees every state within the bounds, or stops at the first violation.
func (m *Rounds) Explore() Result { return explore[roundState](m, m.Limit) }
