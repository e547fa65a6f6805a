package model

import "github.com/holdfast-go/holdfast/fallback"

// A backup is an earlier state of the arbiter: the record, and the table of sessions. It comes back
// under the same identity.
type backup struct {
	made   bool
	lag    uint8 // so many changes of the record are missing
	p      record
	expiry [maxNodes + 1]uint8
}

// Parts of a backup.
const (
	BackRecord = 1 << iota
	BackSessions
)

// rewinds make a backup, and give the arbiter its record, its sessions, or both. The nodes have
// seen newer data: see Unaware.
func (a *action) rewinds() {
	s := a.was
	if s.budget[rewind] == 0 || s.faults == 0 {
		return
	}
	if !s.backup.made {
		if s.p.server == byThis && s.p.grace == 0 && s.sServer == byThis && s.sGrace == 0 {
			n := a.begin()
			n.backup.made = true
			if a.Back&BackRecord != 0 {
				n.backup.p = n.p
			}
			if a.Back&BackSessions != 0 {
				n.backup.expiry = n.expiry
			}
			a.done("a backup is made", 0, 0, 0)
		}
		return
	}
	record := a.Back&BackRecord != 0 && (a.Unaware || a.aware(false))
	sessions := a.Back&BackSessions != 0 && (a.Unaware || a.aware(true))
	for _, c := range []struct {
		possible, record, sessions bool
		what                       string
	}{
		{record, true, false, "BACKUP: the partition's record is as it was"},
		{sessions, false, true, "BACKUP: the table of sessions is as it was"},
		{record && sessions, true, true, "BACKUP: the record and the table of sessions are as they were"},
	} {
		if !c.possible {
			continue
		}
		n := a.begin()
		if c.record {
			n.p = n.backup.p
		}
		if c.sessions {
			n.expiry, n.sGrace = n.backup.expiry, 0
		}
		n.backup = backup{}
		a.fault(rewind, c.what, 0, 0, 0)
	}
}

// aware reports whether each node notices that the record, or the table of sessions, is that of the
// backup.
func (a *action) aware(sessions bool) bool {
	s := a.was
	for i := uint8(1); i <= a.Nodes; i++ {
		x := &s.node[i]
		had := s.backup.expiry[i]
		late := had == 0 || 2*int(x.told) > 2*int(had)+int(a.T)
		if x.life != alive || sessions && (x.told <= 1 || !late) || !sessions && !s.backup.p.behind(x.seen) {
			return false
		}
	}
	return true
}

// behind is as fallback's: the record could still give out a token that was given out.
func (r *record) behind(seen token) bool {
	e := seen.epoch()
	return e > r.epoch || e == r.epoch && r.owner == none && seen.seq() > r.seq
}

// old reports whether a node has seen newer data than the record's.
func (s *state) old() bool {
	for i := range s.node {
		if x := &s.node[i]; x.life == alive && s.p.behind(x.seen) {
			return true
		}
	}
	return false
}

// settled reports whether the record is never an earlier one again.
func (s *state) settled() bool {
	return s.budget[failover] == 0 && s.p.server == byThis && (s.budget[rewind] == 0 || s.faults == 0)
}

// forgetSeen drops tokens and expiries that reveal no backup, and the backup that does not come
// back.
func (m *Model) forgetSeen(s *state) {
	final := s.budget[rewind] == 0 || s.faults == 0
	if final {
		s.backup = backup{}
	}
	for i := range s.node {
		x := &s.node[i]
		of := &s.p
		if s.backup.made && m.Back&BackRecord != 0 {
			of = &s.backup.p
		}
		if !final && (!s.backup.made || m.Back&BackRecord == 0) || !of.behind(x.seen) {
			x.seen = 0
		}
		if m.Back&BackSessions == 0 || final && (x.told <= 1 || x.told <= s.expiry[i]) {
			x.told = 0
		}
	}
}

// saw notes that the arbiter tells a node of a token, or of an epoch.
func (m *Model) saw(x *node, t token) {
	if m.Rewinds > 0 {
		x.seen = max(x.seen, t)
	}
}

// tell notes that the arbiter tells a session of its expiry.
func (m *Model) tell(s *state, i uint8) {
	if m.Rewinds > 0 {
		s.node[i].told = s.expiry[i]
	}
}

// compare is Witness of the sessions, by one of them.
func (m *Model) compare(s *state, i uint8, now fallback.Moment, t *fallback.Sessions) {
	if m.Rewinds > 0 && m.has(SeenExpiry) {
		t.Witness(now, fallback.Stamp{Session: names[i], Seen: until(now.Now, s.node[i].told)})
	}
}

// witness is Witness of the partition, by i. Without the guard it is Load.
func (m *Model) witness(s *state, i uint8, g Guard) (r fallback.Record) {
	if m.Rewinds == 0 || !m.has(Witness) || !m.has(g) {
		return m.load(s)
	}
	seen := s.node[i].seen
	m.on(s, false, func(now fallback.Moment, p *fallback.Partition) {
		r = p.Witness(now, fallback.MakeToken(uint32(seen.epoch()), uint32(seen.seq())))
	})
	return r
}

// refuse tells the arbiter that its answer to j is of older data. A grant uses up a token that j
// has seen, and with it the evidence of older data: then the arbiter is told of the next epoch.
func (m *Model) refuse(s *state, j uint8, ans fallback.LockAnswer) {
	x := s.node[j]
	if e := uint16(ans.Record.Epoch); ans.Verdict == fallback.Granted && m.has(WitnessNext) {
		s.node[j].seen = max(x.seen, makeToken(e+1, 0))
	}
	m.witness(s, j, Witness)
	s.node[j].seen = x.seen
}

// verifyKnown is Verify by i. If an answer may be of older data, the arbiter is told, and its
// record in reply counts.
func (m *Model) verifyKnown(s *state, i uint8) fallback.State {
	st := m.verify(s)
	if m.Rewinds == 0 {
		return st
	}
	x := &s.node[i]
	lacks := x.conf > 0 && ours(st.Rows[x.name(i)]) != row{i, x.req, x.tok}
	if m.has(Witness) && st.Record.Grace == 0 && (st.Record.Epoch < uint32(x.seen.epoch()) || lacks) {
		st.Record = m.witness(s, i, Witness)
	}
	m.saw(x, makeToken(uint16(st.Record.Epoch), 0))
	return st
}

// outdated reports whether an answer to lock is of older data than its node had seen.
func (m *Model) outdated(ans fallback.LockAnswer, known token) bool {
	if m.Rewinds == 0 || !m.has(Witness) || ans.Record.Grace > 0 {
		return false
	}
	tok := makeToken(uint16(ans.Token.Epoch()), uint16(ans.Token.Seq()))
	return ans.Record.Epoch < uint32(known.epoch()) || ans.Verdict == fallback.Granted && tok <= known
}
