package arbitertest

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/fallback"
)

var ownerTests = []test{
	{"Acquire makes a Shared partition Owned and hands over all rows", acquireShared},
	{"Acquire repeated by the owner gives the same epoch", acquireAgain},
	{"Acquire takes over from an owner that was seen dead", acquireDead},
	{"Acquire conflicts with any other record than expected", acquireConflicts},
	{"of many who acquire one wins", acquireAtOnce},
	{"an Owned partition refuses Lock and names its owner", ownedRefuses},
	{"Unlock works in an Owned partition", unlockOwned},
	{"Demote replaces the rows by the owner's", demoteReplaces},
	{"DemoteUnserved keeps the rows", demoteKeeps},
	{"only the owner of the epoch demotes, and once", demoteStale},
	{"every transition begins a new epoch", epochsRise},
	{"Witness of what was given out changes nothing", witnessed},
	{"Witness of what the record is below begins Grace", witnessedAbove},
	{"Revoke marks the record and tells the owner", revoked},
	{"Revoke of another epoch does nothing", revokedElse},
	{"Adopt writes the row of a hold that the owner granted", adopts},
	{"Adopt at another epoch is lost, unless the row is there", adoptsLate},
	{"Adopt at the epoch whose owner answers for an older hold", adoptsVouched},
	{"Restore writes many rows of several partitions", restoresMany},
	{"Adopt loses against a row with a higher token", adoptsLower},
	{"outside Grace nothing is reclaimed", reclaimOutside},
}

func acquireShared(s *space) {
	rows := map[string]fallback.Row{"k": s.take(id("alice", 1), "k"), "kk": s.take(id("bob", 1), "kk")}
	s.take(id("carol", 1), "gone")
	s.unlock(id("carol", 1), "gone")
	before := s.load()
	a := s.acquire("owner", fallback.Expect{Epoch: before.Epoch})
	want(s, "verdict", a.Verdict, fallback.Granted)
	want(s, "owner", a.Record.Owner, "owner")
	want(s, "a later epoch", a.Record.Epoch > before.Epoch, true)
	want(s, "record", a.Record, s.load())
	want(s, "rows", a.Rows, rows)
	want(s, "another partition", must(s.Load(s.ctx, 1))(s).Owner, "")
}

// A client library that lost the reply sends the request once more, whatever came between.
func acquireAgain(s *space) {
	row := s.take(id("alice", 1), "k")
	x := fallback.Expect{Epoch: s.load().Epoch}
	first := s.acquire("owner", x)
	again := s.acquire("owner", x)
	want(s, "answer", again, first)
	want(s, "rows", again.Rows, map[string]fallback.Row{"k": row})
	want(s, "verdict for another", s.acquire("other", x).Verdict, fallback.Conflict)
	want(s, "answer after another's attempt", s.acquire("owner", x), first)

	s.demote("owner", first.Record.Epoch)
	late := s.acquire("owner", x)
	want(s, "verdict after Demote", late.Verdict, fallback.Conflict)
	want(s, "owner after Demote", s.load().Owner, "")
}

func acquireDead(s *space) {
	s.take(id("alice", 1), "k")
	epoch := s.own("ghost")
	adopted := fallback.Row{Identity: id("bob", 1), Token: fallback.MakeToken(epoch, 3)}
	want(s, "Adopt", s.adopt("kk", adopted), fallback.Granted)
	want(s, "dead", s.dead("ghost").Dead, true)
	x := fallback.Expect{Epoch: epoch, Owner: "ghost", OwnerDead: true}
	a := s.acquire("heir", x)
	want(s, "verdict", a.Verdict, fallback.Granted)
	want(s, "owner", a.Record.Owner, "heir")
	want(s, "a later epoch", a.Record.Epoch > epoch, true)
	want(s, "rows", a.Rows, map[string]fallback.Row{"k": s.rows("k")[0], "kk": adopted})
	want(s, "answer to a repetition", s.acquire("heir", x), a)
	want(s, "verdict for the late second", s.acquire("other", x).Verdict, fallback.Conflict)
	want(s, "the ghost's Demote", must(s.DemoteUnserved(s.ctx, 0, "ghost", epoch))(s).Verdict, fallback.Stale)
}

