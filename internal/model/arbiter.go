package model

import (
	"strconv"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/model/spec"
)

// The arbiter's side is package fallback's: each operation makes a fallback.Partition or
// fallback.Sessions of the state, runs the transition that the embedded arbiter runs, and reads the
// result. A guard that is inside of a transition is taken away from without: by another input, or
// by a change of the result.

const (
	key = "k"
	// epochZero is the time that epochs count seconds from (DESIGN.md): 2000-01-01, in Unix
	// seconds.
	epochZero = 946684800
	// epochsPerTick is how many seconds a tick has: more than there are transitions in one.
	epochsPerTick = 16
	tickMillis    = 1000 * epochsPerTick
)

var names = [maxNodes + 1]string{"", "1", "2", "3"}

// keys are the names of the key's holds, see rowset.
var keys = [maxNodes + 1]string{key, fallback.SharedName(key, "1"), fallback.SharedName(key, "2"), fallback.SharedName(key, "3")}

// downgraded are the names of shared holds for nodes that have the exclusive one. Once granted,
// they are like those of keys.
var downgraded = [maxNodes + 1]string{"", fallback.DowngradedName(key, "1"), fallback.DowngradedName(key, "2"), fallback.DowngradedName(key, "3")}

func nodeOf(session string) uint8 {
	if session == "" {
		return none
	}
	n, _ := strconv.Atoi(session)
	return uint8(n)
}

func (m *Model) moment(s *state) fallback.Moment {
	seconds := int64(s.clock)
	if m.has(Clock) {
		seconds += epochZero
	}
	return fallback.Moment{Now: 1000 * seconds, Server: "now", Grace: int64(m.Q) * tickMillis}
}

func until(now int64, ticks uint8) int64 {
	if ticks == 0 {
		return 0
	}
	return now + int64(ticks-1)*tickMillis
}

func ticksTo(now, end int64) uint8 {
	if end == 0 {
		return 0
	}
	return uint8((end-now)/tickMillis) + 1
}

var servers = [...]string{byThis: "now", byOther: "before", byNone: ""}

func serverOf(name string) uint8 {
	for i, n := range servers {
		if n == name {
			return uint8(i)
		}
	}
	panic("model: unknown server " + name)
}

func identity(who, req uint8) fallback.Identity {
	if who == none {
		return fallback.Identity{}
	}
	return fallback.Identity{Session: names[who], Request: uint64(req)}
}

func theirs(r row) fallback.Row {
	return fallback.Row{Identity: identity(r.who, r.req), Token: fallback.MakeToken(uint32(r.tok.epoch()), uint32(r.tok.seq()))}
}

func ours(r fallback.Row) row {
	return row{nodeOf(r.Session), uint8(r.Request), makeToken(uint16(r.Token.Epoch()), uint16(r.Token.Seq()))}
}

// each calls f with each row.
func (t *rowset) each(f func(name string, r fallback.Row)) {
	for k := range t {
		if t[k].who != none {
			f(keys[k], theirs(t[k]))
		}
	}
}

func rowsOf(rows map[string]fallback.Row) (t rowset) {
	if len(rows) > 0 {
		for k := range t {
			t[k] = ours(rows[keys[k]])
		}
	}
	return t
}

func (m *Model) fill(r *record, now int64) *fallback.Partition {
	p := &m.part
	clear(m.rows)
	r.rows.each(func(name string, r fallback.Row) { m.rows[name] = r })
	*p = fallback.Partition{
		Owner: names[r.owner], Epoch: uint32(r.epoch), Seq: uint32(r.seq), From: uint32(r.from),
		Server: servers[r.server], GraceEnd: until(now, r.grace),
	}
	p.SetRows(m.rows)
	return p
}

func read(p *fallback.Partition, now int64) record {
	r := record{
		owner: nodeOf(p.Owner), epoch: uint16(p.Epoch), seq: uint16(p.Seq), from: uint16(p.From),
		server: serverOf(p.Server), grace: ticksTo(now, p.GraceEnd),
	}
	r.rows = rowsOf(p.Rows)
	return r
}

// on runs an operation on the partition. It reports I6 if an epoch is given out that is not above
// all before, and I7 if something is taken in Grace; a reclaim takes nothing.
func (m *Model) on(s *state, takes bool, f func(fallback.Moment, *fallback.Partition)) {
	now := m.moment(s)
	if !m.has(Identity) && s.p.server != byNone {
		now.Server = servers[s.p.server]
	}
	p := m.fill(&s.p, now.Now)
	p.Load(now) // Grace begins or ends
	m.given(s, uint16(p.Epoch))
	s.p = read(p, now.Now)
	before, grace := s.p, p.GraceEnd
	anyway := grace != 0 && takes && !m.has(GraceTakesNothing)
	if anyway {
		p.GraceEnd = 0
	}
	f(now, p)
	if anyway {
		p.GraceEnd = grace
	}
	if takes {
		m.given(s, uint16(p.Epoch))
	}
	if s.p = read(p, now.Now); takes {
		if before.grace != 0 && s.p != before {
			m.violate(I7, "something was taken in Grace")
		}
	}
}

