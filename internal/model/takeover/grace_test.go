package takeover

import "testing"

// owner has session X, which may own the partition, and Z.
func owner() *EndOfGrace {
	return &EndOfGrace{T: 2, Q: 4, W: 3, Delta: 1, D: 1, Failovers: 1, Limit: 3_000_000}
}

// holder has Y besides, and X grants it the key.
func holder() *EndOfGrace {
	m := owner()
	m.Holder = true
	return m
}

// guarded has guardians of X instead.
func guarded() *EndOfGrace {
	return &EndOfGrace{T: 3, Q: 5, W: 3, Delta: 1, D: 2, Failovers: 1, Sets: true, Limit: 3_000_000}
}

func (m *EndOfGrace) twice() *EndOfGrace {
	m.Failovers = 2
	return m
}

// TestEndOfGrace_IsSafe: an early end of Grace makes no second owner or holder.
func TestEndOfGrace_IsSafe(t *testing.T) {
	for _, tt := range []struct {
		name string
		m    *EndOfGrace
	}{
		{"an owner", owner()},
		{"an owner and a holder", holder()},
		{"an owner with guardians", guarded()},
		{"an owner; two failovers", owner().twice()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			holds(t, tt.m.Explore(), true)
		})
	}
}

// TestEndOfGrace_EachGuardPrevents takes each guard away, and expects two owners, or two holders.
func TestEndOfGrace_EachGuardPrevents(t *testing.T) {
	for _, tt := range []struct {
		off   GraceGuard
		in    *EndOfGrace
		steps int
	}{
		{LagCompared, owner(), 13},
		{Probation, owner(), 7},
		{ProbationAdopts, holder(), 19},
		{AllSpoken, owner(), 12},
		{SpeaksLast, owner(), 14},
		{SpeaksForOthers, holder(), 18},
		{SpeaksLate, owner(), 12},
		{SpeaksByRenewal, owner(), 13},
		{OldAnswersVoid, owner(), 15},
		{NoneExpires, owner(), 14},
		{NoneBuried | JointLonger, guarded(), 17},
		{CopyInGrace, owner().twice(), 14},
		{Deposed, owner(), 10},
	} {
		t.Run(tt.off.String(), func(t *testing.T) {
			t.Parallel()
			tt.in.Without = tt.off
			breaks(t, tt.in.Explore(), tt.steps)
		})
	}
}

// notNeeded are guards that are for sessions which the new server does not know.
const notNeeded = LagCompared | Probation | ProbationAdopts | NoneExpires | NoneBuried | JointLonger | CopyInGrace | Recreated

// TestEndOfGrace_SessionsApart: where the sessions' server is another one and does not fail over,
// as often in a Redis Cluster, no session is unknown. Neither lag nor probation counts, and a
// statement of that server may arrive later.
func TestEndOfGrace_SessionsApart(t *testing.T) {
	apart := func(m *EndOfGrace, without GraceGuard) *EndOfGrace {
		m.Apart, m.Without = true, notNeeded|without
		return m
	}
	for _, tt := range []struct {
		name  string
		m     *EndOfGrace
		steps int // 0: it holds
	}{
		{"an owner", apart(owner(), 0), 0},
		{"an owner and a holder", apart(holder(), 0), 0},
		{"an owner with guardians", apart(guarded(), 0), 0},
		{"an owner; two failovers", apart(owner().twice(), 0), 0},
		{"AllSpoken", apart(owner(), AllSpoken), 7},
		{"SpeaksLast", apart(owner(), SpeaksLast), 8},
		{"SpeaksForOthers", apart(holder(), SpeaksForOthers), 13},
		{"SpeaksLate", apart(owner(), SpeaksLate), 6},
		{"OldAnswersVoid", apart(owner(), OldAnswersVoid), 9},
		{"Deposed", apart(owner(), Deposed), 7},
		{"StatementNamed", apart(owner().twice(), StatementNamed), 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if r := tt.m.Explore(); tt.steps == 0 {
				holds(t, r, true)
			} else {
				breaks(t, r, tt.steps)
			}
		})
	}
}

// TestEndOfGrace_BuriesInGrace: X may be buried in Grace if it needs both sets' promises for W.
func TestEndOfGrace_BuriesInGrace(t *testing.T) {
	m := guarded()
	m.Without = NoneBuried
	holds(t, m.Explore(), true)
}

// TestEndOfGrace_Defences: without these nothing happens within these bounds, as others are in
// force.
func TestEndOfGrace_Defences(t *testing.T) {
	m := owner().twice()
	m.Without = Recreated
	holds(t, m.Explore(), true)
}
