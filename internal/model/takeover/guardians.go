package takeover

import (
	"math/bits"

	"github.com/holdfast-go/holdfast/internal/guardians"
)

// Guard is something that the rules do so that nothing bad happens.
type Guard uint32

// Guards of the guardians' rules (docs/takeover.md).
const (
	MarginD           Guard = 1 << iota // a promise counts M_D less for the session than for its guardian (G2)
	PromiseFromSend                     // and from when the ping was sent (G2)
	AnswerFromSend                      // an announced deadline counts from when the holder's ping was sent (G4)
	AnnounceBounded                     // announced deadlines are bounded by the promises (G4)
	AnnounceCapped                      // and by D - M_D from now, while there are no guardians (G4)
	AskCovered                          // a new set is asked for once its promises cover all that was announced (G7)
	JointNew                            // from then on the new set's promises are needed (G7)
	JointOld                            // and the old one's, until an answer names the new version (G7)
	VoteAfterPromise                    // a guardian votes only when its promise has passed (G5)
	VoteIsFinal                         // and promises nothing for that version any more (G5)
	BuryCompares                        // the arbiter compares the version (G6)
	VersionsRise                        // the arbiter records later versions only (G1)
	Intersect                           // p + e > n (G3, G6)
	GraceBuries                         // no burial in Grace (G6)
	RenewalNames                        // each renewal names a version, for another server (G8)
	RenewalNamesAsked                   // from asking for a version on, that one (G8)
	LapseIsFinal                        // a lapse is the session's end (G3)
	LapseWaits                          // a session that has lapsed does not close itself (G3)
	RestartIsAnother                    // a guardian that restarts is another session (G5)
	Silenced                            // an answer of a server that took over less than delta ago does not tell which version is recorded (G7)
	RowLate                             // nor does it confirm the row of a hold that rests on an owner (rule 7)
	LeaseLeft                           // and it renews a lease only if delta of it is left (rule 3)
)

var guardNames = []string{
	"MarginD", "PromiseFromSend", "AnswerFromSend", "AnnounceBounded", "AnnounceCapped", "AskCovered", "JointNew", "JointOld",
	"VoteAfterPromise", "VoteIsFinal", "BuryCompares", "VersionsRise", "Intersect", "GraceBuries", "RenewalNames",
	"RenewalNamesAsked", "LapseIsFinal",
	"LapseWaits", "RestartIsAnother", "Silenced", "RowLate", "LeaseLeft",
}

func (g Guard) String() string { return guardNames[bits.TrailingZeros32(uint32(g))] }

const (
	maxG = 4 // guardians a to d; bit j of a set
	maxV = 3 // versions 0 to 2 of the set

	maxRenewals = 2
)

// Guardians is the model of one session X, its guardians, a holder Y, and the arbiter. X announces
// deadlines to Y.
//
// Time passes in ticks. Each clock counts Slow or Fast units in a tick; which one is chosen for X,
// for Y, and for all guardians together, at the beginning, or with Wander anew in each tick. D, V
// and T are units, Grace is ticks.
type Guardians struct {
	Sets       []uint8 // by version
	Slow, Fast int8
	D          int8 // a guardian's promise
	V          int8 // its worth for X: D - M_D
	T          int8 // X's lease from the arbiter
	Grace      int8
	Delta      int8    // a server that was deposed answers for so many ticks
	Rates      []uint8 // combinations of clocks that are fast: bits 0 X, 1 Y, 2 guardians
	Wander     bool
	Failovers  uint8
	Restarts   uint8
	Beside     bool // X sends a second renewal while one is on its way, as after CallTimeout
	Adopts     bool // Y may get a row of its hold
	Expires    bool // X is dead T units of a slow clock after it has renewed at a server
	Without    Guard
	Limit      int
}

func (m *Guardians) has(g Guard) bool { return m.Without&g == 0 }

