package takeover

// unknown notes the renewal of a session, in Grace, at a table that does not know it. The renewal
// counts once all replicas have it: until then the session asks again.
func (m *Rounds) unknown(x *table) {
	if m.Opened && !x.lacks && m.has(Missing) {
		x.grace, x.round, x.age, x.lacks = m.Q, 0, 0, true
	}
}

// restored makes a backup come into another server, whose replicas follow it, and W see that.
func (m *Rounds) restored(was *roundState, add adderR) {
	s := *was
	if s.backups < m.Backups {
		s.backups++
		s.graces++
		s.pOld, s.pGone, s.p = s.p, m.Delta, record{grace: m.Q, name: s.graces}
		s.sOld, s.sGone, s.s = s.s, m.Delta, table{grace: m.Q}
		s.pCopied, s.pCopy, s.sCopied, s.sCopy = true, s.p, true, s.s
		add(rBackup, 0, s)
	}
	if s = *was; m.Backups > 0 && !s.s.w {
		if s.s.grace > 0 {
			m.unknown(&s.s)
		}
		s.s.w = true
		s.sCopied, s.sCopy = true, s.s
		add(rNotice, 0, s)
	}
}

// rows makes the steps of X for its caller, which holds the key: the partition goes, and the hold
// rests on a row.
func (m *Rounds) rows(was *roundState, add adderR) {
	if !m.Rows || was.life != 1 {
		return
	}
	m.atRecords(was, func(s *roundState, x *record, n int8) {
		switch {
		case x.owner == sX && m.owned(s) && s.hold == 0:
			x.owner, x.row, s.owns, s.slot = 0, true, false, 0
			if s.hold = m.T; !m.has(PassWhole) {
				s.fresh = 2 * m.Delta
			}
			add(rGiveBack, n, *s)
		case x.row && s.hold > 0:
			s.hold = m.T
			add(rVerifyRow, n, *s)
		}
	})
	if s := *was; s.hold > 0 && s.p.grace > 0 && !s.p.row {
		s.p.row, s.hold = true, m.T
		add(rRestore, 0, s)
	}
}
