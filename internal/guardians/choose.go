package guardians

import (
	"cmp"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Choose returns the guardians that a session should have among the live ones: as many as may be of
// its present ones, and others. The order of those differs from session to session, so that all
// guard about as many. Of four it takes three, as three need two votes and four need three.
func Choose(me string, present, live []string) []string {
	live = slices.DeleteFunc(slices.Clone(live), func(s string) bool { return s == me })
	rank := func(s string) uint64 { return xxhash.Sum64String(me + " " + s) }
	slices.SortFunc(live, func(a, b string) int {
		kept := cmp.Compare(btoi(slices.Contains(present, b)), btoi(slices.Contains(present, a)))
		return cmp.Or(kept, cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
	live = slices.Compact(live)
	n := min(len(live), Max)
	if n == 4 {
		n = 3
	}
	return live[:n]
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
