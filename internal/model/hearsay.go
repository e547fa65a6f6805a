package model

// freed: an owner hears that a hold in its table was released at the arbiter. Every process that
// may publish can say so, at any time (rule 9).
func (a *action) freed(i uint8) {
	for k, r := range a.was.node[i].table {
		if r.who != none && r.who != i {
			a.freedName(i, uint8(k), r)
		}
	}
}

func (a *action) freedName(i, k uint8, r row) {
	x := &a.was.node[i]
	n := a.begin()
	if a.has(FreedRead) {
		if x.cutP {
			return
		}
		st := a.verify(n)
		there := ours(st.Rows[k])
		switch {
		case st.Record.Owner != names[i] || st.Record.Epoch != uint32(x.own) || st.Record.Grace > 0:
			return
		case there.who == r.who && there.req == r.req:
			return
		case r.tok.epoch() == x.own && a.has(FreedGranted), x.spoke&bit(k) != 0 && a.has(FreedVouched):
			return // the holder's node is asked: see askHolder
		}
	}
	n.node[i].table[k] = row{}
	a.done("owner $a hears that $b has given the key back: it is free", i, r.who, 0)
}

// freedLate: a node that was the owner a moment ago hears the same, of a row that it may have
// written again.
func (a *action) freedLate(i uint8) {
	for _, r := range a.was.p.rows {
		if a.has(FreedAsked) || a.was.node[i].cutP || r.who == none || r.who == i {
			continue
		}
		n := a.begin()
		a.unlock(n, r.who, r.req)
		a.done("$a, which was the owner, hears that $b has given the key back: it removes the row", i, r.who, 0)
	}
}
