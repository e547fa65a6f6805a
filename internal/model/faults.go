package model

import "github.com/holdfast-go/holdfast/internal/model/spec"

// faults makes faults, and their repairs.
func (a *action) faults() {
	for i := uint8(1); i <= a.Nodes; i++ {
		x := &a.was.node[i]
		if x.life != alive {
			continue
		}
		n := a.begin()
		a.die(n, i)
		n.node[i].seen = 0
		a.fault(crash, "$a crashes", i, 0, 0)
		a.clockSteps(i)
		if x.cutP {
			a.begin().node[i].cutP = false
			a.done("$a reaches the arbiter's slot of the partition again", i, 0, 0)
		} else {
			a.begin().node[i].cutP = true
			a.fault(cut, "$a is cut off from the arbiter's slot of the partition", i, 0, 0)
		}
		if x.cutS {
			a.begin().node[i].cutS = false
			a.done("$a reaches the arbiter's slot of the sessions again", i, 0, 0)
		} else {
			a.begin().node[i].cutS = true
			a.fault(cut, "$a is cut off from the arbiter's slot of the sessions", i, 0, 0)
		}
		for j := i + 1; j <= a.Nodes; j++ {
			if a.was.linked(i, j) {
				n := a.begin()
				n.down[i] |= bit(j)
				n.down[j] |= bit(i)
				a.cutOff(n, i, j)
				a.fault(cut, "the stream between $a and $b breaks", i, j, 0)
			}
		}
		a.latePong(i)
	}
	a.failovers()
	a.rewinds()
	n := a.begin()
	n.clock += epochsPerTick
	n.arbiterPasses()
	a.fault(drift, "the arbiter's clock runs ahead by a tick", 0, 0, 0)
}

// clockSteps: the wall clock of a node steps forward past its deadlines. Its session is over by its
// own clock, long before it is at the arbiter, and it demotes its partition with its whole table.
func (a *action) clockSteps(i uint8) {
	n := a.begin()
	x := n.node[i]
	demote := message{kind: lateDemote, node: i, epoch: x.own, rows: x.table}
	for k, r := range x.table {
		if own := r.who == i; own && !a.has(SteppedCallers) || !own && !a.has(SteppedRemote) {
			demote.rows[k] = row{}
		}
	}
	left := a.ownedUntil(&x)
	a.die(n, i)
	if x.own != 0 {
		sent := of(spec.Demoted, i, x.own)
		sent.Rows = listed(demote.rows)
		a.note(n, sent)
		if x.from == fromSelf {
			n.node[i].section = left
		}
		if !n.send(demote) {
			return
		}
	}
	a.fault(step, "$a's wall clock steps forward: its session is over, and it sends demote of epoch $t", i, 0, makeToken(x.own, 0))
}

// latePong: the answer to a ping waits on the stream, behind earlier frames.
func (a *action) latePong(i uint8) {
	for j := uint8(1); j <= a.Nodes; j++ {
		if a.was.linked(i, j) && a.was.node[j].from == fromOwner+i && a.was.budget[delay] > 0 {
			n := a.begin()
			if n.push(i, j, frame{kind: framePong, left: n.answers(a.Model, i)}) {
				a.fault(delay, "$a answers a ping of $b; the answer is on its way", i, j, 0)
			}
		}
	}
}

// failovers make the arbiter another server: with the old one's data, with a replica's data of when
// it stopped following, or with nothing.
func (a *action) failovers() {
	if a.was.budget[failover] > 0 && a.Lossy {
		if !a.was.copied {
			n := a.begin()
			n.copied, n.replica = true, n.p
			a.done("the replica stops following", 0, 0, 0)
		} else {
			n := a.begin()
			a.another(n, n.replica)
			a.fault(failover, "FAILOVER of the partition's slot to the replica", 0, 0, 0)
		}
		n := a.begin()
		a.another(n, record{server: byNone})
		a.fault(failover, "FAILOVER of the partition's slot, everything is lost", 0, 0, 0)
	}
	n := a.begin()
	a.another(n, n.p)
	a.fault(failover, "FAILOVER of the partition's slot, nothing is lost", 0, 0, 0)

	n = a.begin()
	n.sServer, n.backup = byOther, backup{}
	a.fault(sessionFailover, "FAILOVER of the sessions' slot, nothing is lost", 0, 0, 0)
	n = a.begin()
	n.sServer, n.sGrace, n.backup = byNone, 0, backup{}
	for i := range n.expiry {
		n.expiry[i] = 0
	}
	a.fault(sessionFailover, "FAILOVER of the sessions' slot, everything is lost", 0, 0, 0)
}

func (a *action) another(n *state, p record) {
	if p.server != byNone {
		p.server = byOther
	}
	n.p, n.replica, n.copied, n.lag, n.backup = p, record{}, false, 0, backup{}
}

// buryEarly: the guardians of a session that is over have it buried, before it expires. Their
// promises bound the session's announced deadlines, and have passed by then: package takeover shows
// it.
func (a *action) buryEarly(i uint8) {
	if !a.Takeover || a.was.expiry[i] <= 1 {
		return
	}
	if a.has(BuryWaits) {
		if a.was.node[i].section > 0 {
			return
		}
		for j := range a.was.node {
			if y := &a.was.node[j]; y.from == fromOwner+i && y.ann > 0 {
				return
			}
		}
	}
	a.buryAt(a.begin(), i)
	a.done("$a is buried", i, 0, 0)
}
