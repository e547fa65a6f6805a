package model

import (
	"bytes"
	"slices"
)

// base is the clock of a canonical state. Nothing but the order of earlier epochs matters, so all
// fit below it.
const base = 64

// canonical gives the same names to states that differ by name only: states that behave alike
// become one. So runs without end have finitely many states, although epochs, tokens and requests
// are never used again.
func (m *Model) canonical(s *state) {
	m.forget(s)
	m.renumber(s)
	s.reorder()
}

// reorder is the rest of the work once the nodes have other numbers.
func (s *state) reorder() {
	s.renameRequests()
	if s.lates > 1 {
		slices.SortFunc(s.late[:s.lates], func(a, b message) int {
			return bytes.Compare([]byte{a.kind, a.node, a.age, a.dead, byte(a.epoch), a.row.who, a.row.req, byte(a.row.tok >> 16), byte(a.row.tok), name(1, a.shared), name(1, a.down)}, []byte{b.kind, b.node, b.age, b.dead, byte(b.epoch), b.row.who, b.row.req, byte(b.row.tok >> 16), byte(b.row.tok), name(1, b.shared), name(1, b.down)})
		})
	}
}

func (m *Model) rises() bool {
	return m.Rewinds == 0 && m.has(Clock) && m.has(Identity) && m.has(GraceTakesNothing)
}

// forget drops data without any further effect.
func (m *Model) forget(s *state) {
	if !s.copied {
		s.replica = record{}
	}
	m.forgetSeen(s)
	for j := uint8(1); j <= m.Nodes; j++ {
		x := &s.node[j]
		for r := uint8(1); r <= 7; r++ {
			if x.relO&bit(r) != 0 && !s.inTable(j, r) {
				x.relO &^= bit(r)
			}
			if x.relA&bit(r) != 0 && !s.around(j, r) && m.has(ExactUnlock) {
				x.relA &^= bit(r)
			}
		}
		// An epoch that is over at the arbiter is over here.
		if s.settled() && s.p.owner != j && !s.hasLate(j) {
			x.quiet = 0
			if x.never <= s.p.epoch {
				x.never = 0
			}
		}
		if x.conf >= x.ann {
			x.ann = 0
		}
		for i := uint8(1); i <= m.Nodes; i++ {
			s.forgetGrants(i, j)
			s.forgetFrozen(i, j)
		}
	}
	if !s.expected(s.p.from) {
		s.p.from = 0
	}
	if !s.expected(s.backup.p.from) {
		s.backup.p.from = 0
	}
	if m.rises() && s.nothingBelow(s.maxTok) {
		s.maxTok = 0
	}
	if !m.Shared || m.rises() && s.nothingBelow(s.maxExcl) {
		s.maxExcl = 0
	}
	for i := range s.node {
		for k := range s.node[i].table {
			if s.node[i].table[k].who == none {
				s.node[i].spoke &^= bit(uint8(k))
			}
		}
	}
	for i := uint8(0); i < s.lates; {
		if m.spent(s, &s.late[i]) {
			s.take(i)
			continue
		}
		i++
	}
}

// forgetGrants makes all grants alike that j will not accept.
func (s *state) forgetGrants(i, j uint8) {
	q := &s.streams[i][j]
	x := &s.node[j]
	for k := range q.f[:q.n] {
		f := &q.f[k]
		if f.kind == frameGrant && !(x.want == wantOwner+i && x.wreq == f.req && f.left > 0) {
			f.tok, f.left = 0, 0
		}
	}
}

// forgetFrozen drops frames that would tell j nothing.
func (s *state) forgetFrozen(i, j uint8) {
	q := &s.streams[i][j]
	x := &s.node[j]
	for k := uint8(0); k < q.n; k++ {
		f := q.f[k]
		if f.kind == frameGrant || f.kind == frameVouch && x.holds() && x.req == f.req && f.left > 0 ||
			f.kind == frameFrozen && x.from == fromOwner+i && x.at == f.tok.epoch() && !x.frozen {
			continue
		}
		granted := f.kind == framePong && x.from == fromOwner+i && !x.frozen && f.left > x.ann
		for _, g := range q.f[:k] {
			granted = granted || f.kind != frameVouch && g.kind <= frameVouch && (g.tok.epoch() == f.tok.epoch() || f.kind == framePong)
		}
		if !granted {
			copy(q.f[k:], q.f[k+1:])
			q.n--
			q.f[q.n] = frame{}
			k--
		}
	}
}

// expected reports whether an acquire is on its way that expects an epoch.
func (s *state) expected(epoch uint16) bool {
	for _, x := range s.late[:s.lates] {
		if x.kind == lateAcquire && x.epoch == epoch {
			return true
		}
	}
	return false
}

