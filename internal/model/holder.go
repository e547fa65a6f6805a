package model

import (
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/model/spec"
)

// holder makes the actions of a node that wants the key, or has it.
func (a *action) holder(j uint8) {
	x := &a.was.node[j]
	if x.want != wantNothing {
		n := a.begin()
		a.withdraw(&n.node[j])
		a.done("$a gives up its request", j, 0, 0)
	}
	if down := a.Downgrades && x.holds() && !x.shared; (!x.holds() || down) && x.own == 0 {
		if !x.cutP && x.want <= wantArbiter {
			if !down {
				a.lockAt(j, false, false)
			}
			if a.Shared {
				a.lockAt(j, true, down)
			}
		}
		for i := uint8(1); i <= a.Nodes; i++ {
			if a.was.linked(i, j) && a.was.node[i].own != 0 && x.want == wantNothing {
				if !down {
					a.asks(j, i, false, false)
				}
				if a.Shared {
					a.asks(j, i, true, down)
				}
			}
		}
	}
	if x.holds() {
		n := a.begin()
		a.release(n, j)
		a.done("$a gives back token $t", j, 0, x.tok)
		if !x.cutP {
			a.adopts(j)
			a.verifyHold(j)
		}
	}
	a.releases(j)
	a.asked(j)
}

func (a *action) asks(j, i uint8, shared, down bool) {
	n := a.begin()
	x := &n.node[j]
	x.want, x.wreq, x.reads, x.down = wantOwner+i, a.fresh(n, j), shared, down
	switch {
	case x.wreq == 0:
	case down:
		a.done("$a, which holds the key, asks owner $b to go on as a reader", j, i, 0)
	case shared:
		a.done("$a asks owner $b for the key, for reading", j, i, 0)
	default:
		a.done("$a asks owner $b for the key", j, i, 0)
	}
}

// withdraw gives up a request (rule 11).
func (a *action) withdraw(x *node) {
	if x.want == wantArbiter {
		x.relA |= bit(x.wreq)
	}
	x.unwant()
}

// accept makes a node begin to hold the key. One that goes on as a reader gives its exclusive hold
// back.
func (a *action) accept(n *state, j, from uint8, r row, shared bool, conf, ann uint8) {
	x := &n.node[j]
	if x.holds() {
		a.release(n, j)
	}
	x.unwant()
	x.from, x.req, x.tok, x.shared, x.conf, x.ann, x.frozen = from, r.req, r.tok, shared, conf, ann, false
	if x.at, x.rowed = 0, false; from >= fromOwner {
		x.at = r.tok.epoch()
	}
	if highest := n.maxTok; !shared && r.tok <= highest {
		a.violate(I2, "token "+r.tok.String()+" is accepted after "+highest.String())
	}
	if shared && r.tok <= n.maxExcl {
		a.violate(I2, "token "+r.tok.String()+" of a shared hold is accepted after "+n.maxExcl.String()+" of an exclusive one")
	}
	if from != fromSelf {
		a.note(n, about(spec.Accepted, r, shared))
	} else {
		e := about(spec.Took, r, shared)
		e.Session = names[j]
		a.note(n, e)
	}
	if n.maxTok = max(n.maxTok, r.tok); !shared {
		n.maxExcl = max(n.maxExcl, r.tok)
	}
}

// release makes a node give the key back, or lose it (rule 9).
func (a *action) release(n *state, j uint8) {
	x := &n.node[j]
	k := x.name(j)
	if x.seenHold() {
		a.note(n, about(spec.Dropped, row{j, x.req, x.tok}, x.shared))
	}
	mine := x.own != 0 && x.table[k].who == j && x.table[k].req == x.req
	if x.from == fromSelf && x.rowed {
		x.relA |= bit(x.req)
	}
	if x.from != fromSelf {
		if x.from == fromArbiter || x.conf > 0 || x.frozen || x.rowed || !n.linked(x.from-fromOwner, j) {
			x.relA |= bit(x.req)
		}
		x.relO |= bit(x.req)
	}
	if mine {
		x.table[k] = row{}
	}
	x.from, x.req, x.tok, x.conf, x.ann, x.frozen, x.at, x.rowed, x.shared = fromNobody, 0, 0, 0, 0, false, 0, false, false
}

// lockAt locks at the arbiter.
func (a *action) lockAt(j uint8, shared, down bool) {
	n := a.begin()
	x := &n.node[j]
	reading := ""
	if shared {
		reading = " for reading"
	}
	if down {
		reading = " for reading, and gives back what it held"
	}
	if x.want == wantArbiter && (x.reads != shared || x.down != down) {
		return
	}
	if x.want == wantNothing {
		x.reads, x.down = shared, down
		if x.want, x.wreq = wantArbiter, a.fresh(n, j); x.wreq == 0 {
			return
		}
	}
	asked := *n
	known := x.seen
	ans := a.lock(n, j, x.wreq, shared, down)
	if a.outdated(ans, known) {
		a.withdraw(x)
		refused := *n
		a.refuse(n, j, ans)
		a.done("$a is answered from older data, and tells the arbiter", j, 0, known)
		a.n = refused
		a.fault(delay, "$a is answered from older data, and does not tell the arbiter", j, 0, known)
	} else if ans.Verdict == fallback.Granted {
		r := row{j, x.wreq, makeToken(uint16(ans.Token.Epoch()), uint16(ans.Token.Seq()))}
		executed := *n
		a.accept(n, j, fromArbiter, r, shared, a.lease(), 0)
		a.saw(x, r.tok)
		a.done("$a locks the key at the arbiter"+reading+": it HOLDS it with token $t", j, 0, r.tok)
		a.n = executed
		if a.n.send(message{kind: answer + lateLock, node: j, known: known, row: r, shared: shared, down: down}) {
			a.fault(delay, "$a's lock"+reading+" is executed, with token $t, but the answer is late", j, 0, r.tok)
		}
	}
	a.n = asked
	if a.n.send(message{kind: lateLock, node: j, known: known, row: row{j, x.wreq, 0}, shared: shared, down: down}) {
		a.fault(delay, "$a's lock"+reading+" is late", j, 0, 0)
	}
}

