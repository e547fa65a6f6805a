package model

// check looks for violations in a state.
func (m *Model) check(s *state) {
	holders, exclusive := 0, 0
	holds := func(x *node) {
		if holders++; !x.shared {
			exclusive++
		}
	}
	for j := uint8(1); j <= m.Nodes; j++ {
		x := &s.node[j]
		if x.life != alive {
			if x.section > 0 {
				holds(x)
			}
			continue
		}
		if x.holds() && (x.session > 0 || m.has(LocalDeath)) {
			holds(x)
			if s.p.server == byThis && s.p.grace == 0 && !s.old() && !s.known(j) {
				m.violate(I5, "no table and no row has the hold of "+names[j])
			}
		}
		for i := j + 1; i <= m.Nodes; i++ {
			if y := &s.node[i]; x.own != 0 && y.life == alive && y.own == x.own {
				m.violate(I6, "two nodes serve the same epoch")
			}
		}
	}
	if holders > 1 && exclusive > 0 {
		m.violate(I1, "two nodes hold the key")
	}
}

// known reports whether the next grantor will find the hold of j.
func (s *state) known(j uint8) bool {
	x := &s.node[j]
	here := func(t rowset) bool { return t[x.name(j)].who == j && t[x.name(j)].req == x.req }
	if here(s.p.rows) {
		return true
	}
	for i := range s.node {
		if y := &s.node[i]; y.own != 0 && y.own == x.grantor() {
			return here(y.table) // it is its grantor
		}
	}
	if s.p.epoch == x.grantor() {
		return true // no node takes the partition before the hold has been adopted or has lapsed
	}
	for _, m := range s.late[:s.lates] {
		if m.kind == answer+lateAcquire && here(m.rows) {
			return true
		}
	}
	return s.p.owner != none && here(s.node[s.p.owner].table)
}

// anybody reports whether a node lives.
func (s *state) anybody(nodes uint8) bool {
	for i := uint8(1); i <= nodes; i++ {
		if s.node[i].life == alive {
			return true
		}
	}
	return false
}
