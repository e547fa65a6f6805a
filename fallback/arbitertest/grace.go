package arbitertest

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

var graceTests = []graceTest{
	{"no session is opened that needs a longer Grace, while sessions may be missing", time.Hour, longerInGrace},
	{"in Grace nothing is taken", time.Hour, nothingTaken},
	{"in Grace what the server still has stays as it is", time.Hour, staysAsItIs},
	{"in Grace a hold can be released", time.Hour, releasedInGrace},
	{"in Grace nobody is dead", time.Hour, nobodyDead},
	{"in Grace a list says so, which may lack sessions", time.Hour, listInGrace},
	{"in Grace Renew recreates a session", time.Hour, renewRecreates},
	{"what a server lost is reclaimed", time.Hour, reclaimLost},
	{"what a server has older gives way", time.Hour, reclaimOlder},
	{"a holder of a later epoch ends the ownership of an earlier one", time.Hour, laterEpoch},
	{"a process that attaches in Grace is in Grace", time.Hour, attachInGrace},
	{"a listener hears of a gap, and again of what comes after it", time.Hour, gap},
	{"Grace ends, with a new epoch for what nobody owns", 500 * time.Millisecond, graceEnds},
	{"after Grace the dead are dead", 500 * time.Millisecond, deadAfterGrace},
	{"after Grace a list says so, and has all sessions", 500 * time.Millisecond, listAfterGrace},
	{"tokens rise over the loss of all data", 2 * time.Second, tokensRiseOverLoss},
	{"every server has another name", time.Hour, serverNames},
}

// inGrace checks the time left of Grace in an answer: Grace has begun, and is not over.
func inGrace(s *space, what string, left time.Duration) {
	s.t.Helper()
	if left <= 0 || left > s.settings.Grace {
		s.t.Errorf("%s: %v left of Grace, want up to %v", what, left, s.settings.Grace)
	}
}

// saved is the state of a test when it saves the store's state.
type saved struct {
	rows   map[string]fallback.Row // of partition 0
	owners map[string]fallback.Ownership
}

// crash crashes the server. The saved state is in the store then: from the copy, or, in a store
// that is always empty, reclaimed.
func (s *space) crash(server Server, was saved) {
	s.t.Helper()
	server.Crash()
	if server.Save != nil {
		return
	}
	s.t.Log(server.AlwaysEmpty)
	for key, row := range was.rows { // first: a row of a later epoch would end the ownership
		want(s, "ReclaimRow of what a copy would have", s.reclaimRow(key, row), fallback.Granted)
	}
	for owner, o := range was.owners {
		want(s, "ReclaimOwners of what a copy would have", s.reclaimOwners(owner, o)[0], fallback.Granted)
	}
}

func nothingTaken(s *space, server Server) {
	rows := map[string]fallback.Row{"k": s.take(id("alice", 1), "k"), "kk": s.take(id("ghost", 1), "kk")}
	free := must(s.Load(s.ctx, 1))(s)
	owned := s.own("owner")
	server.save()
	s.crash(server, saved{rows, map[string]fallback.Ownership{"owner": {Epoch: owned}}})

	table := map[string]fallback.Row{"x": {Identity: id("owner", 1), Token: fallback.MakeToken(owned, 1)}}
	for range 2 {
		for _, r := range []fallback.LockRequest{
			{Partition: 1, Key: "free", Me: id("bob", 1)},
			{Partition: 0, Key: "k", Me: id("bob", 1), Wait: true},
			{Partition: 0, Key: "k", Me: id("alice", 1)},
			{Partition: 0, Key: "kk", Me: id("bob", 1), Evict: id("ghost", 1)},
		} {
			a := s.ask(r)
			want(s, "verdict of Lock", a.Verdict, fallback.InGrace)
			want(s, "token", a.Token, 0)
			inGrace(s, "Lock", a.Record.Grace)
		}
		for p, x := range []fallback.Expect{{Epoch: owned, Owner: "owner", OwnerDead: true}, {Epoch: free.Epoch}} {
			a := must(s.Acquire(s.ctx, uint32(p), "bob", x))(s)
			want(s, "verdict of Acquire", a.Verdict, fallback.InGrace)
			want(s, "rows", len(a.Rows), 0)
			inGrace(s, "Acquire", a.Record.Grace)
		}
		for what, d := range map[string]fallback.Demotion{
			"Demote":         must(s.Demote(s.ctx, 0, "owner", owned, table))(s),
			"DemoteUnserved": must(s.DemoteUnserved(s.ctx, 0, "owner", owned))(s),
		} {
			want(s, "verdict of "+what, d.Verdict, fallback.InGrace)
			want(s, "owner", d.Record.Owner, "owner")
			inGrace(s, what, d.Record.Grace)
		}
		for p := range uint32(s.settings.Partitions) {
			inGrace(s, "Load", must(s.Load(s.ctx, p))(s).Grace)
		}
	}
	r := s.load()
	r.Grace = 0
	want(s, "record", r, fallback.Record{Owner: "owner", Epoch: owned})
	want(s, "row of the owner's table", s.rows("x")[0], fallback.Row{})
}