func (m *Model) given(s *state, epoch uint16) {
	if epoch == s.p.epoch {
		return
	}
	if epoch <= s.maxEpoch {
		m.violate(I6, "an epoch was given out that is not above all before")
	}
	s.maxEpoch = max(s.maxEpoch, epoch)
}

// load reads the record.
func (m *Model) load(s *state) (r fallback.Record) {
	m.on(s, false, func(now fallback.Moment, p *fallback.Partition) { r = p.Load(now) })
	return r
}

// acquire is Acquire by i, which expects that epoch, and that the owner is that one, seen dead.
func (m *Model) acquire(s *state, i uint8, epoch uint16, dead uint8) (got fallback.Acquisition) {
	m.on(s, true, func(now fallback.Moment, p *fallback.Partition) {
		x := fallback.Expect{Epoch: uint32(epoch), Owner: names[dead], OwnerDead: dead != none}
		if !m.has(EpochCompare) {
			x.Epoch = p.Epoch
		}
		got = p.Acquire(now, names[i], x)
	})
	if !m.has(ImportRows) {
		got.Rows = nil
	}
	if got.Verdict == fallback.Granted {
		e := of(spec.Acquired, i, uint16(got.Record.Epoch))
		e.Rows = listed(rowsOf(got.Rows))
		m.note(s, e)
	}
	return got
}

func (m *Model) demote(s *state, i uint8, epoch uint16, holds rowset) (d fallback.Demotion) {
	m.on(s, true, func(now fallback.Moment, p *fallback.Partition) {
		rows := make(map[string]fallback.Row)
		holds.each(func(name string, r fallback.Row) {
			if len(rows) == 0 || m.has(DemoteAll) {
				rows[name] = r
			}
		})
		if m.has(DemoteReplaces) {
			d = p.Demote(now, names[i], uint32(epoch), rows)
		} else {
			d = p.DemoteUnserved(now, names[i], uint32(epoch))
		}
	})
	return d
}

func (m *Model) demoteUnserved(s *state, i uint8, epoch uint16) (d fallback.Demotion) {
	m.on(s, true, func(now fallback.Moment, p *fallback.Partition) {
		if m.has(UnservedKeeps) {
			d = p.DemoteUnserved(now, names[i], uint32(epoch))
		} else {
			d = p.Demote(now, names[i], uint32(epoch), nil)
		}
	})
	return d
}

// lock is Lock for j, that evicts a row of a session that is dead, if there is one: perhaps one
// that is not in its own way.
func (m *Model) lock(s *state, j, req uint8, shared, down bool) (a fallback.LockAnswer) {
	mine := name(j, shared)
	q := fallback.LockRequest{Key: keys[mine], Me: identity(j, req), Block: 1}
	if down && s.p.rows[mine].who == none {
		q.Key = downgraded[mine]
	}
	for _, r := range s.p.rows {
		if r.who != none && r.who != j && (!m.has(DeadBeforeEvictRow) || m.isDead(s, j, r.who)) {
			q.Evict = identity(r.who, r.req)
			break
		}
	}
	m.on(s, true, func(now fallback.Moment, p *fallback.Partition) {
		owner := p.Owner
		if !m.has(OwnedRefusesLocks) {
			p.Owner = ""
		}
		var hidden rowset // that the guard looks at
		for k, r := range rowsOf(p.Rows) {
			if k == 0 && mine != 0 && !m.has(LockLooksExclusive) || k != 0 && mine == 0 && !m.has(LockLooksShared) || k == 0 && down && !m.has(Downgrades) {
				hidden[k] = r
				delete(p.Rows, keys[k])
			}
		}
		p.SetRows(p.Rows)
		a = p.Lock(now, q, nil)
		if r, ok := p.Rows[q.Key]; ok && q.Key != keys[mine] {
			delete(p.Rows, q.Key)
			p.Rows[keys[mine]] = r
		}
		hidden.each(func(name string, r fallback.Row) { p.Rows[name] = r })
		p.Owner = owner
	})
	if a.Verdict == fallback.Granted {
		m.note(s, about(spec.Locked, row{j, req, makeToken(uint16(a.Token.Epoch()), uint16(a.Token.Seq()))}, shared))
	}
	return a
}

func (m *Model) unlock(s *state, j, req uint8) {
	m.note(s, about(spec.Unlocked, row{j, req, 0}, false))
	m.on(s, false, func(now fallback.Moment, p *fallback.Partition) {
		id := identity(j, req)
		if !m.has(ExactUnlock) {
			id = p.Rows[key].Identity
		}
		p.Unlock(now, key, id, nil)
		p.Unlock(now, keys[j], id, nil)
	})
}

