package takeover

import "testing"

func endings(holders int, failovers uint8) *Endings {
	return &Endings{Holders: holders, D: 2, Grace: 4, Delta: 1, Failovers: failovers, Limit: 3_000_000}
}

// finer has a deposed server that answers for two ticks.
func (m *Endings) finer() *Endings {
	m.D, m.Grace, m.Delta = 3, 6, 2
	return m
}

// apart has a server of the table, and one of the partition.
func (m *Endings) apart() *Endings {
	m.Apart = true
	return m
}

// asking has lists that do not tell of Grace.
func (m *Endings) asking() *Endings {
	m.AsksFirst = true
	return m
}

// TestEndings_AreSafe: a session of a process that has ended is buried early, and no holder relies
// on it then.
func TestEndings_AreSafe(t *testing.T) {
	for _, tt := range []struct {
		name string
		m    *Endings
	}{
		{"one holder", endings(1, 0)},
		{"two", endings(2, 0)},
		{"one; a failover", endings(1, 1)},
		{"one; a failover, the deposed server answers for long", endings(1, 1).finer()},
		{"one; two failovers", endings(1, 2)},
		{"two; a failover", endings(2, 1)},
		{"one; two servers, both fail over", endings(1, 1).apart()},
		{"one; lists do not tell of Grace, a failover", endings(1, 1).asking()},
		{"one; the same, the deposed server answers for long", endings(1, 1).asking().finer()},
		{"one; the same, two failovers", endings(1, 2).asking()},
		{"one; the same, two servers, both fail over", endings(1, 1).asking().apart()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			holds(t, tt.m.Explore(), true)
		})
	}
}

func TestEndings_Deep(t *testing.T) {
	needsDeep(t)
	for _, tt := range []struct {
		name string
		m    *Endings
	}{
		{"two; two failovers", endings(2, 2)},
		{"one; two servers, each fails over twice", endings(1, 2).apart()},
		{"two; two servers, both fail over", endings(2, 1).apart()},
		{"two; the same, the deposed servers answer for long", endings(2, 1).apart().finer()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.m.Limit = *limit
			holds(t, tt.m.Explore(), true)
		})
	}
}

// soon looks for what the rules are for.
type soon struct {
	*Endings
	held bool
}

func (m soon) check(s *endState) string {
	if s.taken && s.left > 0 && (s.y[0].held || !m.held) {
		return "X is buried before the guardian's promise has passed"
	}
	return ""
}

// TestEndings_AreSoon: the guardian does not wait for its promise. A holder that has adopted holds
// on.
func TestEndings_AreSoon(t *testing.T) {
	t.Parallel()
	breaks(t, explore[endState](soon{endings(1, 0), false}, 0), 5)
	breaks(t, explore[endState](soon{endings(1, 0), true}, 0), 11)
}

// TestEndings_EachGuardPrevents takes each guard away, and expects that a key of X or of a holder is
// free.
func TestEndings_EachGuardPrevents(t *testing.T) {
	for _, tt := range []struct {
		off   EndGuard
		in    *Endings
		steps int
	}{
		{ProofOfEnd, endings(1, 0), 4},
		{ProofOfListed, endings(1, 0), 8},
		{ClearRests, endings(1, 0), 10},
		{ClearCut, endings(1, 0), 10},
		{ClearAll, endings(1, 0), 8},
		{ListAfter, endings(1, 0), 8},
		{ListGrace, endings(1, 1), 9},
		{ListWaits, endings(1, 1).asking(), 10},
		{EndedGrace, endings(1, 1).asking().apart(), 11},
		{EndedNewcomer, endings(1, 1), 9},
		{EndedRowLate, endings(1, 1), 12},
	} {
		t.Run(tt.off.String(), func(t *testing.T) {
			t.Parallel()
			tt.in.Without = tt.off
			breaks(t, tt.in.Explore(), tt.steps)
		})
	}
}

// TestEndings_ListTellsOfGrace: where it does, a burial in Grace does no harm (G11).
func TestEndings_ListTellsOfGrace(t *testing.T) {
	t.Parallel()
	for _, m := range []*Endings{endings(1, 1), endings(1, 1).apart(), endings(1, 2)} {
		m.Without = EndedGrace
		holds(t, m.Explore(), true)
	}
}
