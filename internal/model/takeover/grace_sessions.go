package takeover

// sessions makes X (0) or Y (1) open its session, and renew it.
func (m *EndOfGrace) sessions(was *graceState, i int, add adderG) {
	me := uint8(1) << i
	m.atEach(was, func(s *graceState, x *store, n int8) {
		switch {
		case m.Apart && n == 1: // there is one server of sessions
		case s.open&(5<<i) == 0:
			s.open |= me
			s.age[i], s.lease[i] = 0, m.T
			x.known |= me
			x.expiry[i] = m.T
			add(eOpen, letterX+i, n, *s)
		case m.alive(s, i) && (x.grace > 0 && !m.Apart || x.known&me != 0 && x.expiry[i] > 0):
			if x.known&me == 0 && m.has(Recreated) {
				s.age[i] = 0
			}
			x.known |= me
			s.lease[i], x.expiry[i] = m.T, m.T
			m.nameSet(s, x, i)
			add(eRenew, letterX+i, n, *s)
		}
	})
	s := *was
	if s.cur.grace > 0 && m.alive(&s, i) && s.cur.known&me != 0 && s.cur.spoken&me == 0 && s.fails > 0 {
		reclaimed := i == 0 && (!m.owned(&s) || s.cur.owner == sX) || i == 1 && (s.hold != 2 || s.cur.row)
		if (reclaimed || !m.has(SpeaksLast)) && (s.deposed == 0 || !m.has(SpeaksLate)) &&
			(i == 1 || m.owned(&s) || s.ann == 0 || !m.has(SpeaksForOthers)) {
			s.cur.spoken |= me
			if m.has(SpeaksByRenewal) {
				s.lease[i], s.cur.expiry[i] = m.T, m.T
				m.nameSet(&s, &s.cur, i)
			}
			if i == 0 && m.has(OldAnswersVoid) {
				s.ans = 0
			}
			add(eSpeak, letterX+i, 0, s)
		}
	}
}

// atEach calls f with a copy of the state for each server that answers: 0 the present one, 1 the
// deposed one.
func (m *EndOfGrace) atEach(was *graceState, f func(s *graceState, x *store, n int8)) {
	s := *was
	f(&s, &s.cur, 0)
	if was.fails > 0 && (was.deposed > 0 || !m.has(Deposed)) {
		s = *was
		f(&s, &s.old, 1)
	}
}

// owner makes the steps of X as an owner.
func (m *EndOfGrace) owner(was *graceState, add adderG) {
	if !m.alive(was, 0) {
		return
	}
	m.atEach(was, func(s *graceState, x *store, n int8) {
		switch {
		case x.owner == 0 && x.grace == 0 && !s.owns && s.ans == 0 && (s.age[0] >= m.W || !m.has(Probation)) && x.known&sX != 0 && !x.row:
			t := *s
			x.owner = sX
			s.ans = m.T
			add(eAcquireLate, 0, n, *s)
			*s = t
			x.owner = sX
			s.owns, s.slot = true, m.T
			add(eAcquire, 0, n, *s)
		case x.owner == sX && m.owned(s):
			s.slot = m.T
			add(eVerify, 0, n, *s)
		}
	})
	s := *was
	if s.ans > 0 {
		s.owns, s.slot, s.ans = true, s.ans, 0
		add(eAnswer, 0, 0, s)
	}
	if s = *was; m.owned(&s) {
		if s.cur.grace > 0 && s.cur.owner == 0 {
			s.cur.owner, s.slot = sX, m.T
			add(eReclaim, letterX, 0, s)
		}
		s = *was
		s.owns = false
		add(eDrop, 0, 0, s)
	}
}

// holder makes the steps of Y, and those of X towards it.
func (m *EndOfGrace) holder(was *graceState, add adderG) {
	if !m.alive(was, 1) {
		return
	}
	s := *was
	if d := m.until(&s); d > 0 && s.hold != 2 {
		s.yann, s.ann = max(s.yann, d), max(s.ann, d)
		kind := eAnnounce
		if s.hold == 0 {
			kind = eGrant
		}
		s.hold = 1
		add(kind, 0, 0, s)
	}
	if !m.holds(was) {
		return
	}
	m.atEach(was, func(s *graceState, x *store, n int8) {
		if x.owner == ofZ || s.age[1] < m.W && m.has(ProbationAdopts) || x.known&sY == 0 {
			return
		}
		if x.row || x.owner == sX || x.grace > 0 {
			if x.grace > 0 && s.hold == 2 && !x.row {
				x.row, s.conf = true, m.T
				add(eReclaim, letterX+1, 0, *s)
				return
			}
			x.row, s.hold, s.conf = true, 2, m.T
			add(eAdopt, 0, n, *s)
		}
	})
}

// sets makes the change of X's guardians, promises and votes. A set votes as one.
func (m *EndOfGrace) sets(was *graceState, add adderG) {
	for v := range int8(2) {
		s := *was
		if s.voted&(1<<v) == 0 && m.alive(&s, 0) && s.prom[v] < m.D {
			s.prom[v] = m.D
			add(ePromise, 0, v, s)
		}
		s = *was
		if s.voted&(1<<v) == 0 && s.prom[v] == 0 {
			s.voted |= 1 << v
			add(eVote, 0, v, s)
		}
		s = *was
		if s.voted&(1<<v) != 0 && s.cur.ver == v && s.cur.known&sX != 0 && (s.cur.grace == 0 || m.Apart || !m.has(NoneBuried) && s.early) {
			s.cur.known &^= sX
			s.cur.spoken &^= sX
			s.cur.expiry[0] = 0
			add(eBury, 0, v, s)
		}
	}
	if !m.alive(was, 0) {
		return
	}
	if s := *was; s.ver == 0 && s.prom[1] >= max(s.ann, 1) {
		m.atEach(&s, func(s *graceState, x *store, n int8) {
			if x.known&sX != 0 && (x.expiry[0] > 0 || x.grace > 0 && !m.Apart) && (!m.Apart || n == 0) {
				x.ver = 1
				s.ver, s.joint = 1, 0
				if m.has(JointLonger) {
					s.joint = m.W
				}
				s.lease[0], x.expiry[0] = m.T, m.T
				add(eVersion, 0, n, *s)
			}
		})
	}
	if s := *was; s.ver == 1 && s.joint == 0 {
		m.atEach(&s, func(s *graceState, x *store, n int8) { // by the answer of a server that has the version
			if x.ver == 1 && x.known&sX != 0 {
				s.ver = 2
				add(eSettled, 0, n, *s)
			}
		})
	}
}

// nameSet: X's renewals name the version that it has asked for.
func (m *EndOfGrace) nameSet(s *graceState, x *store, i int) {
	if i == 0 && s.ver > 0 && x.ver == 0 {
		x.ver = 1
		if s.ver == 1 && m.has(JointLonger) {
			s.joint = m.W
		}
	}
}
