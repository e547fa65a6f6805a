package takeover

import "testing"

// length has leases of 1 and 4 ticks.
func length(failovers uint8) *LengthOfGrace {
	return &LengthOfGrace{T: [2]int8{2, 5}, Q: [2]int8{3, 6}, Failovers: failovers, Limit: 3_000_000}
}

func (m *LengthOfGrace) apart() *LengthOfGrace {
	m.Apart = true
	return m
}

func (m *LengthOfGrace) slow() *LengthOfGrace {
	m.Slow = true
	return m
}

// TestLengthOfGrace_IsSafe: a hold of a session that needs a longer Grace than others outlasts no
// Grace.
func TestLengthOfGrace_IsSafe(t *testing.T) {
	t.Parallel()
	holds(t, length(1).Explore(), true)
}

// TestLengthOfGrace_IsSafeWithinWiderBounds has more failovers, slow renewals, and servers apart.
func TestLengthOfGrace_IsSafeWithinWiderBounds(t *testing.T) {
	needsDeep(t)
	for _, m := range []*LengthOfGrace{length(2), length(1).slow(), length(2).apart(), length(2).slow()} {
		m.Limit = *limit
		holds(t, m.Explore(), false)
	}
}

// TestLengthOfGrace_EachGuardPrevents takes each guard away, and expects that the key of a holder
// is free.
func TestLengthOfGrace_EachGuardPrevents(t *testing.T) {
	for _, tt := range []struct {
		off   LengthGuard
		in    *LengthOfGrace
		steps int
	}{
		{OpensLater, length(1), 9},
		{DrainsFirst, length(1), 11},
		{StatesFirst, length(1), 13},
		{OneAtATime, length(1).slow(), 16},
		{RefusesBehind, length(1), 12},
		{KeptWhileNeeded, length(1), 13},
		{DownOutsideGrace, length(2), 15},
		{NewOutsideGrace, length(2).apart(), 14},
		{SilentWithout, length(1), 11},
		{TableByMark, length(1), 11},
		{RaisedFirst, length(1), 10},
	} {
		t.Run(tt.off.String(), func(t *testing.T) {
			t.Parallel()
			tt.in.Without = tt.off
			breaks(t, tt.in.Explore(), tt.steps)
		})
	}
}