func acquireConflicts(s *space) {
	shared := s.load().Epoch
	for _, x := range []fallback.Expect{
		{Epoch: shared - 1}, {Epoch: shared + 1}, {},
		{Epoch: shared + 1, Owner: "ghost", OwnerDead: true},
	} {
		a := s.acquire("bob", x)
		want(s, fmt.Sprintf("verdict in Shared for %+v", x), a.Verdict, fallback.Conflict)
		want(s, "record", a.Record, s.load())
		want(s, "rows", len(a.Rows), 0)
	}
	want(s, "epoch", s.load().Epoch, shared)

	owned := s.own("owner")
	for _, x := range []fallback.Expect{
		{Epoch: shared},
		{Epoch: owned},
		{Epoch: owned, OwnerDead: true},
		{Epoch: owned, Owner: "owner"}, // not seen dead
		{Epoch: owned, Owner: "other", OwnerDead: true},
		{Epoch: owned - 1, Owner: "owner", OwnerDead: true},
		{Epoch: owned + 1, Owner: "owner", OwnerDead: true},
	} {
		a := s.acquire("bob", x)
		want(s, fmt.Sprintf("verdict in Owned for %+v", x), a.Verdict, fallback.Conflict)
		want(s, "record", a.Record, fallback.Record{Owner: "owner", Epoch: owned})
	}
	want(s, "record", s.load(), fallback.Record{Owner: "owner", Epoch: owned})
}

// I6: an epoch is given to one owner only.
func acquireAtOnce(s *space) {
	for range 10 {
		x := fallback.Expect{Epoch: s.load().Epoch}
		var winner atomic.Pointer[string]
		var wg sync.WaitGroup
		for i := range 6 {
			me := fmt.Sprint("session ", i)
			wg.Go(func() {
				a, err := s.Acquire(s.ctx, 0, me, x)
				if err != nil {
					s.t.Error(err)
				}
				if a.Verdict == fallback.Granted && !winner.CompareAndSwap(nil, &me) {
					s.t.Errorf("%s and %s both won", *winner.Load(), me)
				}
			})
		}
		wg.Wait()
		w, r := winner.Load(), s.load()
		if w == nil || r.Owner != *w {
			s.t.Fatalf("no winner, or not the one in the record: %+v", r)
		}
		s.demote(*w, r.Epoch)
	}
}

func ownedRefuses(s *space) {
	s.take(id("alice", 1), "held")
	epoch := s.own("owner")
	for _, key := range []string{"free", "held"} {
		for _, me := range []fallback.Identity{id("alice", 1), id("bob", 1), id("owner", 1)} {
			a := s.ask(fallback.LockRequest{Key: key, Me: me, Wait: true, Evict: id("alice", 1)})
			want(s, "answer", a, fallback.LockAnswer{Verdict: fallback.Owned, Record: fallback.Record{Owner: "owner", Epoch: epoch}})
		}
	}
	want(s, "rows", []fallback.Identity{s.rows("held")[0].Identity, s.rows("free")[0].Identity}, []fallback.Identity{id("alice", 1), {}})
}

func unlockOwned(s *space) {
	row := s.take(id("alice", 1), "k")
	epoch := s.own("owner")
	s.unlock(id("alice", 2), "k")
	want(s, "row", s.rows("k")[0], row)
	for range 2 {
		s.unlock(id("alice", 1), "k")
		want(s, "row", s.rows("k")[0], fallback.Row{})
	}
	want(s, "record", s.load(), fallback.Record{Owner: "owner", Epoch: epoch})
}