func (m *Model) adopt(s *state, r row, shared bool, at uint16) (ok bool) {
	key := keys[name(r.who, shared)]
	m.on(s, false, func(now fallback.Moment, p *fallback.Partition) {
		if !m.has(AdoptCompares) && p.GraceEnd == 0 {
			p.Rows[key] = theirs(r)
			p.SetRows(p.Rows)
		}
		ok = p.Adopt(now, key, theirs(r), uint32(at)) == fallback.Granted
	})
	return ok
}

func (m *Model) reclaimRow(s *state, r row, shared bool) (ok bool) {
	key := keys[name(r.who, shared)]
	m.on(s, false, func(now fallback.Moment, p *fallback.Partition) {
		before := *p
		grace := p.GraceEnd
		if !m.has(ReclaimInGrace) {
			p.GraceEnd = now.Now + 1
		}
		ok = p.ReclaimRow(now, key, theirs(r)) == fallback.Granted
		p.GraceEnd = grace
		if !m.has(ReclaimRaises) && p.Epoch != before.Epoch {
			p.Epoch, p.Owner, p.Seq, p.From = before.Epoch, before.Owner, before.Seq, before.From
		}
	})
	return ok
}

func (m *Model) reclaimOwner(s *state, i uint8, epoch uint16) (ok bool) {
	m.on(s, false, func(now fallback.Moment, p *fallback.Partition) {
		grace := p.GraceEnd
		if !m.has(ReclaimInGrace) {
			p.GraceEnd = now.Now + 1
		}
		ok = p.ReclaimOwner(now, names[i], uint32(epoch)).Verdict == fallback.Granted
		p.GraceEnd = grace
	})
	return ok
}

// verify is Verify of the partition.
func (m *Model) verify(s *state) (st fallback.State) {
	m.on(s, false, func(now fallback.Moment, p *fallback.Partition) {
		st = p.Verify(now, fallback.Read{Keys: keys[:m.Nodes+1]})
	})
	return st
}

func (m *Model) onSessions(s *state, f func(fallback.Moment, *fallback.Sessions)) {
	now := m.moment(s)
	clear(m.members)
	t := &m.table
	*t = fallback.Sessions{Members: m.members}
	if s.sServer == byNone { // the embedded arbiter formats a lost namespace again
		t.Mark(now, "mark", now.Grace)
	} else {
		t.Format, t.Server, t.GraceEnd = "mark", servers[s.sServer], until(now.Now, s.sGrace)
		for i := uint8(1); i <= m.Nodes; i++ {
			if s.expiry[i] != 0 {
				m.members[names[i]] = fallback.Member{Expiry: until(now.Now, s.expiry[i]), TTL: int64(m.T) * tickMillis}
			}
		}
	}
	f(now, t)
	s.sServer, s.sGrace = serverOf(t.Server), ticksTo(now.Now, t.GraceEnd)
	for i := uint8(1); i <= m.Nodes; i++ {
		s.expiry[i] = 0
		if x, ok := t.Members[names[i]]; ok {
			s.expiry[i] = ticksTo(now.Now, x.Expiry)
		}
	}
}

// isDead is Dead, asked by another node.
func (m *Model) isDead(s *state, by, i uint8) (dead bool) {
	m.onSessions(s, func(now fallback.Moment, t *fallback.Sessions) {
		m.compare(s, by, now, t)
		if !m.has(NobodyDiesInGrace) {
			t.Dead(now, names[i]) // notices the server
			t.GraceEnd = 0
			t.Server = now.Server
		}
		dead = t.Dead(now, names[i]).Dead
	})
	if dead {
		m.note(s, of(spec.Dead, i, 0))
	}
	if dead && s.node[i].life == alive {
		m.violate(I3, "the arbiter counts a session dead that lives by its own clock")
	}
	return dead
}

// buryAt is Bury with enough votes for the recorded version.
func (m *Model) buryAt(s *state, i uint8) {
	m.onSessions(s, func(now fallback.Moment, t *fallback.Sessions) {
		x := t.Members[names[i]]
		x.Guardians = fallback.Guardians{Version: 1, Set: []string{"guardian"}}
		t.Members[names[i]] = x
		t.Bury(now, names[i], 1, x.Guardians.Set)
	})
	m.note(s, of(spec.Dead, i, 0))
}

func (m *Model) renew(s *state, i uint8) (ok bool) {
	m.onSessions(s, func(now fallback.Moment, t *fallback.Sessions) {
		m.compare(s, i, now, t)
		r, _ := t.Renew(now, names[i], int64(m.T)*tickMillis, "")
		ok = r.Alive
	})
	m.tell(s, i)
	return ok
}

func (m *Model) open(s *state, i uint8) {
	m.onSessions(s, func(now fallback.Moment, t *fallback.Sessions) {
		delete(t.Members, names[i]) // it stands for one that never was
		t.Open(now, names[i], int64(m.T)*tickMillis, "")
	})
	s.backup.expiry[i] = 0
	m.tell(s, i)
}
