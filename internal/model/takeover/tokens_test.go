package takeover

import "testing"

// tokens has two failovers by the default settings: T 10 s, Q 12 s, M and delta 1 s. At most three
// epochs begin at a server that has taken over, and the first server's are three ahead of its clock.
func tokens() *Tokens {
	return &Tokens{Q: 24, M: 2, Delta: 2, Age: 4, Lead: 12, Apart: 9, Turns: 3, Ahead: 3, Failovers: 2}
}

// TestTokens_Rise: epochs rise though each server loses all, and Grace ends early.
func TestTokens_Rise(t *testing.T) {
	t.Parallel()
	holds(t, tokens().Explore(), true)
}

// TestTokens_EachGuardPrevents takes each guard away, or goes beyond a bound, and expects an epoch
// that is not above all before it.
func TestTokens_EachGuardPrevents(t *testing.T) {
	with := func(change func(m *Tokens)) *Tokens {
		m := tokens()
		change(m)
		return m
	}
	without := func(g TokenGuard) *Tokens { return with(func(m *Tokens) { m.Without = g }) }
	for _, tt := range []struct {
		name  string
		m     *Tokens
		steps int
	}{
		{Floor.String(), without(Floor), 6},
		{FloorBelow.String(), without(FloorBelow), 19},
		{SpeaksApart.String(), without(SpeaksApart), 14},
		{"a fourth epoch", with(func(m *Tokens) { m.Turns++ }), 10},
		{"clocks farther apart", with(func(m *Tokens) { m.M++ }), 20},
		{"as until November 30", with(func(m *Tokens) { m.Age, m.Without = 6, FloorBelow|SpeaksApart }), 19},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			breaks(t, tt.m.Explore(), tt.steps)
		})
	}
}
