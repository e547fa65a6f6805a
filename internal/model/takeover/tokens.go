package takeover

import "math/bits"

// TokenGuard is something that makes tokens rise though Grace ends early.
type TokenGuard uint8

// Guards of tokens (docs/adr/0023).
const (
	Floor       TokenGuard = 1 << iota // the next epoch after an early end is ahead of the clock (E5)
	FloorBelow                         // by less than what is left of Grace: the next one may last for all of Q (E5)
	SpeaksApart                        // a session that knew another round speaks later for the next one (E3)
)

var tokenGuardNames = []string{"Floor", "FloorBelow", "SpeaksApart"}

func (g TokenGuard) String() string { return tokenGuardNames[bits.TrailingZeros8(uint8(g))] }

// Tokens is the model of a partition's epochs, which are the seconds of its server's clock, or one
// more than the epoch before. Servers fail over, and may lose all epochs. Grace ends early, or
// after Q. It looks for an epoch that is not higher than all which were given out before.
//
// All times are in half seconds. Clocks of servers differ by M at most.
type Tokens struct {
	Q, M, Delta int8
	Age         int8  // of a round that is complete
	Lead        int8  // by how much the next epoch is ahead of the clock after an early end
	Apart       int8  // how old the next round is for which a session speaks that knew another one
	Turns       int8  // of the partition's owner between two failovers, at most: an epoch each
	Ahead       int8  // by how many epochs the first server's are ahead of its clock
	Failovers   uint8 // at most
	Without     TokenGuard
}

func (m *Tokens) has(g TokenGuard) bool { return m.Without&g == 0 }

type (
	// epochs is a server's data of the partition.
	epochs struct {
		off   int8 // its clock, ahead of the slowest one
		last  int8
		grace int8 // when that ends by its clock, or 0
		floor int8 // after an early end: the least time that the next epoch is of
		turns int8 // epochs since that server took over
	}
	tokenState struct {
		time     int8
		now, old epochs
		answers  int8 // for how long the deposed server does
		most     int8 // of all epochs that were given out
		fails    uint8
		failed   int8 // when the present server took over
		spoke    bool // all sessions did, for the present server's Grace
		spokeOld bool // or the deposed one's
		knew     bool // they knew a round before the present one
		fell     bool // an epoch was not higher than those before it
	}
)

// Kinds of events of tokens.
const (
	tTick = iota
	tTurn
	tTurnOld
	tFail
	tFailLost
	tSpeak
	tEnd
	tEndOld
)

func (m *Tokens) names() []string {
	return []string{
		"half a second", "the partition has its next epoch", "the deposed server gives it its next one",
		"a server takes over, $v half seconds ahead", "a server takes over that lost all, $v half seconds ahead",
		"all sessions have spoken", "Grace ends early", "the deposed server's Grace ends early",
	}
}

// began is the time of the first failover, with which runs begin.
const began = 10

func (m *Tokens) initial() (all []tokenState) {
	for _, off := range []int8{0, m.M} {
		s := tokenState{time: began, now: epochs{off: off, last: (began+off)/2 + m.Ahead}}
		s.most = s.now.last
		for _, to := range []int8{0, m.M} {
			for _, lost := range []bool{false, true} {
				all = append(all, m.fail(s, to, lost))
			}
		}
	}
	return all
}

// fail is a failover to a server whose clock is that much ahead.
func (m *Tokens) fail(s tokenState, off int8, lost bool) tokenState {
	s.old, s.answers = s.now, m.Delta
	s.fails, s.failed, s.spokeOld, s.spoke = s.fails+1, s.time, s.spoke, false
	if s.now.off = off; lost {
		s.now.last = 0
	}
	s.now.grace, s.now.floor, s.now.turns = s.time+off+m.Q, 0, 0
	return s
}

func (m *Tokens) check(s *tokenState) string {
	if s.fell {
		return "I2: tokens rise"
	}
	return ""
}

// turn gives the partition its next epoch at a server.
func (m *Tokens) turn(s *tokenState, x *epochs) {
	x.last = max(x.last+1, max(s.time+x.off, x.floor)/2)
	x.floor, x.turns = 0, x.turns+1
	s.fell = x.last <= s.most
	s.most = max(s.most, x.last)
}

// over ends Grace at the present server after Q.
func (m *Tokens) over(s *tokenState) {
	if s.now.grace != 0 && s.time+s.now.off >= s.now.grace {
		s.now.grace, s.now.floor, s.spoke = 0, 0, false
		m.turn(s, &s.now)
	}
}

func (m *Tokens) next(s *tokenState, to func(event, tokenState)) {
	step := func(kind, n int8, change func(s *tokenState)) {
		after := *s
		change(&after)
		to(event{kind: kind, n: n}, after)
	}
	if s.time < s.failed+m.Q+m.M {
		step(tTick, 0, func(s *tokenState) {
			s.time++
			if s.answers = max(0, s.answers-1); s.answers == 0 {
				s.old, s.spokeOld = epochs{}, false // none asks it any more
			}
			m.over(s)
		})
	}
	if s.now.turns < m.Turns && s.now.grace == 0 {
		step(tTurn, 0, func(s *tokenState) { m.turn(s, &s.now) })
	}
	if s.old.turns < m.Turns && s.answers > 0 && s.old.grace == 0 {
		step(tTurnOld, 0, func(s *tokenState) { m.turn(s, &s.old) })
	}
	if s.fails < m.Failovers {
		for _, off := range []int8{0, m.M} {
			step(tFail, off, func(s *tokenState) { *s = m.fail(*s, off, false) })
			step(tFailLost, off, func(s *tokenState) { *s = m.fail(*s, off, true) })
		}
	}
	if s.now.grace != 0 && !s.spoke && s.time-s.failed >= m.Age && (!s.knew || s.time-s.failed >= m.Apart || !m.has(SpeaksApart)) {
		step(tSpeak, 0, func(s *tokenState) { s.spoke, s.knew = true, true })
	}
	if s.now.grace != 0 && s.spoke {
		step(tEnd, 0, func(s *tokenState) { m.end(s, &s.now); s.spoke = false })
	}
	if s.old.grace != 0 && s.spokeOld {
		step(tEndOld, 0, func(s *tokenState) { m.end(s, &s.old); s.spokeOld = false })
	}
}

// end ends Grace early at a server.
func (m *Tokens) end(s *tokenState, x *epochs) {
	switch {
	case !m.has(Floor):
	case m.has(FloorBelow):
		x.floor = s.time + x.off + m.Lead
	default:
		x.floor = x.grace
	}
	x.grace = 0
	m.turn(s, x)
}

// Explore sees all states.
func (m *Tokens) Explore() Result { return explore(m, 20_000_000) }
