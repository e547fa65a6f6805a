package model

// freed: an owner hears that a hold in its table was released at the arbiter. Every process that may publish can say so, at
// any time (rule 9).
func (a *action) freed(i uint8) {
	x := &a.was.node[i]
	r := x.table
	if r.who == none || r.who == i {
		return
	}
	n := a.begin()
	if a.has(FreedRead) {
		if x.cutP {
			return
		}
		st := a.verify(n)
		there := ours(st.Rows[0])
		switch {
		case st.Record.Owner != names[i] || st.Record.Epoch != uint32(x.own) || st.Record.Grace > 0:
			return
		case there.who == r.who && there.req == r.req:
			return
		case r.tok.epoch() == x.own && a.has(FreedGranted), x.spoke && a.has(FreedVouched):
			return // the holder's node is asked: see askHolder
		}
	}
	n.node[i].table = row{}
	a.done("owner $a hears that $b has given the key back: it is free", i, r.who, 0)
}

// freedLate: a node that was the owner a moment ago hears the same, of a row that it may have written again.
func (a *action) freedLate(i uint8) {
	x, r := &a.was.node[i], a.was.p.row
	if a.has(FreedAsked) || x.cutP || r.who == none || r.who == i {
		return
	}
	n := a.begin()
	a.unlock(n, r.who, r.req)
	a.done("$a, which was the owner, hears that $b has given the key back: it removes the row", i, r.who, 0)
}
