package arbitertest

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

var clockTests = []graceTest{
	{"a session outlives any step of the clock", time.Hour, outlivesSteps},
	{"a session that is not renewed expires after a step back", time.Hour, expiresAfterStep},
	{"Grace outlives any step of the clock", time.Hour, graceOutlivesSteps},
	{"Grace ends after a step back", time.Second, graceEndsAfterStep},
	{"tokens rise over steps of the clock", time.Hour, tokensRiseOverSteps},
}

// steps go forwards and back, further than any time to live.
var steps = []time.Duration{time.Hour, -2 * time.Hour, 3 * time.Hour}

func outlivesSteps(s *space, server Server) {
	other := s.attach()
	s.open("alice", 2*patience)
	for _, by := range steps {
		server.Step(by)
		for _, n := range []fallback.Namespace{s, other} {
			l := must(n.Dead(s.ctx, "alice", fallback.Stamp{}))(s)
			if l.Dead || l.Grace != 0 {
				s.t.Errorf("Dead after a step by %v: got %+v, want alive", by, l)
			}
			all := must(n.List(s.ctx))(s)
			_, listed := all.Sessions["alice"]
			want(s, "listed", listed, true)
			want(s, "Grace by List", all.Grace, 0)
		}
		want(s, "alive by Renew", s.renew("alice", 2*patience).Alive, true)
	}
}

func expiresAfterStep(s *space, server Server) {
	s.open("alice", 100*time.Millisecond)
	server.Step(-time.Hour)
	eventually(s, "alice expires", func() bool { return s.dead("alice").Dead })
	want(s, "alive by Renew", s.renew("alice", time.Hour).Alive, false)
}

func graceOutlivesSteps(s *space, server Server) {
	s.open("alice", time.Hour)
	server.save()
	server.Crash()
	for _, by := range append([]time.Duration{0}, steps...) {
		server.Step(by)
		want(s, "Lock", s.try(id("alice", 1), "k").Verdict, fallback.InGrace)
		want(s, "Acquire", s.acquire("alice", fallback.Expect{Epoch: s.load().Epoch}).Verdict, fallback.InGrace)
		inGrace(s, "Load", s.load().Grace)
		inGrace(s, "Dead", s.dead("bob").Grace)
		inGrace(s, "List", s.list().Grace)
		inGrace(s, "Renew", s.renew("alice", time.Hour).Grace)
		for _, state := range must(verify(s.ctx, s, []fallback.Read{{Partition: 1}, {Partition: 2}}))(s) { // which may be one operation
			inGrace(s, "Verify", state.Record.Grace)
		}
	}
}

func graceEndsAfterStep(s *space, server Server) {
	s.open("alice", time.Hour)
	server.save()
	server.Crash()
	want(s, "Lock", s.try(id("alice", 1), "k").Verdict, fallback.InGrace)
	inGrace(s, "Dead", s.dead("bob").Grace)
	server.Step(-time.Hour)
	eventually(s, "Grace of the partition ends", func() bool { return s.try(id("alice", 1), "k").Verdict == fallback.Granted })
	eventually(s, "Grace of the sessions ends", func() bool { return s.dead("bob").Dead })
	want(s, "Grace by List", s.list().Grace, 0)
}

func tokensRiseOverSteps(s *space, server Server) {
	var last fallback.Token
	for i, by := range append([]time.Duration{0}, steps...) {
		server.Step(by)
		s.demote("alice", s.own("alice"))
		me := id("alice", uint64(i+1))
		row := s.take(me, "k")
		if row.Token <= last {
			s.t.Errorf("after a step by %v: token %v, before %v", by, row.Token, last)
		}
		last = row.Token
		s.unlock(me, "k")
	}
}
