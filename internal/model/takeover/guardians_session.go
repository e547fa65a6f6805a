package takeover

// session makes the steps of X.
func (m *Guardians) session(was *guardState, add adder) {
	s := *was
	cand := was.conf + 1 // the version that X wants, whether it has asked for it or not
	interest := m.Sets[was.conf]
	if int(cand) < len(m.Sets) {
		interest |= m.Sets[cand]
	} else {
		cand = was.conf
	}
	for j := range maxG {
		if interest&(1<<j) == 0 || was.lost&(1<<j) != 0 && m.has(RestartIsAnother) {
			continue
		}
		// A ping is answered at once: one that takes longer makes the guardian's promise longer,
		// not X's.
		s = *was
		s.until[j] = m.D
		s.ackLeft[j], s.ackVoted[j] = m.value(), was.voted[j]
		if s != *was && (was.voted[j] < cand || !m.has(VoteIsFinal)) {
			add(gPing, j, 0, s)
		}
		if was.ackLeft[j] > 0 {
			s = *was
			s.prom[j], s.promVoted[j] = max(s.prom[j], s.ackLeft[j]), max(s.promVoted[j], s.ackVoted[j])
			s.ackLeft[j] = 0
			add(gPromise, j, 0, s)
		}
	}
	if d := m.announced(was); d > 0 {
		s = *was
		s.y, s.ann = max(s.y, d), max(s.ann, d)
		if s != *was {
			add(gAnnounce, 0, d, s)
		}
		if !m.has(AnswerFromSend) && was.answer == 0 {
			s = *was
			s.answer, s.ann = d, max(s.ann, d)
			add(gAnnounceLate, 0, d, s)
		}
	}
	if was.pend == was.conf && cand > was.conf && (m.covered(was, cand) >= max(was.ann, 1) || !m.has(AskCovered)) {
		s = *was
		s.pend = cand
		add(gAsk, 0, cand, s)
	}
	names := m.renewalNames(was)
	for i, r := range was.renewals {
		if r == (inFlight{}) && (i == 0 || m.Beside) && (was.lease < m.T || was.pend != was.conf) {
			s = *was
			s.renewals[i] = inFlight{sent: true, ver: names, left: m.T}
			add(gSend, 0, names, s)
		}
		if r.answered {
			s = *was
			s.renewals[i] = inFlight{}
			m.answered(&s, r.ver, r.left, r.soon)
			add(gReply, soonNode(r.soon), r.ver, s)
		}
	}
	if was.lease < m.T || was.pend != was.conf { // there and back at once
		m.renew(was, add, gRenew, names, false)
		if was.deposed > 0 {
			m.renew(was, add, gRenewOld, names, true)
		}
	}
	if was.late&(1<<names) == 0 && (was.cur.ver != names || was.copied || was.fails < m.Failovers || !m.has(VersionsRise)) {
		s = *was
		s.late |= 1 << names
		add(gRenewLate, 0, names, s)
	}
}

// soonNode marks events of answers that are soon: two answers may name the same version.
func soonNode(soon bool) int {
	if soon {
		return 1
	}
	return 0
}

// renew is a renewal that is answered at once.
func (m *Guardians) renew(was *guardState, add adder, kind int, names int8, deposed bool) {
	s := *was
	at := s.at(deposed)
	if !m.record(at, names) {
		return
	}
	m.answered(&s, at.ver, m.T, m.young(at))
	add(kind, 0, names, s)
}

// answered is X's when it reads an answer. Young is whether the server took over less than delta
// ago.
func (m *Guardians) answered(s *guardState, ver, left int8, young bool) {
	if !m.outlives(s, young) {
		s.gone = true
		return
	}
	if ver >= s.pend && (!young || !m.has(Silenced)) {
		s.conf = s.pend
	}
	s.lease = max(s.lease, left)
}

// renewalNames returns the version that a renewal names.
func (m *Guardians) renewalNames(s *guardState) int8 {
	switch {
	case !m.has(RenewalNames):
		if s.pend == s.conf {
			return 0
		}
	case !m.has(RenewalNamesAsked):
		if s.cur.ver < s.pend && s.fails == 0 { // it asks once
			return s.pend
		}
		return s.conf
	}
	return s.pend
}
