package model

import "testing"

func emptiedWithin() *Emptied { return &Emptied{T: 2, Q: 3, Wipes: 2, Ticks: 6} }

func explainEmptied(t *testing.T, m *Emptied) string {
	t.Helper()
	states, broken, story := m.Explore()
	t.Logf("%q after %d states", broken, states)
	for i, line := range story {
		t.Logf("%3d. %s", i+1, line)
	}
	return broken
}

func TestEmptied(t *testing.T) {
	t.Parallel()
	if explainEmptied(t, emptiedWithin()) != "" {
		t.Error("a key has two holders")
	}
}

// TestEmptiedGuards takes guards away, and expects that a key has two holders.
func TestEmptiedGuards(t *testing.T) {
	for name, off := range map[string]EmptiedGuard{"NewGrace": NewGrace, "AbsentGrace": AbsentGrace, "NewGraceAnew": NewGraceAnew} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := emptiedWithin()
			m.Without = off
			if explainEmptied(t, m) == "" {
				t.Error("it is not needed, as it seems")
			}
		})
	}
}

// TestEmptiedGrants shows that the search is not empty: once the holder is gone, the key is granted.
func TestEmptiedGrants(t *testing.T) {
	t.Parallel()
	m := emptiedWithin()
	m.Q = 1 // shorter than the lease
	if explainEmptied(t, m) == "" {
		t.Error("the key is never granted")
	}
}