// Times that are left are 0 when they have passed. Those of X, Y and guardian j are by their own
// clocks.
type guardState struct {
	rates uint8

	// The arbiter: a server, and the one before, which answers for some ticks yet.
	cur, dep server
	deposed  int8
	taken    bool  // the session was dead, once: others may have all that it had
	late     uint8 // versions in renewals that are executed later, as bits
	copied   bool  // a replica has stopped following, with
	oldVer   int8
	oldDed   bool
	oldRow   bool
	oldExp   int8
	fails    uint8
	bury     uint8 // requests on their way, by version

	// X.
	gone       bool
	conf, pend int8 // recorded version, as far as X knows; version asked for, or the same
	lease      int8
	prom       [maxG]int8 // promises
	promVoted  [maxG]int8 // and their guardians' votes by then
	ann        int8       // the last deadline announced
	renewals   [maxRenewals]inFlight
	ackLeft    [maxG]int8 // answers to pings, on their way: their worth then
	ackVoted   [maxG]int8

	// Guardians.
	until    [maxG]int8
	voted    [maxG]int8  // highest version voted for; -1: none
	votes    [maxV]uint8 // by version, as others know them
	lost     uint8       // guardians that have restarted
	restarts uint8

	// Y.
	y, answer int8 // its deadline; an answer on its way, only without AnswerFromSend
	adopted   bool // it holds by its row, which it writes anew at another server before its Grace ends
	bare      bool // X was dead at a server without the row while Y held by it
}

// server is a server's data of X.
type server struct {
	ver   int8 // recorded version; -1: the session is not known
	dead  bool
	grace int8
	row   bool // of Y
	exp   int8 // X expires in so many ticks, with Expires
}

// inFlight is a renewal that is on its way, or its answer.
type inFlight struct {
	sent, answered bool
	soon           bool // the answer is of a server that took over less than delta ago
	ver            int8 // the version that it names, or that the answer names
	left           int8 // its worth as a lease
}

// Kinds of events.
const (
	gTick = iota
	gTickRates
	gPing
	gPromise
	gAnnounce
	gAnnounceLate
	gAnswered
	gAsk
	gSend
	gSetArrives
	gSetArrivesOld
	gSetReplyLost
	gSetLost
	gReply
	gRenew
	gRenewOld
	gRenewLate
	gLateArrives
	gLateArrivesOld
	gVote
	gBurySent
	gBuryArrives
	gBuryArrivesOld
	gUnknown
	gCopy
	gFailoverOld
	gFailoverEmpty
	gRestart
	gAdopt
	gAdoptOld
	gExpires
	gExpiresOld
)

func (m *Guardians) names() []string {
	return []string{
		gTick: "-- a tick --", gTickRates: "-- a tick, fast clocks: $v (X 1, Y 2, guardians 4) --",
		gPing: "X pings $a, which promises", gPromise: "the promise of $a reaches X",
		gAnnounce: "X announces $v units to Y", gAnnounceLate: "X announces $v units to Y; the answer is on its way", gAnswered: "the answer reaches Y",
		gAsk: "X asks for version $v", gSend: "X sends a renewal with version $v", gSetArrives: "the renewal reaches the arbiter, which has version $v",
		gSetArrivesOld: "the renewal reaches the deposed server, which has version $v",
		gSetReplyLost:  "the renewal reaches the arbiter; the answer is lost", gSetLost: "the renewal is late, or lost",
		gReply: "the answer reaches X: version $v", gRenew: "X renews, with version $v", gRenewOld: "X renews at the deposed server, with version $v",
		gRenewLate: "X renews, with version $v; this is executed later", gLateArrives: "a late renewal with version $v arrives",
		gLateArrivesOld: "a late renewal with version $v reaches the deposed server",
		gVote:           "$a votes that version $v is dead", gBurySent: "bury($v) is sent", gBuryArrives: "bury($v) reaches the arbiter",
		gBuryArrivesOld: "bury($v) reaches the deposed server",
		gUnknown:        "the arbiter does not know X: it is dead", gCopy: "a replica stops following",
		gFailoverOld: "FAILOVER to the replica", gFailoverEmpty: "FAILOVER, everything is lost", gRestart: "$a restarts",
		gAdopt: "Y adopts", gAdoptOld: "Y adopts at the deposed server",
		gExpires: "X expires: it is dead", gExpiresOld: "X expires at the deposed server: it is dead there",
	}
}

