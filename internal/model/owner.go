package model

import (
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/model/spec"
)

// owner makes a node's actions on a partition: take it, serve it, give it back.
func (a *action) owner(i uint8) {
	x := &a.was.node[i]
	if x.own == 0 {
		if !x.cutP {
			a.look(i)
			a.acquire(i)
			a.unserved(i)
		}
		a.freedLate(i)
		return
	}
	a.grants(i)
	a.vouch(i)
	a.freed(i)
	a.bury(i)
	a.askHolder(i)
	if !x.cutP {
		a.giveBack(i)
		a.verifyOwner(i)
	}
	if !a.inTime(x) {
		n := a.begin()
		if a.freeze(n, i) {
			a.done("$a's timer ends its ownership, which has lapsed", i, 0, 0)
		}
	}
}

// inTime reports whether a node's ownership is good.
func (m *Model) inTime(x *node) bool { return m.ownedUntil(x) > 0 }

func (m *Model) ownedUntil(x *node) uint8 {
	if !m.has(SlotDeadline) {
		return x.session
	}
	return min(x.session, x.slot)
}

// since returns the rest of a lease whose acknowledged request was sent so many ticks ago, 0:
// nothing is left.
func (m *Model) since(age uint8) uint8 {
	if !m.has(FromSend) {
		return m.lease()
	}
	return m.lease() - min(age, m.lease())
}

// look finds out about another server.
func (a *action) look(i uint8) {
	if a.was.p.server != byThis {
		a.load(a.begin())
		a.done("$a looks at the partition's record", i, 0, 0)
	}
}

// acquire is with a look at the record, or without: then another node, or a read of many records,
// has told of its owner and epoch. If the record has another one by now, Acquire is refused.
func (a *action) acquire(i uint8) {
	a.acquireAs(i, func(n *state) fallback.Record { return a.witness(n, i, Witness) })
	if a.Rewinds == 0 {
		return // the looks would be the same
	}
	a.acquireAs(i, func(n *state) fallback.Record {
		r := a.load(n)
		told := record{epoch: uint16(r.Epoch), owner: nodeOf(r.Owner)} // and not how many tokens it has given out
		if a.has(WitnessAbove) && told.behind(n.node[i].seen) {
			r = a.witness(n, i, Witness)
		}
		return r
	})
}

func (a *action) acquireAs(i uint8, look func(*state) fallback.Record) {
	n := a.begin()
	known := a.was.node[i].seen
	r := look(n)
	owner := nodeOf(r.Owner)
	if r.Grace > 0 || owner == i || owner != none && !a.buried(n, i, owner, DeadBeforeEvictOwner) {
		return
	}
	epoch := uint16(r.Epoch)
	looked := *n
	got := a.Model.acquire(n, i, epoch, owner)
	if got.Verdict != fallback.Granted {
		return
	}
	executed := *n
	a.serve(n, i, got, 0, known)
	a.done("$a acquires the partition, at epoch $t", i, 0, makeToken(uint16(got.Record.Epoch), 0))
	a.n = executed
	if a.n.send(message{kind: answer + lateAcquire, node: i, known: known, epoch: uint16(got.Record.Epoch), rows: rowsOf(got.Rows)}) {
		a.fault(delay, "$a's acquire is executed, at epoch $t, but the answer is late", i, 0, makeToken(uint16(got.Record.Epoch), 0))
	}
	a.n = looked
	if a.n.send(message{kind: lateAcquire, node: i, known: known, epoch: epoch, dead: owner}) {
		a.fault(delay, "$a's acquire, expecting epoch $t, is late", i, 0, makeToken(epoch, 0))
	}
}

// buried reports whether i may evict a session.
func (a *action) buried(n *state, i, who uint8, g Guard) bool {
	if !a.has(g) {
		return who != i
	}
	return a.has(EvictDead) && !n.node[i].cutS && a.isDead(n, i, who)
}