// orphan reports whether a hold needs a row: its owner will not answer for it much longer (rule 7).
func (s *state) orphan(x *node, j uint8) bool {
	return x.from >= fromOwner && x.conf == 0 && (x.frozen || !s.linked(x.from-fromOwner, j) || x.ann <= 1)
}

func (a *action) adopts(j uint8) {
	x := &a.was.node[j]
	if !a.was.orphan(x, j) {
		return
	}
	n := a.begin()
	r := row{j, x.req, x.tok}
	a.note(n, about(spec.Adopted, r, x.shared))
	if ok := a.adopt(n, r, x.shared, x.at); ok {
		executed := *n
		n.node[j].conf = a.lease()
		a.done("$a adopts its hold, token $t", j, 0, x.tok)
		a.n = executed
		if a.n.send(message{kind: answer + lateAdopt, node: j, row: r, shared: x.shared}) {
			a.fault(delay, "$a's adopt of token $t is executed, but the answer is late", j, 0, x.tok)
		}
	} else {
		a.release(n, j)
		a.done("$a cannot adopt token $t, and ends the hold", j, 0, x.tok)
	}
	n = a.begin()
	a.note(n, about(spec.Adopted, r, x.shared))
	if n.send(message{kind: lateAdopt, node: j, row: r, epoch: x.at, shared: x.shared}) {
		a.fault(delay, "$a's adopt of token $t is late", j, 0, x.tok)
	}
}

// verifyHold: a holder looks at its row, after a failover.
func (a *action) verifyHold(j uint8) {
	x := &a.was.node[j]
	if x.conf == 0 {
		return
	}
	n := a.begin()
	st := a.verifyKnown(n, j)
	r := row{j, x.req, x.tok}
	if ours(st.Rows[x.name(j)]) == r {
		if st.Record.Grace > 0 && x.conf < a.lease() {
			n.node[j].conf = a.lease()
			a.done("$a sees that its row is still there", j, 0, 0)
		}
		return
	}
	if st.Record.Grace == 0 && a.has(ReclaimInGrace) {
		a.release(n, j)
		a.done("$a sees that its row is gone, and ends the hold of token $t", j, 0, x.tok)
		return
	}
	a.note(n, about(spec.Adopted, r, x.shared))
	looked := *n
	if a.reclaimRow(n, r, x.shared) {
		n.node[j].conf = a.lease()
		a.done("$a reclaims its row, token $t", j, 0, x.tok)
		a.n = looked
		if a.n.send(message{kind: lateReclaimRow, node: j, row: r, shared: x.shared}) {
			a.fault(delay, "$a's reclaim of token $t is late", j, 0, x.tok)
		}
	} else {
		a.release(n, j)
		a.done("$a cannot reclaim token $t, and ends the hold", j, 0, x.tok)
	}
}

// releases sends the releases of holds that were given back.
func (a *action) releases(j uint8) {
	x := &a.was.node[j]
	for r := uint8(1); r <= a.Requests; r++ {
		if x.relA&bit(r) != 0 && !x.cutP {
			n := a.begin()
			n.node[j].relA &^= bit(r)
			waiting := *n
			a.unlock(n, j, r)
			a.done("$a's release reaches the arbiter", j, 0, 0)
			a.n = waiting
			if a.n.send(message{kind: lateUnlock, node: j, row: row{j, r, 0}}) {
				a.fault(delay, "$a's release is late", j, 0, 0)
			}
		}
		if x.relO&bit(r) != 0 {
			for i := uint8(1); i <= a.Nodes; i++ {
				for k, t := range a.was.node[i].table {
					if t.who == j && t.req == r && (i == j || a.was.linked(i, j)) {
						n := a.begin()
						n.node[i].table[k] = row{}
						n.node[j].relO &^= bit(r)
						a.done("$a's release reaches owner $b", j, i, 0)
					}
				}
			}
		}
	}
}

// asked: the arbiter asks a row's node, which may not have the hold (rule 13).
func (a *action) asked(j uint8) {
	a.askedName(j, a.was.p.rows[0])
	a.askedName(j, a.was.p.rows[j])
}

func (a *action) askedName(j uint8, r row) {
	x := &a.was.node[j]
	switch {
	case r.who != j || x.cutP || !a.has(Doubt):
	case x.holds() && x.req == r.req:
	case x.wreq == r.req && (x.want == wantArbiter || x.want >= wantOwner && a.has(PendingIsHad)):
	case x.relA&bit(r.req) != 0:
	default:
		n := a.begin()
		n.node[j].relA |= bit(r.req)
		a.done("$a is asked about token $t, which it does not know: it releases it", j, 0, r.tok)
	}
}