func demoteReplaces(s *space) {
	s.take(id("alice", 1), "released by the owner")
	kept := s.take(id("bob", 1), "kept")
	s.take(id("carol", 1), "handed over")
	epoch := s.own("owner")
	handed := fallback.Row{Identity: id("dave", 1), Token: fallback.MakeToken(epoch, 1)}
	granted := fallback.Row{Identity: id("erin", 1), Token: fallback.MakeToken(epoch, 1<<31)}
	d := must(s.Demote(s.ctx, 0, "owner", epoch, map[string]fallback.Row{"kept": kept, "handed over": handed, "new": granted}))(s)
	want(s, "verdict", d.Verdict, fallback.Granted)
	want(s, "record", d.Record, s.load())
	want(s, "owner", d.Record.Owner, "")
	want(s, "a later epoch", d.Record.Epoch > epoch, true)
	want(s, "rows", s.rows("released by the owner", "kept", "handed over", "new"), []fallback.Row{{}, kept, handed, granted})
	want(s, "Lock of a key that the owner handed out", s.try(id("frank", 1), "new").Holder, granted)
	s.take(id("frank", 1), "released by the owner")
}

func demoteKeeps(s *space) {
	row := s.take(id("alice", 1), "k")
	epoch := s.own("owner")
	d := must(s.DemoteUnserved(s.ctx, 0, "owner", epoch))(s)
	want(s, "verdict", d.Verdict, fallback.Granted)
	want(s, "record", d.Record, s.load())
	want(s, "owner", d.Record.Owner, "")
	want(s, "a later epoch", d.Record.Epoch > epoch, true)
	want(s, "row", s.rows("k")[0], row)
}

func demoteStale(s *space) {
	row := s.take(id("alice", 1), "k")
	stale := func(me string, epoch uint32) {
		s.t.Helper()
		before := s.load()
		table := map[string]fallback.Row{"kk": row}
		for what, d := range map[string]fallback.Demotion{
			"Demote":         must(s.Demote(s.ctx, 0, me, epoch, table))(s),
			"DemoteUnserved": must(s.DemoteUnserved(s.ctx, 0, me, epoch))(s),
		} {
			want(s, fmt.Sprintf("%s by %s of %d", what, me, epoch), d, fallback.Demotion{Verdict: fallback.Stale, Record: before})
		}
		want(s, "record", s.load(), before)
		want(s, "rows", s.rows("k", "kk"), []fallback.Row{row, {}})
	}
	stale("owner", s.load().Epoch) // without an owner
	epoch := s.own("owner")
	stale("other", epoch)
	stale("owner", epoch-1)
	stale("owner", epoch+1)
	s.demote("owner", epoch)
	stale("owner", epoch) // a repetition
	next := s.own("owner")
	stale("owner", epoch) // a late one, though I own it again
	want(s, "epoch", s.load(), fallback.Record{Owner: "owner", Epoch: next})
}

func epochsRise(s *space) {
	last := s.load().Epoch
	rises := func(what string, epoch uint32) {
		s.t.Helper()
		if epoch <= last {
			s.t.Errorf("%s: epoch %d after %d", what, epoch, last)
		}
		last = epoch
	}
	for range 5 {
		rises("Acquire", s.own("alice"))
		rises("Demote", must(s.Demote(s.ctx, 0, "alice", last, nil))(s).Record.Epoch)
		rises("Acquire", s.own("bob"))
		a := s.acquire("carol", fallback.Expect{Epoch: last, Owner: "bob", OwnerDead: true})
		rises("Acquire from the dead", a.Record.Epoch)
		d := must(s.DemoteUnserved(s.ctx, 0, "carol", last))(s)
		rises("DemoteUnserved", d.Record.Epoch)
	}
	want(s, "epoch in the end", s.load().Epoch, last)
}

