package model

// stream makes the actions between an owner and another node.
func (a *action) stream(i, j uint8) {
	if i == j {
		return
	}
	if a.was.node[j].life == alive && a.was.streams[i][j].n > 0 {
		a.deliver(i, j)
	}
	if i < j && a.was.node[j].life == alive && !a.was.linked(i, j) {
		n := a.begin()
		n.down[i] &^= bit(j)
		n.down[j] &^= bit(i)
		a.stated(n, i, j)
		a.stated(n, j, i)
		a.done("$a and $b are connected again, and state what they hold", i, j, 0)
	}
}

// deliver gives j the first frame on the stream from owner i.
func (a *action) deliver(i, j uint8) {
	n := a.begin()
	x := &n.node[j]
	f := n.pop(i, j)
	switch f.kind {
	case frameGrant:
		switch {
		case x.holds() && x.req == f.req:
			a.done("$a gets a grant again", j, 0, 0)
		case x.takes() && x.own == 0 && x.want == wantOwner+i && x.wreq == f.req && f.left > 0 && x.session > 0:
			a.accept(n, j, fromOwner+i, row{j, f.req, f.tok}, x.reads, 0, f.left)
			a.done("$a gets the grant of owner $b: it HOLDS the key with token $t", j, i, f.tok)
		default:
			x.relO |= bit(f.req)
			if x.want == wantOwner+i && x.wreq == f.req {
				x.unwant()
			}
			a.done("$a gets the grant of token $t, and does not want it", j, i, f.tok)
		}
	case frameVouch:
		if x.holds() && x.own == 0 && x.req == f.req && f.left > 0 && x.session > 0 {
			x.from, x.at, x.ann, x.frozen, x.conf, x.rowed = fromOwner+i, f.tok.epoch(), f.left, false, 0, true
			a.done("$a's hold rests on owner $b, at epoch $t", j, i, f.tok)
		} else {
			a.done("$a is told of a hold that it has not got", j, i, f.tok)
		}
	case frameFrozen:
		if x.from == fromOwner+i && (x.at == f.tok.epoch() && a.has(FrozenVouched) || x.tok.epoch() == f.tok.epoch()) {
			x.frozen = true
		}
		a.done("$a hears that $b does not answer for epoch $t any longer", j, i, f.tok)
	case framePong:
		if x.from == fromOwner+i && !x.frozen {
			x.ann = max(x.ann, f.left)
		}
		a.done("$a gets a late answer of $b to a ping", j, i, 0)
	}
}

// stated: owner i hears of the holds that j has from it (rule 12).
func (a *action) stated(n *state, i, j uint8) {
	x, y := &n.node[i], &n.node[j]
	for k, r := range x.table {
		if x.own == 0 || r.who != j || r.tok.epoch() != x.own && a.has(ImportedStay) {
			continue
		}
		if y.from != fromOwner+i || y.req != r.req {
			x.table[k] = row{}
		}
	}
}

// cutOff makes both ends react when their stream is down.
func (a *action) cutOff(n *state, i, j uint8) {
	if a.has(StreamGenerations) {
		n.streams[i][j], n.streams[j][i] = stream{}, stream{}
	}
	for _, e := range [][2]uint8{{i, j}, {j, i}} {
		y := &n.node[e[1]]
		if y.from == fromOwner+e[0] {
			y.frozen = true
		}
		if y.want == wantOwner+e[0] && a.has(StreamGenerations) {
			y.unwant()
		}
	}
}