// nothingBelow reports whether no token that is on its way or may be given out is below t.
func (s *state) nothingBelow(t token) bool {
	low := ^token(0)
	if s.p.owner == none {
		low = makeToken(s.p.epoch, s.p.seq)
	}
	for i := range s.node {
		x := &s.node[i]
		if x.own != 0 {
			low = min(low, makeToken(x.own, x.seq))
		}
		for j := range s.streams[i] {
			for _, f := range s.streams[i][j].f[:s.streams[i][j].n] {
				if f.kind == frameGrant && f.tok != 0 {
					low = min(low, f.tok)
				}
			}
		}
	}
	for _, x := range s.late[:s.lates] {
		switch x.kind {
		case answer + lateLock:
			low = min(low, x.row.tok)
		case answer + lateAcquire:
			low = min(low, makeToken(x.epoch, 0))
		}
	}
	for _, r := range s.p.rows {
		if r.who != none && s.node[r.who].want != wantNothing && s.node[r.who].wreq == r.req { // it may learn of its row late
			low = min(low, r.tok)
		}
	}
	return t <= low
}

func (s *state) hasLate(j uint8) bool {
	for _, x := range s.late[:s.lates] {
		if x.node == j {
			return true
		}
	}
	return false
}

func (s *state) inTable(who, req uint8) bool {
	for i := range s.node {
		for _, t := range s.node[i].table {
			if s.node[i].own != 0 && t.who == who && t.req == req {
				return true
			}
		}
	}
	return false
}

// around reports whether an identity is the arbiter's row, or may become it.
func (s *state) around(who, req uint8) (yes bool) {
	s.rows(func(r *row) { yes = yes || r.who == who && r.req == req })
	return yes
}

// matters reports whether the identity in a late message is anywhere else.
func (s *state) matters(x *message) (yes bool) {
	s.rows(func(r *row) { yes = yes || r != &x.row && r.who == x.row.who && r.req == x.row.req })
	y := &s.node[x.node]
	return yes || y.holds() && y.req == x.row.req || y.want != wantNothing && y.wreq == x.row.req
}

// spent reports whether a late message does nothing any more.
func (m *Model) spent(s *state, x *message) bool {
	if x.kind > answer {
		return s.node[x.node].life != alive || m.has(FromSend) && x.age >= m.lease()
	}
	over := s.settled()
	switch x.kind {
	case lateAcquire, lateDemote, lateUnserved:
		return over && s.p.epoch > x.epoch && (x.kind != lateAcquire || s.p.from != x.epoch && m.has(EpochCompare))
	case lateReclaimRow, lateReclaimOwner:
		return over && s.p.grace == 0 && m.has(ReclaimInGrace)
	case lateAdopt:
		return over && s.p.grace == 0 && x.epoch < s.p.epoch && m.has(AdoptCompares) && !s.matters(x)
	case lateUnlock:
		return m.has(ExactUnlock) && !s.matters(x)
	}
	return false
}

// renumber maps epochs to few numbers, and the numbers within an epoch as well. It keeps the order
// of all, and direct succession among those of this tick: the next one is one more, or the clock.
func (m *Model) renumber(s *state) {
	var toks []token
	add := func(t token) {
		if t != 0 {
			toks = append(toks, t)
		}
	}
	m.toks = m.toks[:0]
	toks = m.toks
	epoch := func(e *uint16) { add(makeToken(*e, 0)) }
	s.tokens(func(t *token) { add(*t) }, epoch, func(e, seq *uint16) { add(makeToken(*e, *seq)) })
	slices.Sort(toks)
	toks = slices.Compact(toks)
	m.toks = toks
	to := m.to[:0]
	// The next one given out is later than all that there are: the record is the latest, or Grace
	// comes first, and so the clock does.
	rises := m.rises() && len(toks) > 0
	gap := uint16(2)
	if rises {
		gap, s.clock = 1, toks[len(toks)-1].epoch()+1
	}
	var last uint16 // the epoch before, as it was
	var e, seq, lastSeq uint16
	old := 0
	for i, t := range toks {
		if t.epoch() < s.clock && (i == 0 || t.epoch() != toks[i-1].epoch()) {
			old++
		}
	}
	for i, t := range toks {
		if i == 0 || t.epoch() != last {
			switch {
			case m.has(Clock) && t.epoch() < s.clock:
				e = base - uint16(old)
				old--
			case m.has(Clock) && last < s.clock:
				e = base + min(t.epoch()-s.clock, 1)
			case i == 0:
				e = min(t.epoch(), 2)
			default:
				e += min(t.epoch()-last, gap)
			}
			last, seq, lastSeq = t.epoch(), 0, 0
		}
		seq += min(t.seq()-lastSeq, gap)
		lastSeq = t.seq()
		to = append(to, makeToken(e, seq))
	}
	m.to = to
	find := func(t token) token {
		if t == 0 {
			return 0
		}
		i, _ := slices.BinarySearch(toks, t)
		return to[i]
	}
	s.tokens(func(t *token) { *t = find(*t) },
		func(e *uint16) { *e = find(makeToken(*e, 0)).epoch() },
		func(e, seq *uint16) {
			t := find(makeToken(*e, *seq))
			*e, *seq = t.epoch(), t.seq()
		})
	if m.has(Clock) {
		s.clock = base
	}
}