func (m *Guardians) initial() (all []guardState) {
	for _, rates := range m.Rates {
		s := guardState{rates: rates, lease: m.T, cur: server{exp: m.expiry()}}
		for j := range maxG {
			s.voted[j], s.promVoted[j], s.ackVoted[j] = -1, -1, -1
			if m.Sets[0]&(1<<j) != 0 {
				s.prom[j], s.until[j] = m.value(), m.D
			}
		}
		all = append(all, s)
	}
	return all
}

// value is a promise's worth for X.
func (m *Guardians) value() int8 {
	if m.has(MarginD) {
		return m.V
	}
	return m.D
}

// expiry is in how many ticks a server counts X dead: X's lease has passed by a slow clock, too.
func (m *Guardians) expiry() int8 {
	if !m.Expires {
		return 0
	}
	return (m.T + m.Slow - 1) / m.Slow
}

// outlives reports whether an answer renews X's lease. One of a server that took over less than
// delta ago does so only if delta is left of the lease. The server before may count X dead when the
// lease has passed.
func (m *Guardians) outlives(s *guardState, young bool) bool {
	return !young || s.lease >= m.Delta*m.Slow || !m.has(LeaseLeft)
}

// quorum returns how many of a set have to promise, and to vote.
func (m *Guardians) quorum(set uint8) (p, e int) {
	p, e = guardians.Quorum(bits.OnesCount8(set))
	if !m.has(Intersect) {
		e--
	}
	return p, e
}

const never = 127

// covered returns how long the promises for a version last: that of the p-th best of its set.
func (m *Guardians) covered(s *guardState, v int8) int8 {
	set := m.Sets[v]
	if set == 0 {
		return never
	}
	p, _ := m.quorum(set)
	best := int8(0)
	for j := range maxG {
		if set&(1<<j) == 0 {
			continue
		}
		// The p-th best is the largest d with p promises of at least d.
		d, n := m.promise(s, j, v), 0
		for k := range maxG {
			if set&(1<<k) != 0 && m.promise(s, k, v) >= d {
				n++
			}
		}
		if n >= p {
			best = max(best, d)
		}
	}
	return best
}

func (m *Guardians) promise(s *guardState, j int, v int8) int8 {
	if s.promVoted[j] >= v && m.has(VoteIsFinal) {
		return 0
	}
	return s.prom[j]
}

// left returns how long X is valid, by its clock.
func (m *Guardians) left(s *guardState) int8 {
	if s.gone {
		return 0
	}
	d := s.lease
	if s.pend == s.conf || m.has(JointOld) {
		d = min(d, m.covered(s, s.conf))
	}
	if s.pend != s.conf && m.has(JointNew) {
		d = min(d, m.covered(s, s.pend))
	}
	return d
}

// announced returns how long X tells Y that it is valid.
func (m *Guardians) announced(s *guardState) int8 {
	d := m.left(s)
	if !m.has(AnnounceBounded) && d > 0 {
		d = s.lease
	}
	if m.has(AnnounceCapped) && m.has(AnnounceBounded) {
		d = min(d, m.V)
	}
	return d
}

func (m *Guardians) check(s *guardState) string {
	switch {
	case s.taken && m.left(s) > 0:
		return "X is dead at the arbiter, and valid by its own clock"
	case s.taken && s.y > 0:
		return "X is dead at the arbiter, and Y relies on what it announced"
	case s.bare:
		return "X is dead at a server that lacks the row by which Y holds"
	}
	return ""
}

func (m *Guardians) rate(s *guardState, who uint8) int8 {
	if s.rates&(1<<who) != 0 {
		return m.Fast
	}
	return m.Slow
}

func pass(at *int8, by int8) { *at = max(*at-by, 0) }

