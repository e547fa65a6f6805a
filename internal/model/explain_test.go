package model

import "testing"

// explain explores a model, logs the story of a violation, and returns the violation.
func explain(t *testing.T, m interface {
	Explore() (states int, broken string, story []string)
}) string {
	t.Helper()
	states, broken, story := m.Explore()
	t.Logf("%q after %d states", broken, states)
	for i, line := range story {
		t.Logf("%3d. %s", i+1, line)
	}
	return broken
}