func staysAsItIs(s *space, server Server) {
	rows := []fallback.Row{s.take(id("alice", 1), "k"), s.take(id("bob", 1), "kk")}
	epoch := s.own("owner")
	must(s.Acquire(s.ctx, 1, "other", fallback.Expect{Epoch: must(s.Load(s.ctx, 1))(s).Epoch}))(s)
	before := must(s.Load(s.ctx, 1))(s)
	server.save()
	s.crash(server, saved{
		map[string]fallback.Row{"k": rows[0], "kk": rows[1]},
		map[string]fallback.Ownership{"owner": {Epoch: epoch}, "other": {Partition: 1, Epoch: before.Epoch}},
	})
	want(s, "rows", s.rows("k", "kk"), rows)
	for i, row := range rows {
		want(s, "ReclaimRow of what is there", s.reclaimRow([]string{"k", "kk"}[i], row), fallback.Granted)
		want(s, "Adopt of what is there", s.adopt([]string{"k", "kk"}[i], row), fallback.Granted)
	}
	want(s, "ReclaimOwner of what is there", s.reclaimOwner("owner", epoch), fallback.Granted)
	want(s, "rows", s.rows("k", "kk"), rows)
	for p, r := range []fallback.Record{{Owner: "owner", Epoch: epoch}, before} {
		now := must(s.Load(s.ctx, uint32(p)))(s)
		inGrace(s, "Load", now.Grace)
		now.Grace = 0
		want(s, "record", now, r)
	}
}

func releasedInGrace(s *space, server Server) {
	row := s.take(id("alice", 1), "k")
	kept := s.take(id("bob", 1), "kk")
	server.save()
	s.crash(server, saved{rows: map[string]fallback.Row{"k": row, "kk": kept}})
	s.unlock(id("alice", 2), "k")
	want(s, "row", s.rows("k")[0], row)
	for range 2 {
		s.unlock(id("alice", 1), "k")
		want(s, "rows", s.rows("k", "kk"), []fallback.Row{{}, kept})
	}
}

func nobodyDead(s *space, server Server) {
	s.open("alice", time.Hour)
	s.open("ghost", 50*time.Millisecond)
	server.save()
	eventually(s, "the ghost expires", func() bool { return s.dead("ghost").Dead })
	server.Crash()
	for range 2 {
		for _, session := range []string{"alice", "ghost", "nobody"} {
			l := s.dead(session)
			want(s, "dead", l.Dead, false)
			inGrace(s, "Dead of "+session, l.Grace)
		}
	}
}

// The first call of another server is a List: with no data, and then with data.
func listInGrace(s *space, server Server) {
	s.open("alice", time.Hour)
	s.open("bob", time.Hour)
	server.Crash()
	for range 2 {
		all := s.list()
		inGrace(s, "List of a table that is lost", all.Grace)
		want(s, "sessions", all.Sessions, map[string]string{})
	}
	recreated := map[string]string{"alice": "addr of alice"}
	s.renew("alice", time.Hour)
	all := s.list()
	inGrace(s, "List", all.Grace)
	want(s, "sessions", all.Sessions, recreated)
	server.save()
	server.Crash()
	all = s.list()
	inGrace(s, "List by another server", all.Grace)
	if server.Save != nil {
		want(s, "sessions", all.Sessions, recreated)
	}
}

func listAfterGrace(s *space, server Server) {
	s.open("alice", time.Hour)
	s.open("ghost", time.Hour)
	server.Crash()
	s.renew("alice", time.Hour)
	eventually(s, "Grace ends, by List alone", func() bool { return s.list().Grace == 0 })
	want(s, "List", s.list(), fallback.Listing{Sessions: map[string]string{"alice": "addr of alice"}})
	want(s, "the ghost dead", s.dead("ghost").Dead, true)
}