func revoked(s *space) {
	in, other := s.listen("owner"), s.listen("other")
	epoch := s.own("owner")
	want(s, "revoked", s.load().Revoked, false)
	for range 2 {
		if err := s.Revoke(s.ctx, 0, epoch, "operator"); err != nil {
			s.t.Fatal(err)
		}
		want(s, "record", s.load(), fallback.Record{Owner: "owner", Epoch: epoch, Revoked: true})
	}
	want(s, "revoked in the answer of Lock", s.try(id("alice", 1), "k").Record.Revoked, true)
	s.demote("owner", epoch)
	want(s, "revoked after Demote", s.load().Revoked, false)
	message := fallback.Message{Kind: fallback.Revoked, Epoch: epoch}
	want(s, "messages for the owner", in.messages(), []fallback.Message{message, message})
	want(s, "messages for another", other.messages(), nil)
	s.own("owner")
	want(s, "revoked in the next ownership", s.load().Revoked, false)

	r := must(s.Load(s.ctx, 3))(s)
	a := must(s.Acquire(s.ctx, 3, "other", fallback.Expect{Epoch: r.Epoch}))(s)
	if err := s.Revoke(s.ctx, 3, a.Record.Epoch, "operator"); err != nil {
		s.t.Fatal(err)
	}
	want(s, "message", other.next(), fallback.Message{Kind: fallback.Revoked, Partition: 3, Epoch: a.Record.Epoch})
}

func revokedElse(s *space) {
	in := s.listen("owner")
	revoke := func(epoch uint32) {
		if err := s.Revoke(s.ctx, 0, epoch, "operator"); err != nil {
			s.t.Fatal(err)
		}
		want(s, "revoked", s.load().Revoked, false)
	}
	shared := s.load().Epoch
	revoke(shared) // it has no owner
	epoch := s.own("owner")
	revoke(shared)
	revoke(epoch - 1)
	revoke(epoch + 1)
	want(s, "record", s.load(), fallback.Record{Owner: "owner", Epoch: epoch})
	s.demote("owner", epoch)
	want(s, "messages", in.messages(), nil)
}

func adopts(s *space) {
	epoch := s.own("owner")
	row := fallback.Row{Identity: id("alice", 1), Token: fallback.MakeToken(epoch, 7)}
	for range 2 {
		want(s, "Adopt", s.adopt("k", row), fallback.Granted)
		want(s, "row", s.rows("k")[0], row)
	}
	next := fallback.Row{Identity: id("bob", 1), Token: fallback.MakeToken(epoch, 8)}
	want(s, "Adopt of a later grant", s.adopt("k", next), fallback.Granted)
	want(s, "Adopt of the grant before", s.adopt("k", row), fallback.Lost)
	want(s, "row", s.rows("k")[0], next)
	want(s, "record", s.load(), fallback.Record{Owner: "owner", Epoch: epoch})
	a := s.acquire("heir", fallback.Expect{Epoch: epoch, Owner: "owner", OwnerDead: true})
	want(s, "rows for the heir", a.Rows, map[string]fallback.Row{"k": next})
}

func adoptsLate(s *space) {
	epoch := s.own("owner")
	known := fallback.Row{Identity: id("alice", 1), Token: fallback.MakeToken(epoch, 7)}
	late := fallback.Row{Identity: id("alice", 2), Token: fallback.MakeToken(epoch, 8)}
	must(s.Demote(s.ctx, 0, "owner", epoch, map[string]fallback.Row{"k": known}))(s)
	want(s, "Adopt of a row that the owner put there", s.adopt("k", known), fallback.Granted)
	want(s, "Adopt of another one", s.adopt("kk", late), fallback.Lost)
	want(s, "Adopt over an older one", s.adopt("k", late), fallback.Lost)
	future := fallback.Row{Identity: id("alice", 2), Token: fallback.MakeToken(s.load().Epoch+1, 1)}
	want(s, "Adopt at an epoch to come", s.adopt("kk", future), fallback.Lost)
	want(s, "rows", s.rows("k", "kk"), []fallback.Row{known, {}})

	s.unlock(known.Identity, "k")
	want(s, "Adopt of a row that was released", s.adopt("k", known), fallback.Lost)
	want(s, "rows", s.rows("k", "kk"), []fallback.Row{{}, {}})
}

