package takeover

import "math/bits"

// guardians makes the votes, and restarts.
func (m *Guardians) guardians(was *guardState, add adder) {
	top := was.conf + 1
	if was.gone {
		top = maxV - 1
	}
	for j := range maxG {
		if was.lost&(1<<j) != 0 && m.has(RestartIsAnother) {
			continue
		}
		for v := int8(0); v <= top && int(v) < len(m.Sets); v++ {
			if m.Sets[v]&(1<<j) != 0 && was.votes[v]&(1<<j) == 0 && (was.until[j] == 0 || !m.has(VoteAfterPromise)) {
				s := *was
				s.voted[j] = max(s.voted[j], v)
				s.votes[v] |= 1 << j
				add(gVote, j, v, s)
			}
		}
		if was.restarts < m.Restarts && was.lost&(1<<j) == 0 && was.until[j] > 0 {
			s := *was
			s.restarts++
			s.lost |= 1 << j
			s.until[j], s.voted[j] = 0, -1
			add(gRestart, j, 0, s)
		}
	}
}

// arbiter makes the steps of the arbiter, and of requests that are on their way to it.
func (m *Guardians) arbiter(was *guardState, add adder) {
	for v := range m.Sets {
		if _, e := m.quorum(m.Sets[v]); bits.OnesCount8(was.votes[v]) >= e && m.Sets[v] != 0 && was.bury&(1<<v) == 0 && !was.taken {
			s := *was
			s.bury |= 1 << v
			add(gBurySent, 0, int8(v), s)
		}
	}
	m.arrive(was, add, false)
	if was.deposed > 0 {
		m.arrive(was, add, true)
	}
	for i, r := range was.renewals {
		if r.sent {
			s := *was
			s.renewals[i] = inFlight{}
			s.late |= 1 << r.ver
			add(gSetLost, 0, 0, s)
		}
	}
	if was.cur.ver < 0 && was.cur.grace == 0 && !was.taken {
		s := *was
		m.dies(&s, &s.cur)
		add(gUnknown, 0, 0, s)
	}
	for _, deposed := range []bool{false, true} {
		s := *was
		if at := s.at(deposed); m.Expires && (!deposed || was.deposed > 0) && at.exp == 0 && at.grace == 0 && at.ver >= 0 && !at.dead {
			m.dies(&s, at)
			add(expires(deposed), 0, 0, s)
		}
	}
	if was.fails < m.Failovers {
		s := *was
		if !was.copied {
			s.copied, s.oldVer, s.oldDed, s.oldRow, s.oldExp = true, s.cur.ver, s.cur.dead, s.cur.row, s.cur.exp
			add(gCopy, 0, 0, s)
		} else {
			m.another(&s, server{ver: s.oldVer, dead: s.oldDed, row: s.oldRow, exp: s.oldExp})
			add(gFailoverOld, 0, 0, s)
		}
		s = *was
		m.another(&s, server{ver: -1})
		add(gFailoverEmpty, 0, 0, s)
	}
}

// arrive executes requests at the server, or at the deposed one.
func (m *Guardians) arrive(was *guardState, add adder, deposed bool) {
	buries, arrives, sets := gBuryArrives, gLateArrives, gSetArrives
	if deposed {
		buries, arrives, sets = gBuryArrivesOld, gLateArrivesOld, gSetArrivesOld
	}
	for v := range m.Sets {
		if was.bury&(1<<v) != 0 {
			s := *was
			s.bury &^= 1 << v
			at := s.at(deposed)
			if (at.ver == int8(v) || !m.has(BuryCompares) && at.ver >= 0) && (at.grace == 0 || !m.has(GraceBuries)) {
				m.dies(&s, at)
			}
			add(buries, 0, int8(v), s)
		}
		if was.late&(1<<v) != 0 {
			s := *was
			s.late &^= 1 << v
			m.record(s.at(deposed), int8(v))
			add(arrives, 0, int8(v), s)
		}
	}
	for i, r := range was.renewals {
		if !r.sent {
			continue
		}
		s := *was
		s.renewals[i] = inFlight{}
		at := s.at(deposed)
		if m.record(at, r.ver) {
			s.renewals[i] = inFlight{answered: true, soon: m.young(at), ver: at.ver, left: r.left}
			add(sets, 0, at.ver, s)
			s.renewals[i] = inFlight{}
		}
		add(gSetReplyLost, 0, 0, s)
	}
}

func expires(deposed bool) int {
	if deposed {
		return gExpiresOld
	}
	return gExpires
}

// at returns the server, or the deposed one.
func (s *guardState) at(deposed bool) *server {
	if deposed {
		return &s.dep
	}
	return &s.cur
}

// young reports whether a server took over less than delta ago: the one before may answer yet.
func (m *Guardians) young(at *server) bool { return at.grace > m.Grace-m.Delta }

// dies makes X dead at a server: others may have all that it had, except for holds with a row
// there.
func (m *Guardians) dies(s *guardState, at *server) {
	at.dead, at.exp, s.taken = true, 0, true
	s.bare = s.bare || s.adopted && !at.row
}

// adopt makes Y ask for the row of its hold. Outside of Grace it is refused if the record may have
// another owner.
func (m *Guardians) adopt(was *guardState, add adder, kind int, deposed bool) {
	s := *was
	at := s.at(deposed)
	if (at.dead || at.ver < 0) && at.grace == 0 {
		return
	}
	at.row = true
	s.adopted = !m.young(at) || !m.has(RowLate)
	if s != *was {
		add(kind, 0, 0, s)
	}
}

// record executes a renewal that names a version, and reports whether the session is alive.
func (m *Guardians) record(at *server, v int8) bool {
	switch {
	case (at.dead || at.ver < 0 || m.Expires && at.exp == 0) && at.grace == 0:
		return false
	case m.has(VersionsRise) || at.ver < 0:
		at.ver, at.dead = max(at.ver, v), false
	default:
		at.ver, at.dead = v, false
	}
	at.exp = m.expiry()
	return true
}

func (m *Guardians) another(s *guardState, to server) {
	s.fails++
	s.dep, s.deposed = s.cur, m.Delta
	s.cur = to
	s.cur.grace = m.Grace
	s.copied, s.oldVer, s.oldDed, s.oldRow, s.oldExp = false, 0, false, false, 0
}
