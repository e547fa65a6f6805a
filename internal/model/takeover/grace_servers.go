package takeover

// servers makes failovers, and ends Grace early.
func (m *EndOfGrace) servers(was *graceState, add adderG) {
	if was.fails < m.Failovers {
		s := *was
		s.copied, s.rep, s.lag = true, s.cur, 0
		if s != *was {
			add(eInStep, 0, 0, s)
		}
		if was.copied {
			s = *was
			m.failover(&s, was.rep, (was.lag <= m.W-m.Delta || !m.has(LagCompared)) && (was.rep.grace == 0 || !m.has(CopyInGrace)))
			add(eFailover, 0, was.lag, s)
		}
		s = *was
		m.failover(&s, store{}, false)
		add(eFailoverEmpty, 0, 0, s)
	}
	s := *was
	all := s.early && s.cur.grace > 0 && (s.cur.known&^s.cur.spoken == 0 || !m.has(AllSpoken)) && (s.deposed == 0 || !m.has(SpeaksLate))
	if m.Apart {
		if all && !s.stated {
			s.stated = true
			add(eStated, 0, 0, s)
		}
		s = *was
		all = s.stated && s.cur.grace > 0
	}
	if all {
		s.cur.grace, s.early, s.stated = 0, false, false
		add(eEarly, 0, 0, s)
	}
	for i := range 2 {
		s = *was
		if me := uint8(1) << i; s.cur.known&me != 0 && s.cur.expiry[i] == 0 && (s.cur.grace == 0 || m.Apart || s.early && !m.has(NoneExpires)) {
			s.cur.known &^= me
			s.cur.spoken &^= me
			add(eExpires, letterX+i, 0, s)
		}
	}
}

func (m *EndOfGrace) failover(s *graceState, to store, early bool) {
	s.fails++
	s.old, s.deposed = s.cur, m.Delta
	s.cur = to
	if m.Apart {
		s.cur.known, s.cur.expiry, s.cur.ver, early = s.old.known, s.old.expiry, s.old.ver, true
	}
	s.cur.grace, s.cur.spoken, s.early = m.Q, 0, early
	if m.has(StatementNamed) {
		s.stated = false
	}
	s.copied, s.rep, s.lag = false, store{}, 0
	s.asked = s.ans > 0
}

// taker makes the steps of Z.
func (m *EndOfGrace) taker(was *graceState, add adderG) {
	s := *was
	if s.cur.grace == 0 && s.cur.owner != ofZ && (s.cur.owner == 0 || s.cur.known&sX == 0) && s.fails > 0 {
		s.cur.owner = ofZ
		add(eZOwns, 0, 0, s)
	}
	s = *was
	if s.cur.owner == ofZ && !s.zkey && (!s.cur.row || s.cur.known&sY == 0 && s.cur.grace == 0) {
		s.zkey, s.cur.row = true, false
		add(eZGrants, 0, 0, s)
	}
}