// adoptsVouched: an owner that imported a hold may answer for it, at its own epoch.
func adoptsVouched(s *space) {
	row := s.take(id("alice", 1), "k")
	epoch := s.own("owner")
	s.unlock(row.Identity, "k") // stands for a row that was lost
	at := func(owned uint32) fallback.Verdict {
		return s.restore(0, fallback.Claim{Key: "k", Row: row, Owned: owned})[0]
	}
	want(s, "Adopt at the row's epoch", at(row.Token.Epoch()), fallback.Lost)
	want(s, "Adopt at an epoch to come", at(epoch+1), fallback.Lost)
	for range 2 {
		want(s, "Adopt at the owner's epoch", at(epoch), fallback.Granted)
		want(s, "row", s.rows("k")[0], row)
	}
	want(s, "record", s.load(), fallback.Record{Owner: "owner", Epoch: epoch})
}

// restoresMany: more holds than one step writes, and some are lost.
func restoresMany(s *space) {
	epoch := s.own("owner")
	other := s.load().Epoch
	claims := []fallback.Claims{{Partition: 0}, {Partition: 1}, {Partition: 0}}
	var keys []string
	for i := range 2*fallback.MaxClaims + 1 {
		keys = append(keys, fmt.Sprint("key ", i))
		c := fallback.Claim{Key: keys[i], Row: fallback.Row{Identity: id("alice", uint64(i+1)), Token: fallback.MakeToken(epoch, uint32(i+1))}}
		if i%3 > 0 { // else it rests on its row, which there is not
			c.Owned = epoch - uint32(i%3-1)
		}
		claims[0].Holds = append(claims[0].Holds, c)
	}
	first := claims[0].Holds[1]
	claims[1].Holds = []fallback.Claim{{Key: first.Key, Row: first.Row, Owned: other + 1}}
	claims[2].Holds = []fallback.Claim{first}
	for range 2 {
		got := s.Restore(s.ctx, claims)
		if len(got) != 3 || got[0].Err != nil || got[1].Err != nil || got[2].Err != nil || len(got[0].Verdicts) != len(keys) {
			s.t.Fatalf("Restore: got %d answers, %+v", len(got), got)
		}
		want(s, "Grace", got[0].Grace+got[1].Grace+got[2].Grace, 0)
		rows := s.rows(keys...)
		for i, v := range got[0].Verdicts {
			h := claims[0].Holds[i]
			if i%3 == 1 {
				want(s, "verdict at the owner's epoch", v, fallback.Granted)
				want(s, "row", rows[i], h.Row)
			} else {
				want(s, "verdict without", v, fallback.Lost)
				want(s, "row", rows[i], fallback.Row{})
			}
		}
		want(s, "verdicts of a partition that nobody owns", got[1].Verdicts, []fallback.Verdict{fallback.Lost})
		want(s, "verdicts of what is there", got[2].Verdicts, []fallback.Verdict{fallback.Granted})
	}
	for i, r := range s.Restore(s.ctx, []fallback.Claims{{Partition: 1}}) {
		if i > 0 || r.Err != nil || len(r.Verdicts) > 0 {
			s.t.Errorf("Restore of nothing: got %+v", r)
		}
	}
}

