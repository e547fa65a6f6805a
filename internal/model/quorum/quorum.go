// Package quorum explores every state of a register over independent servers that may forget:
// docs/quorum.md. It is CASPaxos (D. Rystsov, "CASPaxos: Replicated State Machines without logs",
// 2018), with a rule for a server that has lost data: its answers do not count until it is admitted
// again, in a new epoch. Epochs are the first part of each ballot.
package quorum

import (
	"fmt"
	"math/bits"
)

const (
	servers   = 3
	majority  = 2
	proposers = 3 // the last one admits servers
	admitter  = proposers - 1
)

// Register is the model of one record. Two processes swap it: the first one from nothing to 1, the
// second from nothing to 2, or from 1 to 2. A third one admits servers that have forgotten.
// Messages arrive in any order, once or never.
type Register struct {
	Chain   bool  // the second swap is from 1
	Two     bool  // the second process admits servers, too, in the place of its swap
	Tries   uint8 // of each process: with a ballot each
	Forgets uint8 // servers that lose data, in all
	Older   bool  // to older data that they had, instead of none
	Without Guard
}

// A Guard is something without which an acknowledged value is lost, or two swaps from the same one
// succeed.
type Guard uint16

// The guards.
const (
	Marked      Guard = 1 << iota // a server that has forgotten answers nothing until it is admitted
	Others                        // to admit a server, a majority of the servers is asked without it
	WrittenBack                   // they accept their values again before it is admitted
	NewEpoch                      // it is admitted in an epoch after all that they know, and they are told of it first
	Established                   // an epoch is used once a majority knows of it
	SameStart                     // it is admitted only if it has not forgotten again meanwhile
	Promises                      // a server refuses a lower ballot than it has promised, or one of an earlier epoch
	Highest                       // of the values that were accepted, that of the highest ballot counts
	Compares                      // a swap looks at the value that it finds
)

var guardNames = [...]string{"Marked", "Others", "WrittenBack", "NewEpoch", "Established", "SameStart", "Promises", "Highest", "Compares"}

func (g Guard) String() string { return guardNames[bits.TrailingZeros16(uint16(g))] }

// Guards are all of them.
var Guards = []Guard{Marked, Others, WrittenBack, NewEpoch, Established, SameStart, Promises, Highest, Compares}

func (m *Register) has(g Guard) bool { return m.Without&g == 0 }

// cell is a server's copy of the record.
type cell struct {
	promised, ballot, value uint8 // 0: none
}

// server is a server.
type server struct {
	cell
	epoch   uint8 // that it knows; 0: it has forgotten, and was not admitted
	start   uint8 // how often it has forgotten
	older   cell  // that it may go back to
	snapped bool
}

type stage uint8

const (
	idle    stage = iota
	telling       // the admitter tells the others of the epoch
	preparing
	accepting
	done
)

// proposer is a process in an operation.
type proposer struct {
	stage    stage
	ballot   uint8 // epoch and round
	tries    uint8 // left
	asked    uint8 // servers that have got the message of this stage
	promised uint8 // servers that have promised the ballot
	accepted uint8
	best     cell  // of the cells that they had accepted
	value    uint8 // that it wants accepted
	target   uint8 // of the admitter: the server
	start    uint8 // of the admitter: the target's
}

type state struct {
	s       [servers]server
	p       [proposers]proposer
	forgets uint8 // left
	told    uint8 // values that were acknowledged to a process, or read, as a set
	heard   uint8 // the highest epoch that any process has heard of
}

// rounds is how many rounds an epoch has.
const rounds = 16

func ballot(epoch, round uint8) uint8 { return epoch*rounds + round }

// Result is the outcome of an exploration.
type Result struct {
	States int
	Broken string   // the invariant that does not hold; empty if all do
	Story  []string // a shortest way there
}

// Explore sees every state, or stops at the first violation.
func (m *Register) Explore() (r Result) {
	first := state{forgets: m.Forgets, heard: 1}
	for i := range first.s {
		first.s[i].epoch = 1
	}
	for i := range first.p {
		first.p[i].tries = m.Tries
	}
	type origin struct {
		from int
		what string
	}
	seen := map[state]struct{}{first: {}}
	all, origins := []state{first}, []origin{{-1, ""}}
	for at := 0; at < len(all) && r.Broken == ""; at++ {
		m.step(all[at], func(n state, what string) {
			if _, old := seen[n]; old || r.Broken != "" {
				return
			}
			seen[n] = struct{}{}
			all, origins = append(all, n), append(origins, origin{at, what})
			r.Broken = m.check(&n)
		})
	}
	r.States = len(all)
	if r.Broken != "" {
		for i := len(all) - 1; i > 0; i = origins[i].from {
			r.Story = append([]string{origins[i].what}, r.Story...)
		}
	}
	return r
}

