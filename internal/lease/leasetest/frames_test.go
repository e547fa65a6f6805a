package leasetest

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/peer"
)

// inject lets a node get a frame that no other one has sent.
func inject(w *World, from, to string, f peer.Frame) {
	n := w.node(to)
	n.get(n.ends[from], &f)
}

func TestFrames_AGrantThatIsNotItsOwnersToGive(t *testing.T) {
	for name, token := range map[string]fallback.Token{
		"an epoch that is years ahead": fallback.MakeToken(1<<30, 1),
		"a token that was given out":   fallback.MakeToken(1, 1),
	} {
		w := after(t, "a b c", "b acquire\n owner b\n ping\n c lock o\n c calls\n a lock o\n deliver\n a lock k")
		n := w.node("a")
		inject(w, "b", "a", peer.Frame{Kind: peer.Grant, Key: []byte("k"), Session: []byte("a"), Request: 2, Epoch: token.Epoch(), Token: uint64(token), Count: 1024, Ping: 1, Left: 9000})
		if _, ok := n.turns["k"]; ok || len(n.running) != 1 {
			t.Errorf("%s: it is believed, or the arbiter is not asked for the owner", name)
		}
	}
}

func TestFrames_ARecallOfWhatIsOnItsWay(t *testing.T) {
	w := after(t, "a b", "b acquire\n owner b\n ping\n a lock k\n owner none\n a lock l")
	n := w.node("a")
	inject(w, "b", "a", peer.Frame{Kind: peer.Ask, Key: []byte("k"), Session: []byte("a"), Request: 1})
	if e := n.ends["b"]; len(e.sending) != 1 || len(n.releases) > 0 {
		t.Error("a request that is pending is denied")
	}
	do(t, w, "owner b\n cut a b\n a lock m\n a calls")
	do(t, w, "link a b\n a send contend m")
	inject(w, "b", "a", peer.Frame{Kind: peer.Recall, Key: []byte("m"), Session: []byte("a"), Request: 4})
	if len(n.releases) > 0 {
		t.Error("a request that is at the arbiter is released")
	}
}

// A node that is told so by another one looks at its own ring: it follows no other node's (rule
// 14).
func TestFrames_ANodeIsToldThatThePartitionShouldBeItsOwn(t *testing.T) {
	w := after(t, "a b", "owner a")
	f := peer.Frame{Kind: peer.Moved, Flags: lease.FlagYours}
	inject(w, "b", "a", f)
	if n := w.node("a"); n.P.Phase() != lease.Acquiring {
		t.Error(n.P.Phase())
	}
	inject(w, "a", "b", f)
	if n := w.node("b"); n.P.Phase() != lease.Unowned {
		t.Error("its ring says another one:", n.P.Phase())
	}
	inject(w, "a", "b", peer.Frame{Kind: peer.Moved, Flags: lease.FlagLeft})
	if n := w.node("b"); n.P.Phase() != lease.Acquiring {
		t.Error("its ring says the one that leaves:", n.P.Phase())
	}
}

func TestFreed_AMessageIsLookedUpOncePerRetry(t *testing.T) {
	w := after(t, "a b", "b lock k\n b calls\n a acquire\n owner a\n ping\n cut a b\n link a b\n a told freed k b#1\n a told freed k b#1\n a told freed l b#1")
	asked := 0
	for _, line := range []string{"a rumors", "a told freed k b#1", "a rumors", "tick 1s", "a told freed k b#1", "a rumors"} {
		log, err := w.Do(line)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range log {
			if x == "a -> b: Ask k of b#1" {
				asked++
			}
		}
	}
	if asked != 2 {
		t.Error(asked)
	}
}

func TestTry_ComesAfterARequestThatIsUnderWay(t *testing.T) {
	w := after(t, "a b", "a lock k")
	log, err := w.Do("a try k")
	if err != nil || len(log) != 1 || log[0] != "a is refused k: locked" {
		t.Error(log, err)
	}
}

func TestTake_BeginsToAcquire(t *testing.T) {
	w := New("a")
	n := w.node("a")
	n.event(func(now time.Time, _ *lease.Effects) { n.P.Take(now) })
	if n.P.Phase() != lease.Acquiring {
		t.Error(n.P.Phase())
	}
}

// A hold that has a row, and an owner that goes on announcing deadlines, is in force until the
// later of the two: it may rest on that owner again (rule 17).
func TestDeadlines_TheLaterOneOfRowAndOwnerCounts(t *testing.T) {
	w := after(t, "a b", "a acquire\n owner a\n ping\n b lock k\n deliver\n tick 4s\n b renew\n tick 4600ms\n b renew\n b adopt\n a renew\n a verify")
	row, _ := w.node("b").P.HoldOf("k")
	do(t, w, "tick 1s\n a renew\n a verify\n b renew\n ping")
	if h, _ := w.node("b").P.HoldOf("k"); !h.Until.Slot.After(row.Until.Slot) {
		t.Error(h.Until.Slot, row.Until.Slot)
	}
}

// A node's use is counted once: also for requests that were parked, repeated, sent away, or given
// up.
func TestUsed_CountsEachRequestOnce(t *testing.T) {
	for name, commands := range map[string]string{
		"parked":           "",
		"parked, given up": "b leave k\n deliver",
		"served":           "a execute acquire\n a answer acquire\n deliver",
		"another waits":    "a execute acquire\n a answer acquire\n deliver\n c lock k\n deliver\n c leave k\n c lock k\n deliver",
		"sent away":        "a fail acquire\n deliver",
		"near a's end":     "a execute acquire\n a answer acquire\n deliver\n tick 8501ms\n b renew\n b lock j\n deliver",
		"given back":       "a execute acquire\n a answer acquire\n deliver\n b unlock k\n c lock k\n deliver\n deliver",
	} {
		w := after(t, "a b c", "owner a\n ping\n deliver\n a send acquire\n b lock k\n deliver\n "+commands)
		a, counted := w.node("a"), make(map[lease.Link]int)
		a.P.Usage(func(l lease.Link) { counted[l]++ })
		for node, e := range a.ends {
			if e.used != counted[e] {
				t.Errorf("%s: %s uses %d keys, not %d", name, node, counted[e], e.used)
			}
		}
	}
}
