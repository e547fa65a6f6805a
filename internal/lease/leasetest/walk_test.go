package leasetest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// walks is the number of seeds that TestRandomWalks tries.
const walks = 6000

// TestRandomWalks lets two nodes do anything in any order, and cuts their stream. No key may have
// two holders in force (I1), and tokens rise (I2).
func TestRandomWalks(t *testing.T) {
	granted, seeds := 0, uint64(fewer(walks, 8))
	for seed := range seeds {
		n, wrong := walk(t, seed, true)
		if wrong != "" {
			_, wrong = walk(t, seed, false)
			t.Fatal(wrong)
		}
		granted += n
	}
	if uint64(granted) < seeds {
		t.Errorf("%d grants only", granted)
	}
}

// fewer returns n, or n divided by a number where there is no time for all: with the race detector,
// as a walk is one goroutine, and with -short.
func fewer(n, by int) int {
	if race || testing.Short() {
		return n / by
	}
	return n
}

// walk returns how many locks were granted, and the story of a violation if there was one.
func walk(t *testing.T, seed uint64, quiet bool) (granted int, wrong string) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	w, last, names := New("a", "b"), make(map[string]uint64), []string{"a", "b"}
	w.owner, w.Quiet = names[r.IntN(2)], quiet
	var story []string
	for range 200 {
		line := step(w, r)
		if line == "" {
			continue
		}
		log, err := w.Do(line)
		if err != nil {
			t.Fatal(err)
		}
		story = append(append(story, "> "+line), log...)
		for _, key := range []string{"k", "l"} {
			n, newest := inForce(w, key)
			if n > 1 || newest > 0 && newest < last[key] {
				return granted, fmt.Sprintf("seed %d: %d nodes hold %s, token %s after %s:\n%s", seed, n, key, token(newest), token(last[key]), lines(story))
			}
			if newest > last[key] {
				last[key] = newest
				granted++
			}
		}
	}
	return granted, ""
}

// step returns a random command that makes sense, or none.
func step(w *World, r *rand.Rand) string {
	n := w.Nodes[r.IntN(2)]
	key := []string{"k", "l"}[r.IntN(2)]
	switch r.IntN(18) {
	case 0, 1:
		return "tick " + []string{"100ms", "500ms", "2s"}[r.IntN(3)]
	case 2, 3, 4:
		return "deliver"
	case 5:
		return "ping"
	case 6:
		if w.Nodes[0].ends["b"].down {
			return "link a b"
		}
		return "cut a b"
	case 7:
		if n.P.Phase() != lease.Unowned {
			return n.Name + " demote"
		}
		if v := w.owner; v != n.Name {
			return ""
		}
		return n.Name + " acquire"
	case 8:
		if _, ok := n.turns[key]; !ok {
			return ""
		}
		return fmt.Sprintf("%s unlock %s", n.Name, key)
	case 9, 10:
		if len(n.waiters[key]) > 0 || n.turns[key].t != nil {
			return ""
		}
		return fmt.Sprintf("%s lock %s", n.Name, key)
	case 11:
		return n.Name + " calls"
	case 12:
		return n.Name + " verify"
	case 13:
		return n.Name + " adopt"
	case 14:
		return n.Name + " release"
	case 15:
		return n.Name + " renew"
	case 16:
		return n.Name + " doubt"
	default:
		return fmt.Sprintf("%s watch %s", n.Name, key)
	}
}

// inForce returns how many nodes hold a key by the clock, and the highest token of those.
func inForce(w *World, key string) (nodes int, newest uint64) {
	for _, n := range w.Nodes {
		h, ok := n.P.HoldOf(key)
		if x, locked := n.turns[key]; ok && locked && !h.Until.Past(w.now) {
			nodes++
			newest = max(newest, x.fence)
		}
	}
	return nodes, newest
}

func lines(story []string) (text string) {
	for _, line := range story[max(0, len(story)-60):] {
		text += line + "\n"
	}
	return text
}