func (m *Guardians) tick(s guardState, rates uint8) guardState {
	s.rates = rates
	x, y, g := m.rate(&s, 0), m.rate(&s, 1), m.rate(&s, 2)
	if m.Wander {
		s.rates = 0
	}
	if s.cur.grace == 1 && s.adopted {
		s.cur.row = true
	}
	pass(&s.cur.grace, 1)
	pass(&s.dep.grace, 1)
	pass(&s.deposed, 1)
	pass(&s.cur.exp, 1)
	pass(&s.dep.exp, 1)
	pass(&s.oldExp, 1)
	pass(&s.y, y)
	pass(&s.lease, x)
	pass(&s.ann, x)
	for i := range s.renewals {
		pass(&s.renewals[i].left, x)
	}
	for j := range maxG {
		pass(&s.prom[j], x)
		if m.has(PromiseFromSend) {
			pass(&s.ackLeft[j], x)
		}
		pass(&s.until[j], g)
	}
	if m.left(&s) == 0 && m.has(LapseIsFinal) {
		s.gone = true // it looks before each grant
		if !m.has(LapseWaits) {
			m.dies(&s, &s.cur)
		}
	}
	return s
}

// before orders renewals, so that those that differ in order only are one state.
func (r inFlight) before(x inFlight) bool {
	key := func(r inFlight) int {
		k := int(r.ver)<<8 | int(r.left)
		if r.sent {
			k |= 1 << 20
		}
		if r.answered {
			k |= 1 << 21
		}
		if r.soon {
			k |= 1 << 22
		}
		return k
	}
	return key(r) < key(x)
}

// tidy drops data without any further effect.
func (m *Guardians) tidy(s *guardState) {
	if s.gone {
		s.lease, s.ann, s.renewals, s.conf, s.pend = 0, 0, [maxRenewals]inFlight{}, 0, 0
		s.prom, s.ackLeft, s.answer = [maxG]int8{}, [maxG]int8{}, 0
	}
	if r := &s.renewals; r[0].before(r[1]) { // which is which has no effect
		r[0], r[1] = r[1], r[0]
	}
	for j := range maxG {
		if s.prom[j] == 0 {
			s.promVoted[j] = -1
		}
		if s.ackLeft[j] == 0 {
			s.ackVoted[j] = -1
		}
		if s.lost&(1<<j) != 0 && m.has(RestartIsAnother) {
			s.until[j], s.voted[j] = 0, -1
		}
	}
	if !s.copied {
		s.oldVer, s.oldDed, s.oldRow, s.oldExp = 0, false, false, 0
	}
	if s.deposed == 0 {
		s.dep = server{}
	}
	if m.has(VersionsRise) { // a late and lower one changes nothing, unless the version is lost once more
		if s.fails == 0 {
			s.late &^= 1<<(s.cur.ver+1) - 1
		}
	}
}

func (m *Guardians) next(was *guardState, to func(event, guardState)) {
	add := func(kind int, node int, n int8, s guardState) {
		m.tidy(&s)
		to(event{int8(kind), int8(node), n}, s)
	}
	if m.Wander {
		for _, rates := range m.Rates {
			add(gTickRates, 0, int8(rates), m.tick(*was, rates))
		}
	} else {
		add(gTick, 0, 0, m.tick(*was, was.rates))
	}
	if !was.gone {
		m.session(was, add)
	}
	m.guardians(was, add)
	m.arbiter(was, add)
	if m.Adopts && was.y > 0 && !was.adopted {
		m.adopt(was, add, gAdopt, false)
		if was.deposed > 0 {
			m.adopt(was, add, gAdoptOld, true)
		}
	}
	if was.answer > 0 {
		s := *was
		s.y, s.answer = max(s.y, s.answer), 0
		add(gAnswered, 0, 0, s)
	}
}

type adder func(kind int, node int, n int8, s guardState)

// Explore sees every state within the bounds, or stops at the first violation.
func (m *Guardians) Explore() Result { return explore[guardState](m, m.Limit) }
