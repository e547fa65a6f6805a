package model

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/takes"
)

func exploreBlocks(t *testing.T, m *Blocks) (states int, broken string) {
	t.Helper()
	begin := time.Now()
	states, broken, story := m.Explore()
	t.Logf("%q after %d states, %v", broken, states, time.Since(begin))
	for i, line := range story {
		t.Logf("%3d. %s", i+1, line)
	}
	return states, broken
}

func TestBlocks(t *testing.T) {
	for name, m := range map[string]*Blocks{
		"two permits, three grants": {N: 2, Grants: 3}, "three permits": {N: 3, Grants: 2}, "three permits, a crash": {N: 3, Grants: 2, Crashes: 1},
		"three permits, a refusal": {N: 3, Grants: 2, Refusals: 1}, "three permits, three grants": {N: 3, Grants: 3},
	} {
		if m.N == 3 && m.Grants == 3 && !*deep { // a minute
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "three permits" {
				takes.Seconds(t)
			}
			if states, broken := exploreBlocks(t, m); broken != "" || states < 300 {
				t.Errorf("%s, after %d states", broken, states)
			}
		})
	}
}

// TestBlockGuards takes each guard away, and expects too many permits in use (I1), or some that are
// free and not to be had (I8).
func TestBlockGuards(t *testing.T) {
	for off, want := range map[BlockGuard]string{
		Separate: "I1", CountOnce: "I8", GrantFirst: "I1", AsInUse: "I1", ShutFirst: "I1", WantedShut: "I8", Shrink: "I8", AskAgain: "I8",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			if _, broken := exploreBlocks(t, &Blocks{N: 3, Grants: 3, Refusals: uint8(off / AskAgain), Without: off, Harm: want == "I1"}); len(broken) < 2 || broken[:2] != want {
				t.Errorf("without %d: %q, expected %s", off, broken, want)
			}
		})
	}
}
