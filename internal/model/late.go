package model

import "github.com/holdfast-go/holdfast/fallback"

// late makes the effects of late messages: a request is executed, and its answer arrives or is
// lost; or an answer arrives.
func (a *action) late() {
	for k := range a.was.lates {
		n := a.begin()
		x := n.take(k)
		if x.kind > answer {
			if n.node[x.node].life == alive {
				a.answered(n, x, true)
				a.done("a late answer reaches $a", x.node, 0, 0)
			}
			continue
		}
		ok := a.execute(n, &x)
		executed := *n
		a.done(lateText[x.kind]+", and the answer is lost", x.node, 0, 0)
		a.n = executed
		if n.node[x.node].life == alive {
			a.answered(n, x, ok)
			a.done(lateText[x.kind]+", and answered", x.node, 0, 0)
		}
	}
}

var lateText = [...]string{
	lateAcquire: "$a's late acquire is executed", lateDemote: "$a's late demote is executed",
	lateUnserved: "$a's late demote-unserved is executed", lateLock: "$a's late lock is executed",
	lateAdopt: "$a's late adopt is executed", lateUnlock: "$a's late release is executed",
	lateReclaimRow: "$a's late reclaim of its row is executed", lateReclaimOwner: "$a's late reclaim of its ownership is executed",
}

// execute is the arbiter's side. The message becomes the answer.
func (a *action) execute(n *state, x *message) (ok bool) {
	switch x.kind {
	case lateAcquire:
		got := a.Model.acquire(n, x.node, x.epoch, x.dead)
		x.epoch, x.rows = uint16(got.Record.Epoch), rowsOf(got.Rows)
		return got.Verdict == fallback.Granted
	case lateDemote:
		return a.demote(n, x.node, x.epoch, x.rows).Verdict == fallback.Granted
	case lateUnserved:
		return a.demoteUnserved(n, x.node, x.epoch).Verdict == fallback.Granted
	case lateLock:
		ans := a.lock(n, x.node, x.row.req, x.shared, x.down)
		x.row.tok = makeToken(uint16(ans.Token.Epoch()), uint16(ans.Token.Seq()))
		return ans.Verdict == fallback.Granted
	case lateAdopt:
		return a.adopt(n, x.row, x.shared, x.epoch)
	case lateReclaimRow:
		return a.reclaimRow(n, x.row, x.shared)
	case lateReclaimOwner:
		return a.reclaimOwner(n, x.node, x.epoch)
	default:
		a.unlock(n, x.node, x.row.req)
		return true
	}
}

// answered is the node's side.
func (a *action) answered(n *state, m message, ok bool) {
	x := &n.node[m.node]
	has := x.holds() && x.req == m.row.req && m.row.who == m.node
	left := a.since(m.age)
	kind := m.kind
	if kind > answer {
		kind -= answer
	}
	switch kind {
	case lateAcquire:
		if ok {
			got := fallback.Acquisition{Record: fallback.Record{Epoch: uint32(m.epoch)}}
			got.Rows = make(map[string]fallback.Row)
			m.rows.each(func(name string, r fallback.Row) { got.Rows[name] = r })
			a.serve(n, m.node, got, m.age, m.known)
		}
	case lateDemote:
		if ok {
			a.demoted(n, m.node, m.rows, m.age)
		}
	case lateLock:
		if !ok {
			return
		}
		if a.Rewinds > 0 && a.has(Witness) && m.row.tok <= m.known {
			left = 0 // it is of older data, and refused
		}
		if x.want == wantArbiter && x.wreq == m.row.req && x.reads == m.shared && x.down == m.down && left > 0 && x.session > 0 && x.takes() && x.own == 0 {
			a.accept(n, m.node, fromArbiter, m.row, m.shared, left, 0)
			a.saw(x, m.row.tok)
			return
		}
		if x.want == wantArbiter && x.wreq == m.row.req { // too late: this request is over
			x.unwant()
		}
		if !has {
			x.relA |= bit(m.row.req)
		}
	case lateAdopt, lateReclaimRow:
		switch {
		case has && ok:
			x.conf = max(x.conf, left)
		case has:
			a.release(n, m.node)
		case ok:
			x.relA |= bit(m.row.req)
		}
	case lateReclaimOwner:
		if x.own == m.epoch && ok {
			x.slot = max(x.slot, left)
		} else if x.own == m.epoch {
			a.freeze(n, m.node)
		}
	}
}
