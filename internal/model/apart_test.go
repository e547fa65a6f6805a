package model

import "testing"

// TestApart explores nodes of two arbiters: of a server and a copy of it, and of two servers. A node may start again and use the other one,
// as when the server's address changes during a rolling restart.
func TestApart(t *testing.T) {
	for _, copied := range []bool{false, true} {
		m := &Apart{Acquires: 3, Grants: 3, Moves: 2, Copied: copied}
		states, broken, story := m.Explore()
		t.Logf("copied %t: %d states", copied, states)
		if broken != "" || states < 1000 {
			t.Errorf("copied %t: %q after %d states: %q", copied, broken, states, story)
		}
		m.Unlisted = true
		if states, broken, story = m.Explore(); broken == "" {
			t.Errorf("copied %t: nodes that no arbiter lists do no harm, in %d states", copied, states)
		}
		t.Logf("without the guard: %s", broken)
		for i, line := range story {
			t.Logf("%3d. %s", i+1, line)
		}
	}
}
