package arbitertest

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// burialTests are for arbiters that are a [fallback.Burier].
var burialTests = []test{
	{"a session is buried by enough votes for its recorded version, for ever", buried},
	{"a renewal changes the guardians, to later versions only", guardiansChange},
	{"a session without guardians is not buried", unguarded},
}

// enlist registers a session with its guardians.
func (s *space) enlist(session string, version uint32, set ...string) fallback.Renewal {
	s.t.Helper()
	return must(s.Renew(s.ctx, session, fallback.Registration{
		TTL: time.Hour, Info: "addr of " + session, Guardians: fallback.Guardians{Version: version, Set: set},
	}))(s)
}

func (s *space) bury(session string, version uint32, voters ...string) bool {
	s.t.Helper()
	b, ok := s.Namespace.(fallback.Burier)
	if !ok {
		s.t.Skip("the arbiter keeps no guardians")
	}
	r := must(b.Bury(s.ctx, session, version, voters))(s)
	if r.Grace != 0 || r.Dead != (r.Left == 0) || r.Left > time.Hour {
		s.t.Errorf("Bury(%s, %d, %v): got %+v", session, version, voters, r)
	}
	return r.Dead
}

func buried(s *space) {
	s.open("alice", time.Hour)
	s.open("bob", time.Hour)
	want(s, "version", s.enlist("alice", 4, "g1", "g2", "g3").Version, 4)
	want(s, "buried by one of three", s.bury("alice", 4, "g1"), false)
	want(s, "buried by strangers", s.bury("alice", 4, "g1", "x", "y"), false)
	want(s, "buried by one guardian twice", s.bury("alice", 4, "g1", "g1"), false)
	want(s, "buried for another version", s.bury("alice", 3, "g1", "g2", "g3"), false)
	want(s, "published", s.list().Sessions["alice"], "addr of alice")
	for range 2 { // a repetition is no error
		want(s, "buried by two of three", s.bury("alice", 4, "g3", "g1"), true)
		want(s, "Dead", s.dead("alice"), fallback.Liveness{Dead: true})
		want(s, "alive by Renew", s.renew("alice", time.Hour).Alive, false)
	}
	want(s, "bob dead", s.dead("bob").Dead, false)
}

func guardiansChange(s *space) {
	want(s, "version of a new session", s.open("alice", time.Hour).Version, 0)
	want(s, "version", s.enlist("alice", 2, "g1").Version, 2)
	want(s, "version, after Renew without guardians", s.renew("alice", time.Hour).Version, 2)
	want(s, "version, after Open without guardians", s.open("alice", time.Hour).Version, 2)
	want(s, "version, after a late renewal", s.enlist("alice", 1, "g2").Version, 2)
	want(s, "version", s.enlist("alice", 10, "g3", "g4").Version, 10)
	want(s, "buried by the set before", s.bury("alice", 2, "g1"), false)
	want(s, "buried by one of two", s.bury("alice", 10, "g3"), false)
	want(s, "version, when all guardians were dropped", s.enlist("alice", 11).Version, 11)
	want(s, "buried without guardians", s.bury("alice", 11, "g3", "g4"), false)
	want(s, "version", s.enlist("alice", 4_000_000_000, "g5").Version, 4_000_000_000)
	want(s, "buried by the only one", s.bury("alice", 4_000_000_000, "g5"), true)
}

func unguarded(s *space) {
	s.open("alice", time.Hour)
	want(s, "buried", s.bury("alice", 0, "g1", "g2"), false)
	s.open("bob", time.Hour)
	s.enlist("bob", 1)
	want(s, "buried, with an empty set", s.bury("bob", 1, "g1", "g2"), false)
	want(s, "a session that nobody opened: buried", s.bury("nobody", 0), true)
}
