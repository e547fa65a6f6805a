package fallback

import (
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/guard"
)

// Sessions is the table of sessions of a namespace, with its format mark. Both are lost or kept as
// one. The zero Sessions is one that the server has lost, or of a namespace that was never
// formatted. As with [Partition], its methods are the transitions, deterministic, each run
// atomically.
type Sessions struct {
	Format   string            // the format mark; empty until the namespace is formatted
	Server   string            // name of the server that wrote this
	Process  string            // and its process
	Name     string            // the server's name when the last Grace began: it stays when the server takes another name
	GraceEnd int64             // by the server's clock, Unix milliseconds; 0: not in Grace
	Changed  int64             // of sessions that are opened on all replicas: the GraceEnd that a change of server has set last
	Secrets  string            // see DecodeSecrets
	Members  map[string]Member // by session
	Born     uint32            // in a durable store: the epoch of partitions that never had a record
	Made     []byte            // in a durable store: a bit for each partition, from bit 0 of byte 0 on: it has a record
	Round    SpokenRound       // it may end Grace early
}

// A Member is a session's entry.
type Member struct {
	Expiry int64  // by the server's clock, Unix milliseconds
	TTL    int64  // milliseconds; 0: it was buried, and the entry says so for Grace, to the session if it lives
	Info   string // published by the session
	Beat   int64  // in a store without a clock: raised by each renewal
	Older  bool   // this process has seen a later beat: the store has lost that renewal. Never stored

	Guardians Guardians
	Terms     Terms
}

// enter comes before everything else: it notices a server that is not the one that wrote the table,
// and the end of Grace. It reports false if the table is lost.
func (s *Sessions) enter(m Moment) bool {
	if s.Format == "" {
		return false
	}
	m.Grace = s.length(m)
	if !guard.Grace {
		m.Grace = 0
	}
	if s.Server != m.Server {
		if !m.renamed(s.Process) {
			whole := m.Now >= s.GraceEnd || s.complete() || !guard.Chained
			s.Name, s.GraceEnd, s.Round = m.Server, m.Now+m.Grace, SpokenRound{}
			if s.Changed = 0; s.opened() && whole {
				s.Changed = s.GraceEnd
			}
		}
		s.Server, s.Process = m.Server, m.Process
	}
	s.GraceEnd = min(s.GraceEnd, m.Now+m.Grace)
	if m.Now >= s.GraceEnd {
		s.GraceEnd = 0
	}
	for id, x := range s.Members {
		if x.Expiry > m.Now+x.TTL { // the clock stepped back
			x.Expiry = m.Now + x.TTL
			s.Members[id] = x
		}
	}
	return true
}

// tidy removes those that have expired where each of them would be waited for after a failover: now
// and then, as it looks at all.
func (s *Sessions) tidy(m Moment) {
	if s.opened() && s.GraceEnd == 0 && m.Now/1000%tidyEvery == 0 {
		s.sweep(m)
	}
}

// tidyEvery is in which seconds renewals do: those of a whole number of times that.
const tidyEvery = 16

// opened reports whether sessions count once all replicas of the server have them (E7).
func (s *Sessions) opened() bool {
	_, ok := CutOpenings(s.Format)
	return ok
}

// complete reports whether the table has all sessions there are: it is in no Grace; or in one that
// a change of server began, and a session counts once all replicas have it (E7). In that one it may
// lack renewals.
func (s *Sessions) complete() bool {
	return s.GraceEnd == 0 || s.opened() && s.GraceEnd == s.Changed
}

// older begins Grace because the table is one of older data, which has no round.
func (s *Sessions) older(m Moment) {
	s.GraceEnd, s.Changed, s.Round = m.Now+s.length(m), 0, SpokenRound{}
}

// length is for how long the table is in Grace, whatever the caller uses.
func (s *Sessions) length(m Moment) int64 { return max(m.Grace, s.Grace()) }

func (s *Sessions) grace(m Moment) time.Duration {
	if s.GraceEnd == 0 {
		return 0
	}
	return time.Duration(s.GraceEnd-m.Now) * time.Millisecond
}

// Mark sets the format mark of a namespace after its partitions have been formatted, with Grace for
// the milliseconds given. It returns the mark in force, which is another process's if that one was
// faster.
func (s *Sessions) Mark(m Moment, mark string, grace int64) string {
	if s.Format == "" {
		s.Format, s.Server, s.Process, s.Name, s.GraceEnd = mark, m.Server, m.Process, m.Server, m.Now+grace
		if !guard.LostLacks { // else Changed stays 0: no change of server has begun this Grace (E8)
			s.Changed = s.GraceEnd
		}
	}
	s.enter(m)
	return s.Format
}

