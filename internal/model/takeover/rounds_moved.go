package takeover

// behind is the data that replicas of the table's server may lack.
type behind int8

const (
	inStep  behind = iota // nothing that counts: each opening waited for them
	noTable               // the table: it has come with its slot
	earlier               // sessions that were opened where the slot was: they have the table of before
)

// tableMoves makes the table's slot come to another server, which has all of it. The table is in
// Grace there, and the server of before sends clients on.
func (m *Rounds) tableMoves(was *roundState, add adderR) {
	s := *was
	if s.sMoves >= m.TableMoves {
		return
	}
	s.sMoves++
	s.s.lacks = s.s.lacks && m.has(Chained)
	s.s.grace, s.s.round, s.s.age = m.Q, 0, 0
	s.sCopied, s.sCopy, s.sAway = false, table{}, noTable
	if !m.has(MovedInStep) {
		s.sAway = earlier
	}
	add(rMoveS, 0, s)
}

// acknowledged notes that an opening has waited for all replicas: they have the earlier changes,
// too.
func (m *Rounds) acknowledged(s *roundState, n int8) {
	if n == 0 && m.Opened && m.has(OpenedAtAll) {
		s.sAway = inStep
	}
}

// replica is a replica's data of the table. opened: it has the sessions that were opened.
func (m *Rounds) replica(s *roundState, opened bool) table {
	x := s.sCopy // empty, if there is none
	if m.Opened {
		x.known = x.known || opened && s.s.known && s.sAway == inStep
		x.w, x.lacks = x.w || s.s.w, x.lacks || s.s.lacks // all replicas have the acts of a session that was not known, too
	}
	if s.sAway == noTable {
		x = table{lacks: m.has(LostLacks)}
	}
	return x
}

func (m *Rounds) tableFailed(s *roundState, to table) {
	s.sFails++
	s.sOld, s.sGone, s.s, s.sCopied, s.sAway = s.s, m.Delta, to, false, inStep
	s.s.lacks = s.s.lacks && m.has(Chained)
	s.s.grace, s.s.round, s.s.age = m.Q, 0, 0 // a round is one server's
}
