package arbitertest

import (
	"github.com/holdfast-go/holdfast/fallback"
)

// The rules of [fallback.Mode] for holds, by the rows of one key.
var modeTests = []test{
	{"readers stand beside readers, and a writer beside none", readersAndWriters},
	{"permits stand beside permits up to their number", permitsUpToN},
	{"a smaller hold of a block of permits stands beside the larger one", smallerBlock},
	{"who has the exclusive hold gets one for reading beside it", downgrades},
	{"a request behind one that waits for holds is told so", behind},
	{"a hold that is in the way of the request before is evicted", evictBehind},
	{"a request for permits of another number is told the one in use", otherNumber},
}

// held is an answer to a request that has to wait. The holder that it names is one of those.
func (s *space) held(a fallback.LockAnswer, behind bool, holders ...fallback.Row) {
	s.t.Helper()
	want(s, "verdict", a.Verdict, fallback.Held)
	want(s, "behind another request", a.Behind, behind)
	want(s, "a request is ahead", a.Ahead != fallback.Release{}, behind)
	for _, h := range holders {
		if a.Holder == h {
			return
		}
	}
	s.t.Errorf("the holder: got %v, want one of %v", a.Holder, holders)
}

func read(holder string) string { return fallback.SharedName("k", holder) }

func permits(n, of uint32, holder string) string { return fallback.PermitsName("k", n, of, holder) }

func readersAndWriters(s *space) {
	alice, bob := s.take(id("alice", 1), read("1")), s.take(id("bob", 1), read("2"))
	s.held(s.try(id("carol", 1), "k"), false, alice, bob)
	s.held(s.try(id("bob", 2), "k"), false, alice, bob) // its own one is in the way, too
	s.held(s.try(id("carol", 1), read("1")), false, alice)
	want(s, "rows", s.rows(read("1"), read("2"), "k"), []fallback.Row{alice, bob, {}})
	s.unlock(id("alice", 1), read("1"))
	s.held(s.try(id("carol", 1), "k"), false, bob)
	s.unlock(id("bob", 1), read("2"))
	writer := s.take(id("carol", 1), "k")
	if writer.Token <= max(alice.Token, bob.Token) {
		s.t.Errorf("the writer's token %v is not above those of the readers before it, %v and %v", writer.Token, alice.Token, bob.Token)
	}
	s.held(s.try(id("alice", 2), read("1")), false, writer)
	s.unlock(id("carol", 1), "k")
	if next := s.take(id("alice", 2), read("1")); next.Token <= writer.Token {
		s.t.Errorf("the reader's token %v is not above that of the writer before it, %v", next.Token, writer.Token)
	}
}

func permitsUpToN(s *space) {
	alice, bob := s.take(id("alice", 1), permits(2, 5, "1")), s.take(id("bob", 1), permits(2, 5, "2"))
	s.held(s.try(id("carol", 1), permits(2, 5, "3")), false, alice, bob)
	carol := s.take(id("carol", 2), permits(1, 5, "3"))
	s.held(s.try(id("dave", 1), permits(1, 5, "4")), false, alice, bob, carol)
	s.held(s.try(id("dave", 2), "k"), false, alice, bob, carol)
	s.held(s.try(id("dave", 3), read("4")), false, alice, bob, carol)
	s.unlock(id("alice", 1), permits(2, 5, "1"))
	s.take(id("dave", 1), permits(2, 5, "4"))
}

func smallerBlock(s *space) {
	block := func(n uint32) string { return fallback.BlockName("k", n, 3, "1", 1) }
	large := s.take(id("alice", 1), block(3))
	s.held(s.wait(id("bob", 1), permits(2, 3, "2")), false, large)
	small := s.take(id("alice", 2), block(1)) // before the one that waits
	s.held(s.wait(id("bob", 1), permits(2, 3, "2")), false, large, small)
	s.unlock(id("alice", 1), block(3))
	want(s, "verdict", s.wait(id("bob", 1), permits(2, 3, "2")).Verdict, fallback.Granted)
	s.held(s.try(id("carol", 1), permits(1, 3, "3")), false, small, s.rows(permits(2, 3, "2"))[0])
}