// Open is [SessionStore.Open]. ok is false if the table is lost.
func (s *Sessions) Open(m Moment, id string, ttl int64, info string) (r Renewal, ok bool) {
	if !s.enter(m) {
		return Renewal{}, false
	}
	if _, exists := s.Members[id]; exists {
		return s.Renew(m, id, ttl, info)
	}
	if s.GraceEnd == 0 {
		s.sweep(m) // the sessions that others left
	}
	s.put(id, Member{Expiry: m.Now + ttl, TTL: ttl, Info: info})
	return Renewal{Alive: true, Server: s.Name, Grace: s.grace(m), Sessions: len(s.Members), Secrets: s.secrets(m)}, true
}

// secrets returns the secrets as they are told. A malformed one, which no arbiter stores, is as
// none.
func (s *Sessions) secrets(m Moment) Secrets {
	all, _ := DecodeSecrets(s.Secrets, m.Now)
	return all
}

// Renew is [SessionStore.Renew]. ok is false if the table is lost.
func (s *Sessions) Renew(m Moment, id string, ttl int64, info string) (r Renewal, ok bool) {
	if !s.enter(m) {
		return Renewal{}, false
	}
	x, exists := s.Members[id]
	if !exists && s.GraceEnd != 0 && s.complete() && guard.Missing {
		s.older(m) // it lacks one: it is of a backup, say (E8)
	}
	alive := exists && m.Now < x.Expiry || s.GraceEnd != 0 && (!exists || x.TTL > 0)
	if alive {
		s.put(id, Member{Expiry: m.Now + ttl, TTL: ttl, Info: info, Beat: x.Beat, Guardians: x.Guardians, Terms: x.Terms})
	}
	r = Renewal{Alive: alive, Server: s.Name, Grace: s.grace(m), Missed: alive && !exists}
	if alive {
		r.Sessions, r.Secrets = len(s.Members), s.secrets(m)
	}
	return r, true
}

func (s *Sessions) put(id string, x Member) {
	if s.Members == nil {
		s.Members = make(map[string]Member)
	}
	s.Members[id] = x
}

// Witness compares the entry of a session with the Stamp of its last renewal, before anything else
// is done. An entry that is missing, or that expires sooner by more than half of its time to live,
// is of older data: Grace begins. A Stamp that has expired is no evidence, and neither is an entry
// that was shortened because the clock stepped back.
func (s *Sessions) Witness(m Moment, by Stamp) {
	if !s.enter(m) || s.GraceEnd != 0 || by.Seen <= m.Now || !guard.Witness {
		return
	}
	x, exists := s.Members[by.Session]
	if !exists || x.Older || by.Seen <= m.Now+x.TTL && 2*x.Expiry+x.TTL < 2*by.Seen {
		s.older(m)
	}
}

// Dead is [SessionStore.Dead]. A lost table is in Grace, for it is about to be. In Grace it says so
// of none (E7).
func (s *Sessions) Dead(m Moment, id string) Liveness {
	if !s.enter(m) {
		return Liveness{Grace: time.Duration(m.Grace) * time.Millisecond}
	}
	x, exists := s.Members[id]
	switch {
	case s.GraceEnd != 0:
		return Liveness{Grace: s.grace(m)}
	case !exists || m.Now >= x.Expiry:
		return Liveness{Dead: true}
	}
	return Liveness{Left: time.Duration(x.Expiry-m.Now) * time.Millisecond}
}

// Declare is Dead for an arbiter that reads its clock some time before it writes: a renewal may
// have read the table before the session expired, and be written after this answer. So a session
// that is said to be dead is removed. Then that renewal finds another table, and a session that is
// dead for ever.
func (s *Sessions) Declare(m Moment, id string) Liveness {
	l := s.Dead(m, id)
	if l.Dead && s.Members[id].TTL > 0 { // one that was buried stays for Grace
		delete(s.Members, id)
	}
	return l
}

// sweep removes those that have expired. In Grace none has.
func (s *Sessions) sweep(m Moment) {
	maps.DeleteFunc(s.Members, func(_ string, x Member) bool {
		return x.Expiry <= m.Now && (x.TTL > 0 || x.Expiry+s.length(m) <= m.Now)
	})
}

// List is [SessionStore.List]. A lost table is in Grace, for it is about to be.
func (s *Sessions) List(m Moment) Listing {
	all := make(map[string]string)
	if !s.enter(m) {
		return Listing{all, time.Duration(m.Grace) * time.Millisecond}
	}
	if s.GraceEnd == 0 {
		s.sweep(m)
	}
	for id, x := range s.Members {
		if x.TTL > 0 && (s.GraceEnd == 0 || x.Expiry > s.GraceEnd-2*s.length(m)) {
			all[id] = x.Info
		}
	}
	return Listing{all, s.grace(m)}
}

// CloseSession is [SessionStore.CloseSession].
func (s *Sessions) CloseSession(m Moment, id string) {
	s.enter(m)
	delete(s.Members, id)
}

// Clone returns a copy that shares nothing.
func (s *Sessions) Clone() *Sessions {
	c := *s
	c.Members, c.Made = maps.Clone(s.Members), slices.Clone(s.Made)
	c.Round.Spoken = slices.Clone(s.Round.Spoken)
	return &c
}
