package ring

import "testing"

func TestStates(t *testing.T) {
	for s, want := range map[State]string{Joining: "joining", Active: "active", Leaving: "leaving", 9: "State(9)"} {
		if s.String() != want {
			t.Errorf("%v, want %v", s, want)
		}
	}
}