// serve handles the answer to an acquire that was sent so many ticks ago, when the node had seen a
// token.
func (a *action) serve(n *state, i uint8, got fallback.Acquisition, age uint8, known token) {
	x := &n.node[i]
	epoch, all := uint16(got.Record.Epoch), rowsOf(got.Rows)
	r := all[x.name(i)]
	left := a.since(age)
	if x.own != 0 || left == 0 || x.session == 0 || epoch <= x.never && a.has(UnservedForswears) {
		return
	}
	if a.Rewinds > 0 && epoch <= known.epoch() && a.has(Witness) {
		return // it is of older data, and unserved
	}
	a.saw(x, makeToken(epoch, 0))
	a.note(n, of(spec.Served, i, epoch))
	if x.holds() && (r.who != i || r.req != x.req) {
		a.release(n, i)
	}
	if x.holds() { // it rests on the ownership from now on, and its row is not looked after (rule 17)
		x.from, x.at, x.conf, x.ann, x.frozen, x.rowed = fromSelf, epoch, 0, 0, false, true
	}
	x.own, x.seq, x.slot, x.table, x.spoke, x.quiet = epoch, 0, left, all, 0, 0
	if !a.has(ImportAll) {
		for k, first := 0, true; k < len(all); k++ {
			if all[k].who != none && !first {
				x.table[k] = row{}
			}
			first = first && all[k].who == none
		}
	}
	for k, r := range x.table {
		if r.who == i && (!x.holds() || r.req != x.req) {
			if x.want != wantNothing && x.wreq == r.req { // granted, as the rows say before the answer has come
				a.accept(n, i, fromArbiter, r, k != 0, left, 0)
			} else if a.has(Doubt) {
				x.relA |= bit(r.req)
				x.table[k] = row{}
			}
		}
	}
	a.withdraw(x)
}

// grants makes an owner's grants.
func (a *action) grants(i uint8) {
	x := &a.was.node[i]
	if a.has(ClockAtGrant) && !a.inTime(x) {
		return
	}
	a.grantsMode(i, false)
	if a.Shared {
		a.grantsMode(i, true)
	}
}

// letsIn reports whether an owner grants j a hold of a name. A downgraded one stands beside j's own
// exclusive one.
func (a *action) letsIn(t rowset, j, k uint8, down bool) bool {
	if down && (t[0].who == j || !a.has(Downgrades)) {
		t[0] = row{}
	}
	return a.beside(t, k)
}

// beside reports whether an owner grants a hold of a name beside those in its table.
func (a *action) beside(t rowset, k uint8) bool {
	for i := range t {
		if uint8(i) != k && (i == 0 && !a.has(GrantLooksExclusive) || k == 0 && !a.has(GrantLooksShared)) {
			t[i] = row{}
		}
	}
	return t.beside(k)
}

func (a *action) grantsMode(i uint8, shared bool) {
	x := &a.was.node[i]
	reading := ""
	if shared {
		reading = " for reading"
	}
	left := a.ownedUntil(x)
	tok := makeToken(x.own, x.seq+1)
	for j := uint8(1); j <= a.Nodes; j++ {
		y, k := &a.was.node[j], name(j, shared)
		down := shared && y.down
		if j == i {
			down = a.Downgrades && shared && y.holds() && !y.shared
		}
		if !a.letsIn(x.table, j, k, down) {
			continue
		}
		switch {
		case j == i && y.want == wantNothing && (!y.holds() || down):
			n := a.begin()
			req := a.fresh(n, i)
			if req == 0 {
				continue
			}
			z := &n.node[i]
			z.seq++
			z.table[k], z.spoke = row{i, req, tok}, z.spoke&^bit(k)
			a.accept(n, i, fromSelf, z.table[k], shared, 0, 0)
			a.done("$a grants itself the key"+reading+": it HOLDS it with token $t", i, 0, tok)
		case j != i && y.want == wantOwner+i && y.reads == shared && a.was.linked(i, j) && (left > 0 || !a.has(ClockAtGrant)):
			n := a.begin()
			z := &n.node[i]
			z.seq++
			z.table[k], z.spoke = row{j, y.wreq, tok}, z.spoke&^bit(k)
			granted := about(spec.Granted, z.table[k], shared)
			granted.Session = names[i]
			a.note(n, granted)
			if n.push(i, j, frame{kind: frameGrant, req: y.wreq, left: max(left, 1), tok: tok}) {
				a.done("owner $a grants the key to $b"+reading+", with token $t; the grant is on its way", i, j, tok)
			}
		}
	}
}

