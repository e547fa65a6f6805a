package model

import "github.com/holdfast-go/holdfast/internal/model/spec"

// tick is the passing of time. Everything is nearer by a tick, and lapsed things end by their
// node's own clock. All nodes that reach the arbiter renew, verify, and ping. So without faults
// nothing ever lapses; R is one tick.
func (a *action) tick() {
	n := a.begin()
	n.clock += epochsPerTick
	n.pass(a.Model)
	for i := uint8(1); i <= a.Nodes; i++ {
		if !a.lapse(n, i) {
			return // no room on a stream: something else has to come first
		}
	}
	for i := uint8(1); i <= a.Nodes; i++ {
		if n.node[i].life == alive && !a.refresh(n, i) {
			return
		}
	}
	for i := uint8(1); i <= a.Nodes; i++ {
		for j := uint8(1); j <= a.Nodes; j++ {
			a.ping(n, i, j)
		}
	}
	a.done("TICK", 0, 0, 0)
}

func less(x *uint8) {
	if *x > 0 {
		*x--
	}
}

// sooner is less for the arbiter's times, where 1 is now.
func sooner(x *uint8) {
	if *x > 1 {
		*x--
	}
}

func (s *state) pass(m *Model) {
	s.arbiterPasses()
	for i := range s.node {
		x := &s.node[i]
		for _, t := range []*uint8{&x.session, &x.look, &x.section, &x.slot, &x.quiet, &x.conf, &x.ann} {
			less(t)
		}
		for j := range s.streams[i] {
			for k := range s.streams[i][j].n {
				if m.has(FromSend) { // else an announced deadline counts from its arrival
					less(&s.streams[i][j].f[k].left)
				}
			}
		}
	}
	for k := range s.lates {
		s.late[k].age = min(s.late[k].age+1, m.lease())
	}
}

func (s *state) arbiterPasses() {
	sooner(&s.p.grace)
	sooner(&s.replica.grace)
	sooner(&s.sGrace)
	for i := range s.expiry {
		sooner(&s.expiry[i])
		sooner(&s.backup.expiry[i])
		sooner(&s.node[i].told)
	}
}

// lapse ends a node's session, ownership and hold if they have lapsed.
func (a *action) lapse(n *state, i uint8) bool {
	x := &n.node[i]
	if x.life != alive {
		return true
	}
	if x.session == 0 && a.has(LocalDeath) {
		a.die(n, i)
		return true
	}
	if x.own != 0 && !a.inTime(x) && a.has(ClockAtGrant) && !a.freeze(n, i) {
		return false
	}
	if !a.has(LookInTime) {
		if x.look > 0 {
			return true
		}
		x.look = a.lease() // whatever begins until then, and ends before
	}
	if x.holds() && a.lapsed(x) {
		a.release(n, i)
	}
	return true
}

// lapsed reports whether the deadline of a hold has passed (rule 7).
func (a *action) lapsed(x *node) bool {
	switch {
	case x.from == fromSelf:
		return !a.inTime(x)
	case x.conf > 0:
		return false
	case x.from == fromArbiter:
		return true
	}
	return x.ann == 0 && a.has(Announced)
}

// refresh renews and verifies. It reports false if there is no room on a stream.
func (a *action) refresh(n *state, i uint8) bool {
	x := &n.node[i]
	if !x.cutS {
		if !a.renew(n, i) {
			a.die(n, i)
			return true
		}
		x.session = a.lease()
	}
	if x.cutP || x.own == 0 && x.conf == 0 && n.p.server == byThis {
		return true
	}
	st := a.verifyKnown(n, i)
	if x.own != 0 {
		switch {
		case st.Record.Owner == names[i] && st.Record.Epoch == uint32(x.own):
			x.slot = a.lease()
		case st.Record.Grace > 0: // to be reclaimed
		case !a.freeze(n, i):
			return false
		}
	}
	if x.conf > 0 {
		switch {
		case ours(st.Rows[x.name(i)]) == row{i, x.req, x.tok}:
			x.conf = a.lease()
		case st.Record.Grace == 0:
			a.release(n, i)
		}
	}
	return true
}

// ping: j asks owner i for how long it answers for its grants. A node answers for all it serves,
// and does not know which asker's question is about which partition.
func (a *action) ping(n *state, i, j uint8) {
	y := &n.node[j]
	if y.from == fromOwner+i && n.linked(i, j) && n.streams[i][j].n == 0 && !y.frozen {
		y.ann = max(y.ann, n.answers(a.Model, i))
	}
}

func (s *state) answers(m *Model, i uint8) uint8 {
	if x := &s.node[i]; x.own != 0 {
		return m.ownedUntil(x)
	}
	return s.node[i].session
}

// die ends a session: nothing of the process is left but messages.
func (a *action) die(n *state, i uint8) {
	for j := uint8(1); j <= a.Nodes; j++ {
		if j != i {
			n.streams[i][j], n.streams[j][i] = stream{}, stream{}
			a.cutOff(n, i, j)
			y := &n.node[j]
			if y.want == wantOwner+i {
				y.unwant()
			}
			n.down[i] &^= bit(j)
			n.down[j] &^= bit(i)
		}
	}
	a.note(n, of(spec.Over, i, 0))
	n.node[i] = node{life: dead, seen: n.node[i].seen, shared: n.node[i].shared && n.node[i].from == fromSelf}
}

// reopen: a process opens a session. It takes the number of one that nothing names any more.
func (a *action) reopen(i uint8) {
	n := a.begin()
	gone := a.was.node[i].section == 0 && n.p.owner != i && n.replica.owner != i && n.backup.p.owner != i
	n.rows(func(r *row) { gone = gone && r.who != i })
	for j := range n.node {
		gone = gone && n.node[j].from != fromOwner+i
	}
	for _, x := range n.late[:n.lates] {
		gone = gone && x.node != i && x.dead != i
	}
	if gone {
		n.node[i] = node{session: a.lease(), seen: a.was.node[i].seen}
		a.open(n, i)
		a.note(n, of(spec.Opened, i, 0))
		a.done("$a opens a new session", i, 0, 0)
	}
}