func downgrades(s *space) {
	name := fallback.DowngradedName("k", "1")
	writer := s.take(id("alice", 1), "k")
	s.held(s.try(id("bob", 1), fallback.DowngradedName("k", "2")), false, writer) // another session
	s.held(s.wait(id("carol", 1), "k"), false, writer)
	reader := s.take(id("alice", 2), name) // before the one that waits
	s.held(s.try(id("bob", 1), read("2")), false, writer)
	s.unlock(id("alice", 1), "k")
	s.held(s.wait(id("carol", 1), "k"), false, reader)
	s.unlock(id("alice", 2), name)
	want(s, "verdict", s.wait(id("carol", 1), "k").Verdict, fallback.Granted)
}

// behind: a hold in the way of the request itself is told as such, and no more.
func behind(s *space) {
	reader := s.take(id("alice", 1), read("1"))
	s.held(s.wait(id("bob", 1), "k"), false, reader)
	for range 2 { // also when it asks again
		s.held(s.wait(id("carol", 1), read("2")), true, reader)
		s.held(s.wait(id("bob", 1), "k"), false, reader) // the first one that waits
	}
	s.held(s.try(id("dave", 1), read("3")), true, reader)
	s.held(s.wait(id("dave", 2), "k"), false, reader) // the reader is in its way, too
	s.unlock(id("bob", 1), "k")
	s.unlock(id("dave", 2), "k")
	want(s, "verdict after the writers have given up", s.wait(id("carol", 1), read("2")).Verdict, fallback.Granted)
	s.unlock(id("carol", 1), read("2"))
	s.unlock(id("alice", 1), read("1"))

	writer := s.take(id("bob", 3), "k")
	s.held(s.wait(id("alice", 3), read("1")), false, writer)
	s.held(s.wait(id("carol", 3), read("2")), false, writer)
	s.unlock(id("bob", 3), "k")
	s.unlock(id("alice", 3), read("1"))
	s.unlock(id("carol", 3), read("2"))

	some := s.take(id("alice", 4), permits(2, 3, "1"))
	s.held(s.wait(id("bob", 4), permits(2, 3, "2")), false, some)
	carol := s.wait(id("carol", 4), permits(1, 3, "3"))
	s.held(carol, true, some)
	s.held(s.wait(id("dave", 4), permits(3, 3, "4")), false, some)
	want(s, "the request ahead", carol.Ahead.Key, permits(2, 3, "2"))
	want(s, "whose it is", carol.Ahead.Identity, id("bob", 4))
	s.unlock(carol.Ahead.Identity, carol.Ahead.Key) // as when its session is dead
	want(s, "verdict when that one is gone", s.wait(id("carol", 4), permits(1, 3, "3")).Verdict, fallback.Granted)
}

func otherNumber(s *space) {
	three := s.take(id("alice", 1), permits(1, 3, "1"))
	for range 2 {
		a := s.try(id("bob", 1), permits(1, 4, "2"))
		s.held(a, false, three)
		want(s, "the number in use", a.Size, 3)
	}
	a := s.try(id("bob", 2), permits(3, 3, "2"))
	s.held(a, false, three)
	want(s, "the number in use, which is the same", a.Size, 0)
	a = s.try(id("bob", 3), "k")
	s.held(a, false, three)
	want(s, "the number in use, for a writer", a.Size, 0)
}

func evictBehind(s *space) {
	ghost := s.take(id("ghost", 1), read("1"))
	s.held(s.wait(id("ghost", 2), "k"), false, ghost)
	s.held(s.wait(id("alice", 1), read("2")), true, ghost)
	a := s.ask(fallback.LockRequest{Key: read("2"), Me: id("alice", 1), Wait: true, Evict: ghost.Identity})
	want(s, "verdict", a.Verdict, fallback.Promised)
	want(s, "to whom", a.Holder.Identity, id("ghost", 2))
	want(s, "rows", s.rows(read("1")), []fallback.Row{{}})
	s.unlock(id("ghost", 2), "k")
	want(s, "verdict after that", s.wait(id("alice", 1), read("2")).Verdict, fallback.Granted)
}
