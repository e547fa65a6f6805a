package leasetest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// namesOf returns the names that a node locks in TestRandomWalks_Modes: a key that is read and
// written, and three permits of another one.
func namesOf(node string) []string {
	return []string{
		"k", fallback.SharedName("k", node), fallback.PermitsName("m", 2, 3, node), fallback.PermitsName("m", 1, 3, node+"2"), fallback.SharedName("k", node),
		fallback.DowngradedName("k", node), fallback.DowngradedName("k", node),
		fallback.BlockName("m", 3, 3, node, 1), fallback.BlockName("m", 2, 3, node, 1), fallback.BlockName("m", 1, 3, node, 1),
	}
}

// inForceTogether are the modes and tokens of all holds of a key in force by the clock that callers
// use.
type inForceTogether struct {
	modes  []fallback.Mode
	tokens []uint64
}

func (w *World) inForce() map[string]*inForceTogether {
	all := map[string]*inForceTogether{"k": {}, "m": {}}
	for _, n := range w.Nodes {
		for name, x := range n.turns {
			if _, m := fallback.Split(name); m.Kind == fallback.Downgraded && x.fence != n.downgraded {
				continue // it is not used before the exclusive hold was ceded for it
			}
			if h, ok := n.P.HoldOf(name); ok && !h.Until.Past(w.now) {
				key, m := fallback.Split(name)
				all[key].modes, all[key].tokens = append(all[key].modes, m), append(all[key].tokens, x.fence)
			}
		}
	}
	return all
}

// TestRandomWalks_Modes lets nodes do anything in any order, with readers, writers and permits, and
// cuts their streams. A writer is alone, permits are not more than there are (I1), and tokens rise
// from a writer to the holders after it (I2).
func TestRandomWalks_Modes(t *testing.T) {
	granted, together, seeds := 0, 0, uint64(fewer(walks/2, 8))
	for seed := range seeds {
		g, n, wrong := walkModes(t, seed, true)
		if wrong != "" {
			_, _, wrong = walkModes(t, seed, false)
			t.Fatal(wrong)
		}
		granted, together = granted+g, together+n
	}
	if uint64(granted) < seeds || uint64(together) < seeds/4 {
		t.Errorf("%d grants, %d of them beside others", granted, together)
	}
}

// walkModes returns how many locks were granted, how many of them beside others, and the story of a
// violation if there was one.
func walkModes(t *testing.T, seed uint64, quiet bool) (granted, together int, wrong string) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 2))
	nodes := []string{"a", "b", "c"}[:2+seed%2]
	w := New(nodes...)
	w.owner, w.Quiet = nodes[r.IntN(len(nodes))], quiet
	var story []string
	last := make(map[string]uint64)    // by key: the highest token of a writer
	highest := make(map[string]uint64) // of all
	seen := make(map[uint64]bool)
	for range 250 {
		line := stepModes(w, r)
		if line == "" {
			continue
		}
		log, err := w.Do(line)
		if err != nil {
			t.Fatal(err)
		}
		story = append(append(story, "> "+line), log...)
		for key, x := range w.inForce() {
			bad := ""
			for i, m := range x.modes {
				others := append(append([]fallback.Mode(nil), x.modes[:i]...), x.modes[i+1:]...)
				if !m.Beside(others...) {
					bad = "I1: holds that must not be in force beside each other"
				}
				if seen[x.tokens[i]] {
					continue
				}
				seen[x.tokens[i]] = true
				granted++
				together += min(len(others), 1)
				if exclusive := m == (fallback.Mode{}); x.tokens[i] <= last[key] || exclusive && x.tokens[i] <= highest[key] {
					bad = "I2: a token that is not above those before"
				} else if exclusive {
					last[key] = x.tokens[i]
				}
				highest[key] = max(highest[key], x.tokens[i])
			}
			if bad != "" {
				return granted, together, fmt.Sprintf("seed %d: %s: %+v\n%s", seed, bad, x, lines(story))
			}
		}
	}
	return granted, together, ""
}

// stepModes returns a random command that makes sense, or none.
func stepModes(w *World, r *rand.Rand) string {
	n := w.Nodes[r.IntN(len(w.Nodes))]
	names := namesOf(n.Name)
	name := names[r.IntN(len(names))]
	other := w.Nodes[r.IntN(len(w.Nodes))]
	word := shown.Replace(name)
	switch r.IntN(20) {
	case 0, 1:
		return "tick " + []string{"100ms", "500ms", "2s"}[r.IntN(3)]
	case 2, 3, 4:
		return "deliver"
	case 5:
		return "ping"
	case 6:
		switch e := n.ends[other.Name]; {
		case e == nil:
			return ""
		case e.down:
			return fmt.Sprintf("link %s %s", n.Name, other.Name)
		case r.IntN(2) == 0:
			return fmt.Sprintf("cut %s %s", n.Name, other.Name)
		}
		return ""
	case 7:
		if n.P.Phase() != lease.Unowned {
			if r.IntN(3) > 0 {
				return ""
			}
			return n.Name + " demote"
		}
		if w.owner != n.Name {
			return ""
		}
		return n.Name + " acquire"
	case 8, 9:
		for held := range n.turns {
			if d := n.turns[fallback.DowngradedName("k", n.Name)]; held == "k" && d.fence > n.turns["k"].fence {
				return n.Name + " cede k"
			}
			return fmt.Sprintf("%s unlock %s", n.Name, shown.Replace(held))
		}
		return ""
	case 10, 11, 12:
		if len(n.waiters[name]) > 0 || n.turns[name].t != nil {
			return ""
		}
		if _, m := fallback.Split(name); m.Kind == fallback.Downgraded && n.turns["k"].t == nil {
			return ""
		}
		return fmt.Sprintf("%s %s %s", n.Name, []string{"lock", "lock", "try"}[r.IntN(3)], word)
	case 13:
		return n.Name + " calls"
	case 14:
		return n.Name + " verify"
	case 15:
		return n.Name + " adopt"
	case 16:
		return n.Name + " release"
	case 17:
		return n.Name + " renew"
	case 18:
		return n.Name + " doubt"
	default:
		return fmt.Sprintf("%s %s %s", n.Name, []string{"watch", "leave"}[r.IntN(2)], word)
	}
}

// A writer that waits is served before readers that come later. So is one that has waited since the
// time of other readers, which have gone.
func TestModes_NoReaderOvertakes(t *testing.T) {
	for _, writer := range []string{"a", "d"} {
		w := after(t, "a b c d", "a acquire\n owner a\n ping\n b lock k\n deliver\n deliver\n c lock k:sc\n deliver")
		do(t, w, writer+" lock k\n deliver\n c leave k:sc\n deliver\n c lock k:sc\n deliver")
		if all := w.node("a").P.Behind("k", w.now); len(all) != 1 {
			t.Errorf("behind %s's: %+v", writer, all)
		}
		do(t, w, "b unlock k\n deliver\n pass 2.5s\n deliver")
		if s := statusOf(w.node(writer), "k"); !s.Locked {
			t.Errorf("the writer %s waits: %+v", writer, s)
		}
	}
}
