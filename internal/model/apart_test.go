package model

import "testing"

// TestApart explores nodes of two arbiters that reach each other, in the three ways in which that
// comes about, and without the guard.
func TestApart(t *testing.T) {
	for name, m := range map[string]Apart{
		"a copy of the data":                            {Acquires: 3, Grants: 4, Copied: true},
		"two empty servers and common Seeds":            {Acquires: 3, Grants: 4},
		"an address that changes in a rolling restart":  {Acquires: 3, Grants: 3, Moves: 2},
		"the same, and the data were copied beforehand": {Acquires: 3, Grants: 3, Moves: 2, Copied: true},
	} {
		t.Run(name, func(t *testing.T) {
			states, broken, story := m.Explore()
			t.Logf("%d states", states)
			if broken != "" || states < 100 {
				t.Errorf("%q after %d states: %q", broken, states, story)
			}
			m.Unlisted = true
			if states, broken, story = m.Explore(); broken == "" {
				t.Errorf("nodes that no arbiter lists do no harm, in %d states", states)
			}
			t.Logf("without the guard: %s", broken)
			for i, line := range story {
				t.Logf("%3d. %s", i+1, line)
			}
		})
	}
}