// vouch: an owner answers for the hold in its table, if that does not rest on it (rule 17).
func (a *action) vouch(i uint8) {
	x := &a.was.node[i]
	left := a.ownedUntil(x)
	for j := uint8(1); j <= a.Nodes; j++ {
		y := &a.was.node[j]
		if j == i || left == 0 || !a.was.linked(i, j) || !y.holds() || y.from == fromOwner+i && y.at == x.own && !y.frozen {
			continue
		}
		k := y.name(j)
		if a.has(VouchesForTable) && (x.table[k].who != j || x.table[k].req != y.req) {
			continue
		}
		n := a.begin()
		if n.node[i].spoke &^= bit(k); x.table[k].tok.epoch() != x.own {
			n.node[i].spoke |= bit(k)
		}
		if n.push(i, j, frame{kind: frameVouch, req: y.req, left: left, tok: makeToken(x.own, 0)}) {
			a.done("owner $a answers for $b's hold at epoch $t; that is on its way", i, j, makeToken(x.own, 0))
		}
	}
}

// freeze ends a service (rule 5). It reports false if there is no room to tell the holder.
func (a *action) freeze(n *state, i uint8) bool {
	x := &n.node[i]
	left := a.ownedUntil(x)
	a.note(n, of(spec.Frozen, i, x.own))
	if r := x.table[x.name(i)]; r.who == i && x.from == fromSelf {
		if !x.rowed {
			e := about(spec.Kept, row{i, x.req, x.tok}, x.shared)
			e.Session, e.Epoch = names[i], uint32(x.own)
			a.note(n, e)
		}
		x.from, x.at, x.frozen, x.ann, x.conf = fromOwner+i, x.own, true, left, 0
		if left == 0 {
			a.release(n, i)
		}
	}
	told := bit(i)
	for _, r := range x.table {
		if r.who != none && told&bit(r.who) == 0 && n.linked(i, r.who) && a.has(FrozenTold) {
			told |= bit(r.who)
			if !n.push(i, r.who, frame{kind: frameFrozen, tok: makeToken(x.own, 0)}) {
				return false
			}
		}
	}
	x.never, x.quiet = max(x.never, x.own), left
	x.own, x.seq, x.slot, x.table, x.spoke = 0, 0, 0, rowset{}, 0
	return true
}

// giveBack freezes and demotes.
func (a *action) giveBack(i uint8) {
	x := &a.was.node[i]
	epoch, holds := x.own, x.table
	e := makeToken(epoch, 0)
	n := a.begin()
	if !a.freeze(n, i) {
		return
	}
	for k, r := range holds {
		if r.who == i && !n.node[i].holds() && a.has(Doubt) {
			holds[k] = row{}
		}
	}
	sent := of(spec.Demoted, i, epoch)
	sent.Rows = listed(holds)
	a.note(n, sent)
	frozen := *n
	d := a.demote(n, i, epoch, holds)
	executed := *n
	if d.Verdict == fallback.Granted {
		a.demoted(n, i, holds, 0)
		a.done("$a freezes epoch $t, and demotes it", i, 0, e)
		a.n = executed
		a.fault(delay, "$a freezes epoch $t, and demotes it, but the answer is lost", i, 0, e)
	}
	a.n = frozen
	if !a.has(StopBeforeDemote) {
		a.n = *a.was
		a.note(n, sent)
	}
	if a.n.send(message{kind: lateDemote, node: i, epoch: epoch, rows: holds}) {
		a.fault(delay, "$a sends demote of epoch $t, which is late", i, 0, e)
	}
}

