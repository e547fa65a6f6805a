//go:build mutants

package guardians_test

import (
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/internal/guard"
)

// TestWorld_NoticesEachGuard takes one guard of G1 to G8 away after another. Some seed within a
// thousand breaks without it.
func TestWorld_NoticesEachGuard(t *testing.T) {
	for _, name := range []string{
		"MarginD", "PingSent", "VoteLate", "VoteFinal", "Votes", "Intersect", "Compares", "NoneBuried", "Rising",
		"NextCounts", "BothCount",
	} {
		t.Run(name, func(t *testing.T) {
			*guard.All[name] = false
			defer func() { *guard.All[name] = true }()
			times := times3()
			if !slices.ContainsFunc(seeds(1000), func(seed uint64) bool {
				w := chaos(t, seed, times, nil)
				if w.broken != "" {
					t.Logf("after %d worlds: %s", seed+1, w.broken)
				}
				return w.broken != ""
			}) {
				t.Error("nothing was noticed")
			}
		})
	}
}

func seeds(n uint64) (all []uint64) {
	for seed := range n {
		all = append(all, seed)
	}
	return all
}