// votes reports whether the answers of a server count.
func (m *Register) votes(x *server) bool { return x.epoch != 0 || !m.has(Marked) }

// check looks at the answer that each majority would give. A value that was acknowledged, or read,
// is there, or the one that was swapped for it.
func (m *Register) check(s *state) string {
	if s.told&2 != 0 && s.told&4 != 0 && !m.Chain {
		return "both swaps from nothing have succeeded"
	}
	for set := range 1 << servers {
		if bits.OnesCount(uint(set)) != majority {
			continue
		}
		var best cell
		counts := true
		for i := range s.s {
			if set>>i&1 == 0 {
				continue
			}
			counts = counts && m.votes(&s.s[i])
			if s.s[i].ballot > best.ballot {
				best = s.s[i].cell
			}
		}
		switch {
		case !counts:
		case s.told&4 != 0 && best.value != 2:
			return fmt.Sprintf("2 was acknowledged, and a majority tells of %d", best.value)
		case s.told&2 != 0 && best.value != 1 && (!m.Chain || best.value != 2):
			return fmt.Sprintf("1 was acknowledged, and a majority tells of %d", best.value)
		}
	}
	return ""
}

func (m *Register) step(s state, to func(state, string)) {
	for i := range s.s {
		m.server(s, i, to)
	}
	for i := range s.p {
		m.proposer(s, i, to)
	}
	m.read(s, to)
}

// server forgets, makes a backup of its data, or is told of an epoch.
func (m *Register) server(s state, i int, to func(state, string)) {
	x := &s.s[i]
	if x.epoch != 0 && x.epoch < s.heard {
		n := s
		n.s[i].epoch = s.heard
		to(n, fmt.Sprintf("server %d is told of epoch %d", i, s.heard))
	}
	if s.forgets == 0 {
		return
	}
	if m.Older && !x.snapped {
		n := s
		n.s[i].older, n.s[i].snapped = x.cell, true
		to(n, fmt.Sprintf("server %d writes its data to its disk", i))
	}
	s.forgets--
	*x = server{cell: x.older, start: x.start + 1}
	to(s, fmt.Sprintf("server %d starts again, with %v", i, x.cell))
}

// proposer makes a step of a process.
func (m *Register) proposer(s state, i int, to func(state, string)) {
	p := &s.p[i]
	if p.stage != done && p.tries > 0 {
		m.begin(s, i, to)
	}
	switch p.stage {
	case telling:
		for j := range s.s {
			m.tell(s, i, j, to)
		}
	case preparing:
		for j := range s.s {
			m.prepare(s, i, j, to)
		}
		m.decide(s, i, to)
	case accepting:
		for j := range s.s {
			m.accept(s, i, j, to)
		}
		m.end(s, i, to)
	}
}

// known returns the highest epoch that so many servers know; target does not count.
func (m *Register) known(s *state, by, target int) (epoch uint8) {
	for e := s.heard; e > 0; e-- {
		n := 0
		for j := range s.s {
			if j != target && s.s[j].epoch >= e {
				n++
			}
		}
		if n >= by {
			return e
		}
	}
	return 0
}

// begin begins with a new ballot, after a failure too. Rounds of different processes differ.
func (m *Register) begin(s state, i int, to func(state, string)) {
	p := &s.p[i]
	p.tries--
	round := (m.Tries-p.tries)*proposers - uint8(i)
	*p = proposer{stage: preparing, tries: p.tries}
	if !m.admits(i) {
		by := majority
		if !m.has(Established) {
			by = 1
		}
		p.ballot = ballot(m.known(&s, by, -1), round)
		if p.ballot >= rounds {
			to(s, fmt.Sprintf("process %d begins, ballot %d", i, p.ballot))
		}
		return
	}
	for j := range s.s {
		if s.s[j].epoch != 0 {
			continue
		}
		n := s
		x := &n.p[i]
		x.target, x.start = uint8(j), s.s[j].start
		// The highest that one of a majority of the others knows. With three servers the others are
		// both.
		epoch := m.known(&s, 1, j)
		if m.known(&s, majority, j) == 0 && m.has(Others) {
			continue
		}
		x.ballot = ballot(epoch, round)
		if m.has(NewEpoch) {
			x.stage, x.ballot = telling, ballot(epoch+1, round)
		}
		to(n, fmt.Sprintf("server %d is to be admitted, ballot %d", j, x.ballot))
	}
}

// asks reports whether a process asks a server at all.
func (m *Register) asks(p *proposer, i, j int) bool {
	return !m.admits(i) || j != int(p.target) || !m.has(Others)
}