// demoted handles the answer to demote.
func (a *action) demoted(n *state, i uint8, all rowset, age uint8) {
	x := &n.node[i]
	if !a.has(StopBeforeDemote) && x.own != 0 {
		a.freeze(n, i)
	}
	for _, r := range all {
		switch {
		case r.who != i:
		case x.holds() && x.req == r.req && x.tok == r.tok:
			x.conf = max(x.conf, a.since(age))
		case a.has(Doubt):
			x.relA |= bit(r.req)
		}
	}
}

// unserved: a record that names me and that I do not serve (rule 6).
func (a *action) unserved(i uint8) {
	n := a.begin()
	r := a.witness(n, i, WitnessNamed)
	if r.Owner != names[i] || r.Grace > 0 || !a.has(Unserved) || n.node[i].quiet > 0 && a.has(UnservedWaits) {
		return
	}
	epoch := uint16(r.Epoch)
	n.node[i].never = max(n.node[i].never, epoch)
	a.note(n, of(spec.Forsworn, i, epoch))
	looked := *n
	a.demoteUnserved(n, i, epoch)
	a.done("$a finds itself named as owner at epoch $t, which it does not serve, and demotes that", i, 0, makeToken(epoch, 0))
	a.n = looked
	if a.n.send(message{kind: lateUnserved, node: i, epoch: epoch}) {
		a.fault(delay, "$a's demote-unserved of epoch $t is late", i, 0, makeToken(epoch, 0))
	}
}

// bury ends the hold of a dead session in an owner's table.
func (a *action) bury(i uint8) {
	for k, r := range a.was.node[i].table {
		n := a.begin()
		x := &n.node[i]
		if r.who == none || r.who == i || !a.buried(n, i, r.who, DeadBeforeEvictHold) {
			continue
		}
		if r.tok.epoch() != x.own {
			if x.cutP {
				continue
			}
			a.unlock(n, r.who, r.req)
		}
		x.table[k] = row{}
		a.done("owner $a frees the key of session $b, that it takes for dead", i, r.who, 0)
	}
}

// askHolder: an owner asks the holder's node about a hold that is in the way (rule 13).
func (a *action) askHolder(i uint8) {
	for k, r := range a.was.node[i].table {
		if r.who == none || !a.has(Doubt) || r.who != i && (!a.was.linked(i, r.who) || a.was.streams[i][r.who].n > 0) {
			continue
		}
		y := &a.was.node[r.who]
		if y.holds() && y.req == r.req || y.want != wantNothing && y.wreq == r.req {
			continue
		}
		n := a.begin()
		n.node[i].table[k] = row{}
		n.node[r.who].relA |= bit(r.req)
		a.done("owner $a asks $b, which has not got the key: it is free", i, r.who, 0)
	}
}

// verifyOwner: an owner looks at its record, after a failover.
func (a *action) verifyOwner(i uint8) {
	n := a.begin()
	x := &n.node[i]
	st := a.verifyKnown(n, i)
	if st.Record.Owner == names[i] && st.Record.Epoch == uint32(x.own) {
		if st.Record.Grace > 0 && x.slot < a.lease() {
			x.slot = a.lease()
			a.done("$a sees that the record still names it", i, 0, 0)
		}
		return
	}
	e := makeToken(x.own, 0)
	if st.Record.Grace == 0 && a.has(ReclaimInGrace) {
		if a.freeze(n, i) {
			a.done("$a sees that epoch $t is not its own any more, and stops", i, 0, e)
		}
		return
	}
	a.note(n, of(spec.Reclaimed, i, x.own))
	looked := *n
	if a.reclaimOwner(n, i, x.own) {
		x.slot = a.lease()
		a.done("$a reclaims its ownership, of epoch $t", i, 0, e)
		a.n = looked
		if a.n.send(message{kind: lateReclaimOwner, node: i, epoch: x.own}) {
			a.fault(delay, "$a's reclaim of epoch $t is late", i, 0, e)
		}
	} else if a.freeze(n, i) {
		a.done("$a cannot reclaim epoch $t, and stops", i, 0, e)
	}
}
