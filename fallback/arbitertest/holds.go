package arbitertest

import (
	"errors"
	"fmt"
	"math"

	"github.com/holdfast-go/holdfast/fallback"
)

var holdTests = []test{
	{"Lock takes a free key", takesFree},
	{"Lock repeated by the holder gets the same token", lockAgain},
	{"Lock of a held key names the holder", lockHeld},
	{"two requests of one session exclude each other", sameSession},
	{"keys do not disturb each other", otherKeys},
	{"a block of tokens is the hold's alone", blocks},
	{"a block that does not fit any more begins a new epoch", blockTooBig},
	{"Unlock removes exactly the row named", unlockExactly},
	{"Unlock releases many holds in one go", unlockMany},
	{"a hold whose session is dead is evicted by its exact name", evictExactly},
	{"tokens of a key rise whatever happens", tokensRise},
	{"keys are any bytes", anyBytes},
	{"Verify reads many partitions and rows, in order", verifyMany},
}

func takesFree(s *space) {
	a := s.try(id("alice", 1), "k")
	want(s, "verdict", a.Verdict, fallback.Granted)
	want(s, "epoch of the token", a.Token.Epoch(), s.load().Epoch)
	want(s, "contended", a.Contended, false)
	want(s, "record", a.Record, s.load())
	want(s, "row", s.rows("k")[0], fallback.Row{Identity: id("alice", 1), Token: a.Token})
}

func lockAgain(s *space) {
	row := s.take(id("alice", 1), "k")
	want(s, "token", s.take(id("alice", 1), "k"), row)
	s.wait(id("bob", 1), "k")
	a := s.wait(id("alice", 1), "k")
	want(s, "verdict", a.Verdict, fallback.Granted)
	want(s, "token", a.Token, row.Token)
	want(s, "contended", a.Contended, true)
	want(s, "row", s.rows("k")[0], row)
}

func lockHeld(s *space) {
	row := s.take(id("alice", 1), "k")
	for range 2 {
		for _, a := range []fallback.LockAnswer{s.try(id("bob", 1), "k"), s.wait(id("bob", 1), "k")} {
			want(s, "verdict", a.Verdict, fallback.Held)
			want(s, "holder", a.Holder, row)
			want(s, "token", a.Token, 0)
			want(s, "owner", a.Record.Owner, "")
		}
	}
	want(s, "row", s.rows("k")[0], row)
}

func sameSession(s *space) {
	row := s.take(id("alice", 1), "k")
	a := s.try(id("alice", 2), "k")
	want(s, "verdict", a.Verdict, fallback.Held)
	want(s, "holder", a.Holder, row)
	s.unlock(id("alice", 2), "k") // not the holder
	want(s, "row", s.rows("k")[0], row)
	s.unlock(id("alice", 1), "k")
	s.take(id("alice", 2), "k")
}

func otherKeys(s *space) {
	k, kk := s.take(id("alice", 1), "k"), s.take(id("bob", 1), "kk")
	other := must(s.Lock(s.ctx, fallback.LockRequest{Partition: 1, Key: "k", Me: id("carol", 1), Block: 1}))(s)
	want(s, "the same key in another partition", other.Verdict, fallback.Granted)
	want(s, "rows", s.rows("k", "kk", ""), []fallback.Row{k, kk, {}})
	s.unlock(id("alice", 1), "k")
	want(s, "rows", s.rows("k", "kk"), []fallback.Row{{}, kk})
}

func blocks(s *space) {
	lock := func(me fallback.Identity, block uint32) fallback.Token {
		a := s.ask(fallback.LockRequest{Key: "k", Me: me, Block: block})
		want(s, "verdict", a.Verdict, fallback.Granted)
		s.unlock(me, "k")
		return a.Token
	}
	first := lock(id("alice", 1), 1000)
	second := lock(id("alice", 2), 1)
	third := lock(id("alice", 3), 1)
	if last := first + 999; second <= last || third <= second {
		s.t.Errorf("tokens %v to %v, %v, %v do not rise", first, last, second, third)
	}
}