// admits reports whether a process admits servers.
func (m *Register) admits(i int) bool { return i == admitter || m.Two && i == 1 }

// answers reports whether a server's answer to a process counts.
func (m *Register) answers(x *server, i int) bool {
	return m.votes(x) || m.admits(i) && !m.has(Others)
}

// tell tells a server of the epoch in which another one is to be admitted.
func (m *Register) tell(s state, i, j int, to func(state, string)) {
	p, x := &s.p[i], &s.s[j]
	epoch := p.ballot / rounds
	if p.asked>>j&1 != 0 || !m.asks(p, i, j) || !m.answers(x, i) || x.epoch > epoch {
		return
	}
	p.asked |= 1 << j
	if x.epoch != 0 {
		x.epoch = epoch
	}
	s.heard = max(s.heard, epoch)
	if bits.OnesCount8(p.asked) >= majority {
		p.stage, p.asked = preparing, 0
	}
	to(s, fmt.Sprintf("server %d is told of epoch %d by the admitter", j, epoch))
}

// refuses reports whether a server refuses a message with a ballot.
func (m *Register) refuses(x *server, ballot uint8) bool {
	return x.promised > ballot || ballot/rounds < x.epoch
}

func (m *Register) prepare(s state, i, j int, to func(state, string)) {
	p, x := &s.p[i], &s.s[j]
	if p.asked>>j&1 != 0 || !m.asks(p, i, j) || !m.answers(x, i) || m.refuses(x, p.ballot) {
		return
	}
	p.asked |= 1 << j
	p.promised |= 1 << j
	x.promised = p.ballot
	if x.epoch != 0 {
		x.epoch = p.ballot / rounds
	}
	if x.ballot > p.best.ballot || !m.has(Highest) {
		p.best = cell{0, x.ballot, x.value}
	}
	to(s, fmt.Sprintf("server %d promises %d", j, p.ballot))
}

// decide goes on with an operation once a majority has promised.
func (m *Register) decide(s state, i int, to func(state, string)) {
	p := &s.p[i]
	if bits.OnesCount8(p.promised) < majority {
		return
	}
	p.value = p.best.value
	if !m.admits(i) {
		from, mine := uint8(0), uint8(i)+1
		if i == 1 && m.Chain {
			from = 1
		}
		switch p.value {
		case from, mine: // mine: an earlier try was not in vain
			p.value = mine
		default:
			if m.has(Compares) {
				p.stage = done
				to(s, fmt.Sprintf("process %d finds %d", i, p.value))
				return
			}
			p.value = mine
		}
	}
	p.stage, p.asked = accepting, 0
	to(s, fmt.Sprintf("process %d wants %d accepted", i, p.value))
}

func (m *Register) accept(s state, i, j int, to func(state, string)) {
	p, x := &s.p[i], &s.s[j]
	if p.asked>>j&1 != 0 || !m.asks(p, i, j) || !m.answers(x, i) || m.has(Promises) && m.refuses(x, p.ballot) {
		return
	}
	p.asked |= 1 << j
	p.accepted |= 1 << j
	if p.value != 0 {
		x.cell = cell{max(x.promised, p.ballot), p.ballot, p.value}
	}
	to(s, fmt.Sprintf("server %d accepts %d, ballot %d", j, p.value, p.ballot))
}

// end ends an operation once a majority has accepted.
func (m *Register) end(s state, i int, to func(state, string)) {
	p := &s.p[i]
	enough := bits.OnesCount8(p.accepted) >= majority
	if !m.admits(i) {
		if enough {
			p.stage = done
			s.told |= 1 << p.value
			to(s, fmt.Sprintf("process %d has swapped to %d", i, p.value))
		}
		return
	}
	if !enough && m.has(WrittenBack) {
		return
	}
	x := &s.s[p.target]
	if x.epoch != 0 || m.has(SameStart) && x.start != p.start {
		return
	}
	x.epoch = p.ballot / rounds
	target := p.target
	*p = proposer{tries: p.tries} // there may be another one
	to(s, fmt.Sprintf("server %d is admitted in epoch %d", target, x.epoch))
}

// read is a read with the same answer from a majority.
func (m *Register) read(s state, to func(state, string)) {
	for i := range s.s {
		for j := range i {
			x, y := &s.s[i], &s.s[j]
			if m.votes(x) && m.votes(y) && x.ballot == y.ballot && x.value != 0 && s.told>>x.value&1 == 0 {
				n := s
				n.told |= 1 << x.value
				to(n, fmt.Sprintf("%d is read from servers %d and %d", x.value, j, i))
			}
		}
	}
}