func renewRecreates(s *space, server Server) {
	s.open("alice", time.Hour)
	s.open("ghost", 50*time.Millisecond)
	eventually(s, "the ghost expires", func() bool { return s.dead("ghost").Dead })
	server.Crash()
	for _, session := range []string{"alice", "ghost", "alice", "nobody"} {
		r := s.renew(session, time.Hour)
		want(s, "alive", r.Alive, true)
		inGrace(s, "Renew of "+session, r.Grace)
	}
	r := s.open("newcomer", time.Hour)
	want(s, "alive", r.Alive, true)
	inGrace(s, "Open", r.Grace)
}

func reclaimLost(s *space, server Server) {
	fallbackRow := s.take(id("alice", 1), "k")
	shared := fallbackRow.Token.Epoch()
	owned := must(s.Acquire(s.ctx, 1, "owner", fallback.Expect{Epoch: must(s.Load(s.ctx, 1))(s).Epoch}))(s).Record.Epoch
	granted := fallback.Row{Identity: id("bob", 1), Token: fallback.MakeToken(owned, 9)}
	server.Crash()

	want(s, "row", s.rows("k")[0], fallback.Row{})
	for range 2 {
		want(s, "ReclaimRow", s.reclaimRow("k", fallbackRow), fallback.Granted)
		want(s, "row", s.rows("k")[0], fallbackRow)
	}
	r := s.load()
	want(s, "owner", r.Owner, "")
	want(s, "epoch", r.Epoch, shared)
	inGrace(s, "Load", r.Grace)

	for range 2 {
		want(s, "ReclaimOwner", s.reclaimOwners("owner", fallback.Ownership{Partition: 1, Epoch: owned})[0], fallback.Granted)
		want(s, "Adopt", s.restore(1, fallback.Claim{Key: "k", Row: granted, Owned: owned})[0], fallback.Granted)
		state := must(verify(s.ctx, s, []fallback.Read{{Partition: 1, Keys: []string{"k"}}}))(s)[0]
		inGrace(s, "Verify", state.Record.Grace)
		want(s, "owner", state.Record.Owner, "owner")
		want(s, "epoch", state.Record.Epoch, owned)
		want(s, "row", state.Rows[0], granted)
	}

	lower := fallback.Row{Identity: id("carol", 1), Token: granted.Token - 1}
	want(s, "ReclaimRow below", s.restore(1, fallback.Claim{Key: "k", Row: lower})[0], fallback.Lost)
	want(s, "Adopt below", s.restore(1, fallback.Claim{Key: "k", Row: lower, Owned: owned})[0], fallback.Lost)
	want(s, "ReclaimOwner below", s.reclaimOwners("carol", fallback.Ownership{Partition: 1, Epoch: owned - 1})[0], fallback.Lost)
}

func reclaimOlder(s *space, server Server) {
	old := s.take(id("ghost", 1), "k")
	server.save()
	s.unlock(id("ghost", 1), "k")
	row := s.take(id("alice", 1), "k")
	epoch := s.own("owner")
	s.crash(server, saved{rows: map[string]fallback.Row{"k": old}})

	want(s, "row", s.rows("k")[0], old)
	want(s, "owner", s.load().Owner, "")
	want(s, "ReclaimRow", s.reclaimRow("k", row), fallback.Granted)
	want(s, "row", s.rows("k")[0], row)
	want(s, "ReclaimRow of the older", s.reclaimRow("k", old), fallback.Lost)
	want(s, "ReclaimOwner", s.reclaimOwner("owner", epoch), fallback.Granted)
	want(s, "ReclaimOwner of an older epoch", s.reclaimOwner("ghost", epoch-1), fallback.Lost)
	want(s, "row", s.rows("k")[0], row)
	r := s.load()
	want(s, "owner", r.Owner, "owner")
	want(s, "epoch", r.Epoch, epoch)
}

func laterEpoch(s *space, server Server) {
	old := s.own("owner")
	server.save()
	s.demote("owner", old)
	row := s.take(id("alice", 1), "k")
	s.crash(server, saved{owners: map[string]fallback.Ownership{"owner": {Epoch: old}}})

	want(s, "owner", s.load().Owner, "owner")
	want(s, "ReclaimRow", s.reclaimRow("k", row), fallback.Granted)
	r := s.load()
	want(s, "owner", r.Owner, "")
	want(s, "epoch", r.Epoch, row.Token.Epoch())
	want(s, "ReclaimOwner of the earlier epoch", s.reclaimOwner("owner", old), fallback.Lost)
	want(s, "row", s.rows("k")[0], row)
}

