package model

import (
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/fallback"
)

// A Model is an exploration: bounds, times in ticks, and the guards that are taken away. It is used
// by one goroutine at a time.
type Model struct {
	Nodes    uint8 // 1 to 3
	Requests uint8 // of a node, that are in use at the same time: 1 to 5. Requests that are over do not count

	// Faults bounds all faults of a run together, the others each kind.
	Faults                                                                    uint8
	Crashes, Delays, Cuts, Failovers, SessionFailovers, Drift, Steps, Rewinds uint8
	Lossy                                                                     bool  // a failover may lose everything, or the latest writes:
	Lag                                                                       uint8 // so many of them

	Back    uint8 // the data that go back: BackRecord, BackSessions, or both
	Behind  uint8 // of the record at most so many changes are missing
	Unaware bool  // the arbiter's data go back also where a node has not seen newer ones

	Shared     bool // nodes want the key for reading, too
	Downgrades bool // nodes that hold the key exclusively go on as readers; with Shared
	Takeover   bool // sessions are buried before they expire

	T, M, Q uint8 // expiry of sessions, margin, grace; in ticks

	Without Guard     // guards that are taken away
	Check   Invariant // the checked invariants; 0: everything

	Limit     int  // states to stop at; 0: none
	Specified bool // each action is compared with package spec
	Live      bool // look for states where nothing can be granted any more (I8)

	// Used again for each transition.
	part    fallback.Partition
	rows    map[string]fallback.Row
	table   fallback.Sessions
	members map[string]fallback.Member
	toks    []token
	to      []token

	bounded bool   // an action was left out for lack of numbers
	broken  string // the invariant that the last action has violated
}

// An Invariant is one of the protocol's.
type Invariant uint16

// The invariants that are checked in every state. I4 is a purpose of guards; I8 is looked for when
// all states are known.
const (
	I1 Invariant = 1 << iota
	I2
	I3
	I5
	I6
	I7

	// Harm is the violations that users of locks can see: two holders, or a token out of order.
	Harm = I1 | I2
)

func (i Invariant) String() string {
	return map[Invariant]string{I1: "I1", I2: "I2", I3: "I3", I5: "I5", I6: "I6", I7: "I7"}[i]
}

func (m *Model) has(g Guard) bool { return m.Without&g == 0 }

// lease returns for how many ticks a node relies on an answer of the arbiter (rule 1).
func (m *Model) lease() uint8 {
	if !m.has(Margin) {
		return m.T
	}
	return m.T - m.M
}

func (m *Model) violate(i Invariant, what string) {
	if m.broken == "" && (m.Check == 0 || m.Check&i != 0) {
		m.broken = fmt.Sprintf("%v: %s", i, what)
	}
}

// event is an action, to be told.
type event struct {
	what  string // $a, $b: nodes, $t: a token
	a, b  uint8
	t     token
	fault bool
}

func (e event) String() string {
	return strings.NewReplacer("$a", names[e.a], "$b", names[e.b], "$t", e.t.String()).Replace(e.what)
}

// String counts epochs from the first one of a namespace.
func (t token) String() string {
	e := int(t.epoch())
	if e >= base {
		e -= base - 1
	}
	return fmt.Sprintf("%d.%d", e, t.seq())
}

// initial is a new namespace and its nodes.
func (m *Model) initial() *state {
	s := &state{clock: base, faults: m.Faults}
	s.budget = [kinds]uint8{
		crash: m.Crashes, delay: m.Delays, cut: m.Cuts, failover: m.Failovers, sessionFailover: m.SessionFailovers, drift: m.Drift, step: m.Steps, rewind: m.Rewinds,
	}
	now := m.moment(s)
	p := new(fallback.Partition)
	p.Format(now, 0)
	s.p = read(p, now.Now)
	s.maxEpoch = s.p.epoch
	for i := uint8(1); i <= m.Nodes; i++ {
		s.node[i].session = m.lease()
		m.open(s, i)
	}
	return s
}

// next calls emit with each state that one action leads to, before it is made canonical.
func (m *Model) next(s *state, emit func(*state, event)) {
	a := &action{Model: m, was: s, emit: emit}
	for i := uint8(1); i <= m.Nodes; i++ {
		if s.node[i].life != alive {
			a.reopen(i)
			a.buryEarly(i)
			continue
		}
		a.owner(i)
		a.holder(i)
		for j := uint8(1); j <= m.Nodes; j++ {
			a.stream(i, j)
		}
	}
	a.late()
	a.tick()
	a.faults()
}

// action makes the states that follow on one.
type action struct {
	*Model
	was  *state
	emit func(*state, event)
	n    state // the one that is made
}

// begin returns a copy of the state to work on.
func (a *action) begin() *state {
	a.n = *a.was
	a.n.noted = nil
	a.broken = ""
	return &a.n
}

// done hands on the state that was made. Afterwards it has other names, and is not to be used.
func (a *action) done(what string, i, j uint8, t token) {
	a.follow()
	a.emit(&a.n, event{what: what, a: i, b: j, t: t})
}

// fault is done for an action that uses up a fault. It is left out if there is none left.
func (a *action) fault(kind int, what string, i, j uint8, t token) {
	if a.n.faults == 0 || a.n.budget[kind] == 0 {
		return
	}
	a.follow()
	a.n.faults--
	a.n.budget[kind]--
	a.emit(&a.n, event{what: what, a: i, b: j, t: t, fault: true})
}

// follow counts the changes that a replica, or a backup, has missed since it was made. One that has
// missed too much is of no interest.
func (a *action) follow() {
	if n := &a.n; n.copied && a.was.copied && n.p != a.was.p {
		if n.lag++; n.lag > a.Lag {
			n.copied, n.lag, n.replica = false, 0, record{}
		}
	}
	if n := &a.n; n.backup.made && a.was.backup.made && a.Back&BackRecord != 0 && n.p != a.was.p {
		if n.backup.lag++; n.backup.lag > a.Behind {
			n.backup = backup{}
		}
	}
}