func blockTooBig(s *space) {
	var last fallback.Token
	for i := range 4 {
		me := id("alice", uint64(i))
		a := s.ask(fallback.LockRequest{Key: "k", Me: me, Block: math.MaxUint32})
		want(s, "verdict", a.Verdict, fallback.Granted)
		want(s, "record", a.Record, s.load())
		if a.Token <= last || a.Token.Epoch() != a.Record.Epoch {
			s.t.Errorf("block %d begins at %v, the one before ends at %v; record %+v", i, a.Token, last, a.Record)
		}
		if last = a.Token + math.MaxUint32 - 1; last.Epoch() != a.Token.Epoch() {
			s.t.Errorf("block %d from %v to %v is in two epochs", i, a.Token, last)
		}
		s.unlock(me, "k")
	}
}

func unlockExactly(s *space) {
	s.unlock(id("nobody", 1), "k") // no row at all
	row := s.take(id("alice", 10), "k")
	for _, other := range []fallback.Identity{id("alice", 1), id("alice", 100), id("alice", 0), id("alic", 10), id("alice1", 0), id("bob", 10)} {
		s.unlock(other, "k")
		want(s, fmt.Sprint("row after Unlock by ", other), s.rows("k")[0], row)
	}
	for range 2 { // a late duplicate does no harm (rule 9)
		s.unlock(id("alice", 10), "k")
		want(s, "row", s.rows("k")[0], fallback.Row{})
	}
	next := s.take(id("bob", 1), "k")
	s.unlock(id("alice", 10), "k")
	want(s, "row", s.rows("k")[0], next)
}

func unlockMany(s *space) {
	if err := errors.Join(s.Unlock(s.ctx, nil)...); err != nil {
		s.t.Errorf("Unlock of nothing: %v", err)
	}
	var releases []fallback.Release
	var reads []fallback.Read
	for p := range uint32(s.settings.Partitions) {
		read := fallback.Read{Partition: p}
		for i := range 50 {
			r := fallback.Release{Partition: p, Key: fmt.Sprint("key ", i), Identity: id("alice", uint64(i))}
			a := must(s.Lock(s.ctx, fallback.LockRequest{Partition: p, Key: r.Key, Me: r.Identity, Block: 1}))(s)
			want(s, "verdict", a.Verdict, fallback.Granted)
			releases, read.Keys = append(releases, r), append(read.Keys, r.Key)
		}
		reads = append(reads, read)
	}
	kept := releases[7]
	releases[7].Request++ // no such hold
	for range 2 {
		if err := errors.Join(s.Unlock(s.ctx, releases)...); err != nil {
			s.t.Fatal(err)
		}
		var left []fallback.Identity
		for _, state := range must(verify(s.ctx, s, reads))(s) {
			for _, row := range state.Rows {
				if row != (fallback.Row{}) {
					left = append(left, row.Identity)
				}
			}
		}
		want(s, "rows left", left, []fallback.Identity{kept.Identity})
	}
}

func evictExactly(s *space) {
	ghost := s.take(id("ghost", 7), "k")
	want(s, "dead", s.dead("ghost").Dead, true)
	evict := func(victim fallback.Identity) fallback.LockAnswer {
		return s.ask(fallback.LockRequest{Key: "k", Me: id("bob", 1), Evict: victim})
	}
	for _, other := range []fallback.Identity{{}, id("ghost", 8), id("ghost", 70), id("ghos", 7), id("bob", 1)} {
		a := evict(other)
		want(s, fmt.Sprint("verdict of evicting ", other), a.Verdict, fallback.Held)
		want(s, "holder", a.Holder, ghost)
	}
	a := evict(ghost.Identity)
	want(s, "verdict", a.Verdict, fallback.Granted)
	if a.Token <= ghost.Token {
		s.t.Errorf("token %v of the evicter is not above %v of the evicted", a.Token, ghost.Token)
	}
	again := evict(ghost.Identity)
	want(s, "verdict of a repetition", again.Verdict, fallback.Granted)
	want(s, "token of a repetition", again.Token, a.Token)

	// Another node that read the same row comes too late.
	late := s.ask(fallback.LockRequest{Key: "k", Me: id("carol", 1), Evict: ghost.Identity})
	want(s, "verdict of the second", late.Verdict, fallback.Held)
	want(s, "holder", late.Holder.Identity, id("bob", 1))
}

