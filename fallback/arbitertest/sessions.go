package arbitertest

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

var sessionTests = []test{
	{"a session is alive once it was opened", opened},
	{"a session that nobody opened is dead", neverOpened},
	{"Open of a session that exists renews it", openAgain},
	{"Renew extends the session, to the time given", renewed},
	{"Renew cannot create a session", renewedUnopened},
	{"a session that is not renewed expires, and never revives", expired},
	{"renewals keep a session alive beyond its first expiry", keptAlive},
	{"a closed session is dead", closedSession},
	{"a list has the sessions that are alive, and tells that there is no Grace", listed},
	{"a session that the table does not have, and that knows to be alive, begins Grace", missedSession},
	{"every answer names the same server", serverName},
}

func opened(s *space) {
	r := s.open("alice", time.Hour)
	want(s, "alive", r.Alive, true)
	want(s, "Grace", r.Grace, 0)
	l := s.dead("alice")
	if l.Dead || l.Grace != 0 || l.Left <= 0 || l.Left > time.Hour {
		s.t.Errorf("Dead: got %+v, want alive for an hour at most", l)
	}
}

func neverOpened(s *space) {
	s.open("alice", time.Hour)
	want(s, "Dead", s.dead("bob"), fallback.Liveness{Dead: true})
}

func openAgain(s *space) {
	s.open("alice", time.Hour)
	want(s, "alive", s.open("alice", 3*time.Hour).Alive, true)
	if left := s.dead("alice").Left; left <= time.Hour {
		s.t.Errorf("left after the second Open: %v", left)
	}
}

func renewed(s *space) {
	s.open("alice", time.Hour)
	for _, ttl := range []time.Duration{3 * time.Hour, 3 * time.Hour, 2 * time.Hour} {
		r := s.renew("alice", ttl)
		want(s, "alive", r.Alive, true)
		want(s, "Grace", r.Grace, 0)
		if left := s.dead("alice").Left; left <= ttl-time.Hour || left > ttl {
			s.t.Errorf("left after Renew for %v: %v", ttl, left)
		}
	}
}

func renewedUnopened(s *space) {
	for range 2 {
		want(s, "alive", s.renew("alice", time.Hour).Alive, false)
		want(s, "Dead", s.dead("alice"), fallback.Liveness{Dead: true})
	}
}

func expired(s *space) {
	s.open("alice", 100*time.Millisecond)
	s.open("bob", time.Hour)
	eventually(s, "alice expires", func() bool { return s.dead("alice").Dead })
	for range 2 {
		want(s, "alive by Renew", s.renew("alice", time.Hour).Alive, false)
		want(s, "Dead", s.dead("alice"), fallback.Liveness{Dead: true})
		s.open("carol", time.Hour) // may sweep those that have expired
	}
	want(s, "bob dead", s.dead("bob").Dead, false)
}

// The time to live is so long that no slow machine makes this fail, and the first one is over when
// it ends.
func keptAlive(s *space) {
	s.open("alice", patience)
	s.open("clock", 150*time.Millisecond)
	eventually(s, "the clock expires", func() bool {
		return !s.renew("alice", patience).Alive || s.dead("clock").Dead
	})
	want(s, "alice dead", s.dead("alice").Dead, false)
}

func closedSession(s *space) {
	s.open("alice", time.Hour)
	s.open("bob", time.Hour)
	for range 2 { // a repetition is no error
		if err := s.CloseSession(s.ctx, "alice"); err != nil {
			s.t.Fatal(err)
		}
		want(s, "Dead", s.dead("alice"), fallback.Liveness{Dead: true})
		want(s, "alive by Renew", s.renew("alice", time.Hour).Alive, false)
	}
	want(s, "bob dead", s.dead("bob").Dead, false)
}

func listed(s *space) {
	want(s, "List of a new table", s.list(), fallback.Listing{Sessions: map[string]string{}})
	for _, session := range []string{"alice", "bob", "carol"} {
		s.open(session, time.Hour)
	}
	if err := s.CloseSession(s.ctx, "carol"); err != nil {
		s.t.Fatal(err)
	}
	for range 2 {
		want(s, "List", s.list(), fallback.Listing{Sessions: map[string]string{"alice": "addr of alice", "bob": "addr of bob"}})
	}
}

// The table has older data than the session, as from a backup: it was never opened there.
func missedSession(s *space) {
	at := s.open("alice", time.Hour).Expiry
	for _, seen := range []int64{0, 1, at - time.Hour.Milliseconds()} {
		r := must(s.Renew(s.ctx, "later", fallback.Registration{TTL: time.Hour, Seen: seen}))(s)
		want(s, "alive by what it was told long ago", r.Alive, false)
	}
	alive := must(s.Dead(s.ctx, "bob", fallback.Stamp{Session: "alice", Seen: at}))(s)
	want(s, "Dead, asked by a session that is there", alive, fallback.Liveness{Dead: true})
	inGrace(s, "Dead", must(s.Dead(s.ctx, "bob", fallback.Stamp{Session: "later", Seen: at}))(s).Grace)
	r := must(s.Renew(s.ctx, "later", fallback.Registration{TTL: time.Hour, Info: "addr", Seen: at}))(s)
	inGrace(s, "Renew", r.Grace)
	want(s, "alive", r.Alive, true)
	if r.Expiry < at {
		s.t.Errorf("Expiry: got %d, want at least %d", r.Expiry, at)
	}
}

func serverName(s *space) {
	first := s.open("alice", time.Hour).Server
	want(s, "a name, as the arbiter is guarded", first != "", s.Guarded())
	want(s, "server", s.renew("alice", time.Hour).Server, first)
	want(s, "server", s.renew("nobody", time.Hour).Server, first)
}