func adoptsLower(s *space) {
	epoch := s.own("owner")
	row := fallback.Row{Identity: id("alice", 1), Token: fallback.MakeToken(epoch, 1<<31)}
	want(s, "Adopt", s.adopt("k", row), fallback.Granted)
	for _, seq := range []uint32{1, 9, 1<<31 - 1, 1 << 31} {
		other := fallback.Row{Identity: id("bob", 1), Token: fallback.MakeToken(epoch, seq)}
		want(s, fmt.Sprint("Adopt at seq ", seq), s.adopt("k", other), fallback.Lost)
	}
	want(s, "Adopt of the same token by another request", s.adopt("k", fallback.Row{Identity: id("alice", 2), Token: row.Token}), fallback.Lost)
	want(s, "row", s.rows("k")[0], row)
	higher := fallback.Row{Identity: id("bob", 1), Token: fallback.MakeToken(epoch, 1<<31+1)}
	want(s, "Adopt above", s.adopt("k", higher), fallback.Granted)
	want(s, "row", s.rows("k")[0], higher)
}

func reclaimOutside(s *space) {
	row := s.take(id("alice", 1), "k")
	epoch := row.Token.Epoch()
	want(s, "ReclaimRow of what is there", s.reclaimRow("k", row), fallback.Granted)
	for _, e := range []uint32{epoch - 1, epoch, epoch + 1} {
		other := fallback.Row{Identity: id("bob", 1), Token: fallback.MakeToken(e, 1<<20)}
		want(s, "ReclaimRow", s.reclaimRow("k", other), fallback.Lost)
		want(s, "ReclaimRow of a free key", s.reclaimRow("kk", other), fallback.Lost)
		want(s, "ReclaimOwner", s.reclaimOwner("bob", e), fallback.Lost)
	}
	owned := s.own("owner")
	want(s, "ReclaimOwner of what is mine", s.reclaimOwner("owner", owned), fallback.Granted)
	for _, e := range []uint32{owned - 1, owned + 1} {
		want(s, "ReclaimOwner of another epoch", s.reclaimOwner("owner", e), fallback.Lost)
	}
	want(s, "ReclaimOwner by another", s.reclaimOwner("bob", owned), fallback.Lost)
	want(s, "record", s.load(), fallback.Record{Owner: "owner", Epoch: owned})
	want(s, "rows", s.rows("k", "kk"), []fallback.Row{row, {}})
}

func witnessed(s *space) {
	row := s.take(id("alice", 1), "k")
	before := must(s.Load(s.ctx, 0))(s)
	for _, seen := range []fallback.Token{0, 1, row.Token, fallback.MakeToken(before.Epoch, 0), fallback.MakeToken(before.Epoch-1, 1<<31)} {
		want(s, "record", must(s.Witness(s.ctx, 0, seen))(s), before)
	}
	epoch := s.own("owner")
	owned := must(s.Witness(s.ctx, 0, fallback.MakeToken(epoch, 1<<31)))(s) // one of the owner's: the record does not have it
	want(s, "record of an owner", owned, fallback.Record{Owner: "owner", Epoch: epoch})
}

func witnessedAbove(s *space) {
	row := s.take(id("alice", 1), "k")
	seen := row.Token + 1<<20
	r := must(s.Witness(s.ctx, 0, seen))(s)
	inGrace(s, "Witness", r.Grace)
	want(s, "epoch", r.Epoch, seen.Epoch())
	want(s, "verdict of Lock", s.ask(fallback.LockRequest{Key: "free", Me: id("bob", 1)}).Verdict, fallback.InGrace)
	want(s, "verdict of a claim of the row", s.reclaimRow("k", row), fallback.Granted)
	again := must(s.Witness(s.ctx, 0, seen))(s)
	if again.Grace > r.Grace {
		s.t.Errorf("Witness again: %v left of Grace, after %v", again.Grace, r.Grace)
	}
	higher := fallback.MakeToken(r.Epoch+1000, 7)
	r = must(s.Witness(s.ctx, 0, higher))(s)
	want(s, "epoch", r.Epoch, higher.Epoch())
	if r.Grace > again.Grace {
		s.t.Errorf("Witness in Grace: %v left, after %v", r.Grace, again.Grace)
	}
}