func attachInGrace(s *space, server Server) {
	s.open("alice", time.Hour)
	server.Crash()
	inGrace(s, "Renew", s.renew("alice", time.Hour).Grace)
	other := s.attach()
	for p := range uint32(s.settings.Partitions) {
		inGrace(s, "Load", must(other.Load(s.ctx, p))(s).Grace)
	}
	inGrace(s, "Dead", must(other.Dead(s.ctx, "nobody", fallback.Stamp{}))(s).Grace)
	inGrace(s, "List", must(other.List(s.ctx))(s).Grace)
	if b, ok := other.(fallback.Burier); ok {
		inGrace(s, "Bury", must(b.Bury(s.ctx, "nobody", 1, nil))(s).Grace)
	}
	inGrace(s, "Open", must(other.Open(s.ctx, "bob", fallback.Registration{TTL: time.Hour}))(s).Grace)
}

func gap(s *space, server Server) {
	if mute(s.Namespace) {
		s.t.Skip("the namespace is mute")
	}
	epoch := s.own("owner")
	in := s.listen("owner")
	server.save()
	server.Crash()
	for in.next().Kind != fallback.Gap {
	}
	if err := s.Revoke(s.ctx, 0, epoch, "operator"); err != nil {
		s.t.Fatal(err)
	}
	message := fallback.Message{Kind: fallback.Gap}
	for message.Kind == fallback.Gap { // the connection may break more than once
		message = in.next()
	}
	want(s, "message", message, fallback.Message{Kind: fallback.Revoked, Epoch: epoch})
}

func graceEnds(s *space, server Server) {
	row := s.take(id("alice", 1), "k")
	rows := map[string]fallback.Row{"k": row, "kk": s.take(id("alice", 2), "kk")}
	a := must(s.Acquire(s.ctx, 1, "owner", fallback.Expect{Epoch: must(s.Load(s.ctx, 1))(s).Epoch}))(s)
	server.save()
	s.crash(server, saved{rows, map[string]fallback.Ownership{"owner": {Partition: 1, Epoch: a.Record.Epoch}}})
	eventually(s, "Grace ends", func() bool {
		return s.load().Grace+must(s.Load(s.ctx, 1))(s).Grace == 0
	})
	r := s.load()
	want(s, "owner", r.Owner, "")
	want(s, "a later epoch", r.Epoch > row.Token.Epoch(), true)
	want(s, "record of an owner", must(s.Load(s.ctx, 1))(s), a.Record)
	want(s, "row", s.rows("k")[0], row)
	want(s, "holder", s.try(id("bob", 1), "k").Holder, row)
	s.unlock(id("alice", 2), "kk")
	next := s.take(id("bob", 1), "kk")
	want(s, "a token of the new epoch", next.Token.Epoch(), r.Epoch)
	want(s, "epoch", s.load().Epoch, r.Epoch)
}

func deadAfterGrace(s *space, server Server) {
	s.open("alice", time.Hour)
	s.open("ghost", time.Hour)
	server.Crash()
	s.renew("alice", time.Hour)
	eventually(s, "the ghost, which did not renew, is dead", func() bool { return s.dead("ghost").Dead })
	want(s, "alice dead", s.dead("alice").Dead, false)
	want(s, "the ghost alive by Renew", s.renew("ghost", time.Hour).Alive, false)
	r := s.renew("alice", time.Hour)
	want(s, "alice alive", r.Alive, true)
	want(s, "Grace", r.Grace, 0)
}

// I2. The store lost everything, so the epoch comes from its clock.
func tokensRiseOverLoss(s *space, server Server) {
	s.open("alice", time.Hour)
	last := s.take(id("alice", 1), "k").Token
	server.Crash()
	s.renew("alice", time.Hour)
	var a fallback.LockAnswer
	eventually(s, "Grace ends", func() bool {
		a = s.try(id("bob", 1), "k")
		return a.Verdict == fallback.Granted
	})
	if a.Token <= last {
		s.t.Errorf("token %v after %v", a.Token, last)
	}
}

func serverNames(s *space, server Server) {
	seen := map[string]bool{s.open("alice", time.Hour).Server: true}
	for i := range 2 {
		if i == 1 {
			server.save()
		}
		server.Crash()
		r := s.renew("alice", time.Hour)
		if r.Server == "" || seen[r.Server] {
			s.t.Errorf("crash %d: the server's name is %q again", i, r.Server)
		}
		seen[r.Server] = true
	}
}
