package leasetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// rests returns the keys that a node has claims for, as the process of another one has ended, and
// the number of its holds that rest on that one's word.
func rests(n *Node, on string) (keys string, holds int) {
	claims, holds := n.P.RestsOn(on)
	for _, c := range claims {
		keys += c.Key + " "
	}
	words := strings.Fields(keys)
	slices.Sort(words)
	return strings.Join(words, " "), holds
}

// restsOn fails the test unless a node has claims for these keys, and as many holds.
func restsOn(t *testing.T, what string, n *Node, on, keys string, holds int) {
	t.Helper()
	if all, count := rests(n, on); all != keys || count != holds {
		t.Errorf("%s: on %s's word rest %d holds, with claims for %q, not %d with %q", what, on, count, all, holds, keys)
	}
}

// claim makes a node claim the rows of what rests on another one's word.
func claim(t *testing.T, w *World, n *Node, on string) {
	t.Helper()
	claims, _ := n.P.RestsOn(on)
	slices.SortFunc(claims, func(a, b fallback.Claim) int { return strings.Compare(a.Key, b.Key) })
	n.missing = lease.Claims{Holds: claims}
	do(t, w, n.Name+" reclaim")
}

// Holds that an owner has granted rest on its word until they have rows. Those of other owners, and
// those with a row that the arbiter has confirmed, do not.
func TestRestsOn(t *testing.T) {
	w := after(t, "a b c", "a acquire\n owner a\n ping\n a lock mine")
	a, b := w.node("a"), w.node("b")
	restsOn(t, "none", b, "a", "", 0)
	do(t, w, "b lock k\n b lock l\n deliver")
	restsOn(t, "two of the owner", b, "a", "k l", 2)
	restsOn(t, "another node", b, "c", "", 0)
	restsOn(t, "an owner's own", a, "a", "", 0)
	restsOn(t, "what an owner has granted", a, "b", "", 0)
	do(t, w, "b unlock l\n tick 1s\n b watch l\n deliver")
	restsOn(t, "one was given back", b, "a", "k", 1)

	do(t, w, "a demote\n deliver")
	restsOn(t, "the arbiter has not confirmed the row", b, "a", "k", 1)
	do(t, w, "b adopt")
	restsOn(t, "a row", b, "a", "", 0)

	do(t, w, "c acquire\n owner c\n ping\n b lock m\n deliver")
	restsOn(t, "the owner of before", b, "a", "", 0)
	restsOn(t, "the next owner", b, "c", "m", 1)
	do(t, w, "tick 2s\n c renew\n c verify\n ping\n b renew\n b verify\n deliver")
	restsOn(t, "the next owner answers for the other hold, too", b, "c", "k m", 2)
	restsOn(t, "the owner of before", b, "a", "", 0)
}

// The streams to the owner have been cut, for good. A hold rests on its word no more when the
// arbiter has said that there is its row, and then it stays although the owner is dead.
func TestRestsOn_UntilThereAreRows(t *testing.T) {
	w := after(t, "a b", "a acquire\n owner a\n ping\n b lock k\n b lock l\n deliver\n cut a b")
	b := w.node("b")
	restsOn(t, "the stream is cut", b, "a", "k l", 2)
	restsOn(t, "asked again", b, "a", "k l", 2)
	if s := b.status("k"); s != "unowned, holds k, which rests on its owner, frozen" {
		t.Error(s)
	}
	claim(t, w, b, "a")
	restsOn(t, "it has rows", b, "a", "", 0)
	do(t, w, "tick 2s\n dead a\n tick 3s\n b renew\n b verify\n tick 4s\n b renew\n b verify\n tick 4s\n b renew\n b verify")
	for _, k := range []string{"k", "l"} {
		if s := stateOf(b, b.turns[k]); s != lease.TurnRuns {
			t.Errorf("%s: %v", k, s)
		}
	}
}

// A call that is not answered confirms no row. Nor does one that a server answers which has just
// taken over: a deposed one may lack the row. One that is refused ends the hold.
func TestRestsOn_WithoutAConfirmedRow(t *testing.T) {
	w := after(t, "a b c", "a acquire\n owner a\n ping\n b lock k\n deliver\n cut a b")
	b := w.node("b")
	b.missing.Holds, _ = b.P.RestsOn("a")
	do(t, w, "b send reclaim\n b execute reclaim\n b fail reclaim")
	restsOn(t, "no answer", b, "a", "k", 1)

	do(t, w, "failover")
	claim(t, w, b, "a")
	restsOn(t, "a deposed server may answer", b, "a", "k", 1)
	do(t, w, "tick 3s\n b renew")
	claim(t, w, b, "a")
	restsOn(t, "it answers no more", b, "a", "", 0)

	w = after(t, "a b c", "a acquire\n owner a\n ping\n b lock k\n deliver\n cut a b\n dead a\n c acquire")
	b = w.node("b")
	restsOn(t, "another node owns the partition", b, "a", "k", 1)
	claim(t, w, b, "a")
	restsOn(t, "it was lost", b, "a", "", 0)
	if _, held := b.turns["k"]; held {
		t.Error("its holder was not told")
	}
}

// A node gives a partition back, and is about to have rows for its holds by that. Meanwhile the
// next owner answers for one, and ends: it is counted, and not claimed.
func TestRestsOn_WhileThePartitionIsGivenBack(t *testing.T) {
	w := after(t, "a b", "b acquire\n owner b\n ping\n a lock k\n deliver\n b demote\n deliver\n a adopt\n tick 2s\n b renew\n b acquire\n a renew\n a verify")
	a := w.node("a")
	restsOn(t, "it has a row", a, "b", "", 0)
	do(t, w, "b demote\n tick 1s\n a renew\n b renew\n a acquire\n a send demote\n a execute demote\n b acquire\n deliver a b\n deliver b a")
	if s := a.status("k"); s != "demoting, holds k, which rests on its owner" {
		t.Error(s)
	}
	restsOn(t, "the next owner answers for it", a, "b", "", 1)
	do(t, w, "cut a b\n a answer demote")
	restsOn(t, "the rows are written", a, "b", "", 0)
}

// A caller waits for an answer of another node's, or of the arbiter's. It does not while it has the
// key, nor while it waits for another caller of its node.
func TestHasWaiters(t *testing.T) {
	w := after(t, "a b", "")
	a, b := w.node("a"), w.node("b")
	has := func(what string, n *Node, is bool) {
		t.Helper()
		if n.P.HasWaiters() != is {
			t.Errorf("%s: %t", what, !is)
		}
	}
	has("no key", a, false)
	do(t, w, "a lock k")
	has("the arbiter is asked", a, true)
	do(t, w, "a calls\n a lock k")
	has("it has the key, and a second caller waits for the first one", a, false)
	do(t, w, "b lock k")
	has("another node's is asked for at the arbiter", b, true)
	do(t, w, "b leave k\n b calls")
	has("it gave up", b, false)

	do(t, w, "a acquire\n owner a\n ping\n b lock k")
	has("the owner is asked", b, true)
	do(t, w, "deliver")
	has("it is in the owner's queue", b, true)
	has("another node waits at this one", a, false)
	do(t, w, "a unlock k\n a unlock k\n deliver")
	has("it has the key", b, false)
}