// I2, without a failover.
func tokensRise(s *space) {
	var last fallback.Token
	next := func(what string, token fallback.Token) {
		s.t.Helper()
		if token <= last {
			s.t.Errorf("%s: token %v after %v", what, token, last)
		}
		last = token
	}
	for round := range uint64(5) {
		me := func(n uint64) fallback.Identity { return id("alice", 10*round+n) }
		next("Lock", s.take(me(1), "k").Token)
		s.unlock(me(1), "k")
		next("Lock after Unlock", s.take(me(2), "k").Token)
		a := s.ask(fallback.LockRequest{Key: "k", Me: me(3), Evict: me(2)})
		next("Lock after eviction", a.Token)
		s.unlock(me(3), "k")

		epoch := s.own("bob")
		granted := fallback.Row{Identity: me(4), Token: fallback.MakeToken(epoch, 1)}
		next("the owner's grant", granted.Token)
		want(s, "Adopt", s.adopt("k", granted), fallback.Granted)
		if round%2 == 0 {
			s.demote("bob", epoch)
			s.unlock(me(4), "k")
		} else {
			must(s.Demote(s.ctx, 0, "bob", epoch, nil))(s)
		}
	}
}

func anyBytes(s *space) {
	in := s.listen("waiter")
	var rows []fallback.Row
	for i, key := range oddKeys {
		rows = append(rows, s.take(id("alice", uint64(i)), key))
		want(s, fmt.Sprintf("verdict of waiting for %q", key), s.wait(id("waiter", uint64(i)), key).Verdict, fallback.Held)
	}
	want(s, "rows", s.rows(oddKeys...), rows)

	a := s.acquire("owner", fallback.Expect{Epoch: s.load().Epoch})
	held := make(map[string]fallback.Row)
	for i, key := range oddKeys {
		held[key] = rows[i]
	}
	want(s, "rows of Acquire", a.Rows, held)

	// The owner has handed all of them over to another node.
	for i, key := range oddKeys {
		rows[i] = fallback.Row{Identity: id("bob", uint64(i)), Token: fallback.MakeToken(a.Record.Epoch, uint32(i+1))}
		if i%2 == 0 {
			want(s, fmt.Sprintf("Adopt of %q", key), s.adopt(key, rows[i]), fallback.Granted)
		}
		held[key] = rows[i]
	}
	must(s.Demote(s.ctx, 0, "owner", a.Record.Epoch, held))(s)
	want(s, "rows after Demote", s.rows(oddKeys...), rows)

	var woken []fallback.Message
	for i, key := range oddKeys {
		s.unlock(id("bob", uint64(i)), key)
		woken = append(woken, fallback.Message{Kind: fallback.Wake, Key: key, Request: uint64(i)})
	}
	want(s, "messages", in.messages(), woken)
	want(s, "rows", s.rows(oddKeys...), make([]fallback.Row, len(oddKeys)))
}

func verifyMany(s *space) {
	want(s, "states of nothing", len(must(verify(s.ctx, s, nil))(s)), 0)

	const many = 2500
	epoch := s.own("owner")
	keys, rows, held := make([]string, many), make([]fallback.Row, many), make(map[string]fallback.Row)
	for i := range keys {
		keys[i] = fmt.Sprint("key ", i)
		if i%7 != 0 { // the others are not held
			rows[i] = fallback.Row{Identity: id("alice", uint64(i)), Token: fallback.MakeToken(epoch, uint32(i))}
			held[keys[i]] = rows[i]
		}
	}
	want(s, "Demote", must(s.Demote(s.ctx, 0, "owner", epoch, held))(s).Verdict, fallback.Granted)
	want(s, "rows", s.rows(keys...), rows)
	want(s, "the same key twice", s.rows(keys[1], keys[0], keys[1]), []fallback.Row{rows[1], {}, rows[1]})

	must(s.Acquire(s.ctx, 2, "bob", fallback.Expect{Epoch: must(s.Load(s.ctx, 2))(s).Epoch}))(s)
	states := must(verify(s.ctx, s, []fallback.Read{{Partition: 2, Keys: keys[:2]}, {Partition: 0, Keys: keys[:3]}, {Partition: 3}, {Partition: 2}}))(s)
	if len(states) != 4 {
		s.t.Fatalf("4 reads, %d states", len(states))
	}
	for i, owner := range []string{"bob", "", "", "bob"} {
		want(s, fmt.Sprintf("owner in state %d", i), states[i].Record.Owner, owner)
	}
	want(s, "rows of state 0", states[0].Rows, make([]fallback.Row, 2))
	want(s, "rows of state 1", states[1].Rows, rows[:3])
	want(s, "rows of state 2", len(states[2].Rows), 0)
	want(s, "record of state 1", states[1].Record, s.load())
}