// tokens calls f with every token, epoch, and counter of tokens.
func (s *state) tokens(f func(*token), epoch func(*uint16), counter func(e, seq *uint16)) {
	s.rows(func(r *row) { f(&r.tok) })
	for _, r := range []*record{&s.p, &s.replica, &s.backup.p} {
		counter(&r.epoch, &r.seq)
		epoch(&r.from)
	}
	for i := range s.node {
		x := &s.node[i]
		counter(&x.own, &x.seq)
		epoch(&x.never)
		epoch(&x.at)
		f(&x.tok)
		f(&x.seen)
		for j := range s.streams[i] {
			for k := range s.streams[i][j].n {
				f(&s.streams[i][j].f[k].tok)
			}
		}
	}
	for i := range s.late {
		epoch(&s.late[i].epoch)
		f(&s.late[i].known)
	}
	f(&s.maxTok)
	f(&s.maxExcl)
	epoch(&s.maxEpoch)
}

func (s *state) renameRequests() {
	var to [maxNodes + 1][8]uint8 // their new numbers, by the old ones
	var n [maxNodes + 1]uint8
	rename := func(who uint8, req *uint8) {
		if *req == 0 {
			return
		}
		if to[who][*req] == 0 {
			n[who]++
			to[who][*req] = n[who]
		}
		*req = to[who][*req]
	}
	s.rows(func(r *row) { rename(r.who, &r.req) })
	s.requests(rename)
	for j := range s.node {
		x := &s.node[j]
		for _, mask := range []*uint8{&x.relA, &x.relO} {
			var now uint8
			for r := uint8(1); r <= 7; r++ {
				if *mask&bit(r) != 0 {
					q := r
					rename(uint8(j), &q)
					now |= bit(q)
				}
			}
			*mask = now
		}
	}
}

// fresh is a request's number that is nowhere in use: it stands for one that never was.
func (m *Model) fresh(s *state, j uint8) uint8 {
	var used uint8
	s.rows(func(r *row) {
		if r.who == j {
			used |= bit(r.req)
		}
	})
	s.requests(func(who uint8, req *uint8) {
		if who == j {
			used |= bit(*req)
		}
	})
	used |= s.node[j].relA | s.node[j].relO
	for r := uint8(1); r <= m.Requests; r++ {
		if used&bit(r) == 0 {
			return r
		}
	}
	m.bounded = true
	return 0
}

// permute gives nodes other numbers.
func (s *state) permute(to [maxNodes + 1]uint8) state {
	n := *s
	of := func(i *uint8) { *i = to[*i] }
	mask := func(b uint8) (r uint8) {
		for i := uint8(1); i <= maxNodes; i++ {
			if b&bit(i) != 0 {
				r |= bit(to[i])
			}
		}
		return r
	}
	n.rows(func(r *row) { of(&r.who) })
	set := func(t *rowset) {
		was := *t
		for i := 1; i <= maxNodes; i++ {
			t[to[i]] = was[i]
		}
	}
	set(&n.p.rows)
	set(&n.replica.rows)
	set(&n.backup.p.rows)
	for i := range n.late {
		set(&n.late[i].rows)
	}
	of(&n.p.owner)
	of(&n.replica.owner)
	of(&n.backup.p.owner)
	for i := range n.late {
		of(&n.late[i].node)
		of(&n.late[i].dead)
	}
	for i := uint8(1); i <= maxNodes; i++ {
		x := n.node[i]
		if x.want >= wantOwner {
			x.want = wantOwner + to[x.want-wantOwner]
		}
		if x.from >= fromOwner {
			x.from = fromOwner + to[x.from-fromOwner]
		}
		set(&x.table)
		x.spoke = x.spoke&1 | mask(x.spoke)
		n.node[i] = x
	}
	was := n
	for i := uint8(1); i <= maxNodes; i++ {
		n.node[to[i]] = was.node[i]
		n.expiry[to[i]] = was.expiry[i]
		n.backup.expiry[to[i]] = was.backup.expiry[i]
		n.down[to[i]] = mask(was.down[i])
		for j := uint8(1); j <= maxNodes; j++ {
			n.streams[to[i]][to[j]] = was.streams[i][j]
		}
	}
	return n
}
