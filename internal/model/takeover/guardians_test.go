package takeover

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/takes"
)

// Guardians, as bits of a set.
const a, b, c, d = 1, 2, 4, 8

var (
	allRates = []uint8{0, 1, 2, 3, 4, 5, 6, 7}
	worst    = []uint8{4} // X and Y slow, guardians fast
)

// bounds are small ones, with clocks at two thirds of each other.
func bounds(sets ...uint8) *Guardians {
	return &Guardians{Sets: sets, Slow: 2, Fast: 3, D: 6, V: 4, T: 8, Grace: 4, Rates: allRates}
}

// fine has units that are half as long.
func fine(sets ...uint8) *Guardians {
	return &Guardians{Sets: sets, Slow: 2, Fast: 3, D: 12, V: 8, T: 16, Grace: 8, Rates: allRates}
}

// quarter has clocks at three quarters of each other.
func quarter(sets ...uint8) *Guardians {
	return &Guardians{Sets: sets, Slow: 3, Fast: 4, D: 12, V: 9, T: 15, Grace: 5, Rates: allRates}
}

// tenth has clocks that differ by a tenth, as those do that M of 1 s in 10 s is for.
func tenth(sets ...uint8) *Guardians {
	return &Guardians{Sets: sets, Slow: 9, Fast: 10, D: 90, V: 81, T: 99, Grace: 11, Rates: allRates}
}

func (m *Guardians) with(failovers, restarts uint8, rates []uint8) *Guardians {
	m.Failovers, m.Restarts, m.Rates = failovers, restarts, rates
	return m
}

// answering has a deposed server that answers for delta. Grace is longer by that.
func (m *Guardians) answering(delta int8) *Guardians {
	m.Delta, m.Grace = delta, m.Grace+delta
	return m
}

func (m *Guardians) beside() *Guardians {
	m.Beside = true
	return m
}

// adopting has Y adopt its hold.
func (m *Guardians) adopting() *Guardians {
	m.Adopts = true
	return m
}

// expiring has X expire at servers.
func (m *Guardians) expiring() *Guardians {
	m.Expires = true
	return m
}

func (m *Guardians) wander() *Guardians {
	m.Wander = true
	return m
}

func TestGuardians_BuriedIsNotValid(t *testing.T) {
	for _, tt := range []struct {
		name string
		m    *Guardians
	}{
		{"one, another; all clocks", bounds(a, b)},
		{"none, one, none; all clocks", bounds(0, a, 0)},
		{"one; clocks that differ by a quarter", quarter(a)},
		{"one; clocks that change", bounds(a).wander()},
		{"one, two", bounds(a, a|b).with(0, 0, worst)},
		{"none, one; a failover", bounds(0, a).with(1, 0, worst)},
		{"one, none; a failover, the deposed server answers", bounds(a, 0).with(1, 0, worst).answering(2)},
		{"one, another; a failover, the deposed server answers", bounds(a, b).with(1, 0, worst).answering(2)},
		{"one, Y adopts; a failover, the deposed server answers", bounds(a).with(1, 0, worst).answering(2).adopting()},
		{"one, none, Y adopts; a failover, the deposed server answers", bounds(a, 0).with(1, 0, worst).answering(2).adopting()},
		{"none, expiry; all clocks", bounds(0).with(0, 0, allRates).expiring()},
		{"none, expiry; a failover, the deposed server answers", bounds(0).with(1, 0, allRates).answering(2).expiring()},
		{"none, expiry; the same, two renewals at a time", bounds(0).with(1, 0, worst).answering(2).expiring().beside()},
		{"none, one, expiry; the same", bounds(0, a).with(1, 0, worst).answering(2).expiring()},
		{"one, expiry, Y adopts; the same", bounds(a).with(1, 0, worst).answering(2).expiring().adopting()},
		{"none, expiry; two failovers, the deposed servers answer", bounds(0).with(2, 0, worst).answering(2).expiring()},
		{"two of three; a restart", bounds(a|b|c).with(0, 1, worst)},
		{"one; two renewals at a time", bounds(a).beside()},
		{"one, none; two renewals at a time", bounds(a, 0).with(0, 0, worst).beside()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.m.Restarts > 0 || tt.m.Failovers > 0 && len(tt.m.Sets) > 1 {
				takes.Seconds(t)
			}
			if testing.Short() {
				tt.m.Rates = worst
			}
			holds(t, tt.m.Explore(), true)
		})
	}
}

func TestGuardians_Deep(t *testing.T) {
	needsDeep(t)
	for _, tt := range []struct {
		name string
		m    *Guardians
	}{
		{"one, another, the first; all clocks", bounds(a, b, a)},
		{"one, another, none; clocks that change", bounds(a, b, 0).wander()},
		{"one, two, another; all clocks", bounds(a, a|b, b)},
		{"one, another, the first; a failover", bounds(a, b, a).with(1, 0, worst)},
		{"none, one, none; a failover, all clocks", bounds(0, a, 0).with(1, 0, allRates)},
		{"none, one; two failovers", bounds(0, a).with(2, 0, worst)},
		{"one, another, none; a failover, the deposed server answers for long", bounds(a, b, 0).with(1, 0, worst).answering(2)},
		{"one, none; two failovers, deposed servers answer", bounds(a, 0).with(2, 0, worst).answering(1)},
		{"one, Y adopts; two failovers, deposed servers answer", bounds(a).with(2, 0, worst).answering(1).adopting()},
		{"one, another, Y adopts; a failover, the deposed server answers", bounds(a, b).with(1, 0, worst).answering(2).adopting()},
		{"one, another, expiry; a failover, the deposed server answers", bounds(a, b).with(1, 0, worst).answering(2).expiring()},
		{"none, expiry; clocks that change, two failovers, deposed servers answer", bounds(0).with(2, 0, allRates).answering(2).expiring().wander()},
		{"none, expiry; clocks that differ by a quarter, a failover, the deposed server answers", quarter(0).with(1, 0, allRates).answering(3).expiring()},
		{"one; clocks that differ by a tenth", tenth(a)},
		{"one, another; clocks that differ by a tenth", tenth(a, b).with(0, 0, worst)},
		{"one; clocks that change", fine(a).wander()},
		{"one, another; two renewals at a time, a failover", bounds(a, b).with(1, 0, worst).beside()},
		{"three, another three; a restart", bounds(a|b|c, b|c|d).with(0, 1, worst)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.m.Limit = *limit
			holds(t, tt.m.Explore(), false)
		})
	}
}

// TestGuardians_MarginIsExact: M_D is as small as it may be (G2).
func TestGuardians_MarginIsExact(t *testing.T) {
	for _, m := range []*Guardians{bounds(a), fine(a), quarter(a)} {
		holds(t, m.Explore(), true)
		m.V++
		if r := m.Explore(); r.Broken == "" {
			t.Errorf("D %d, M_D %d: no violation", m.D, m.D-m.V)
		}
	}
}

// TestGuardians_EachGuardPrevents takes each guard away, and expects that X is dead while X, or Y,
// believes that it is valid.
func TestGuardians_EachGuardPrevents(t *testing.T) {
	for _, tt := range []struct {
		off   Guard
		in    *Guardians
		steps int
	}{
		{MarginD, bounds(a, b, a), 5},
		{PromiseFromSend, bounds(a, b, a), 7},
		{AnswerFromSend, bounds(a, b, a), 7},
		{AnnounceBounded, bounds(a, b, a), 6},
		{AnnounceCapped, fine(0, a).with(0, 0, []uint8{5}), 15},
		{AskCovered, bounds(a, b, a), 6},
		{JointNew, bounds(a, b), 12},
		{JointOld, bounds(a, b), 8},
		{VoteAfterPromise, bounds(a, b, a), 3},
		{VoteIsFinal, bounds(a, b, a), 7},
		{BuryCompares, bounds(a, b, a), 3},
		{VersionsRise, bounds(a, b), 11},
		{Intersect, bounds(a|b, a|b, a|b), 7},
		{GraceBuries, bounds(a, b, a).with(1, 0, worst), 11},
		{RenewalNames, bounds(a, 0).with(1, 0, worst), 11},
		{RenewalNamesAsked, bounds(a, 0).with(1, 0, worst), 13},
		{LapseIsFinal, bounds(a, b, a).with(1, 0, worst), 10},
		{LapseWaits, fine(a), 4},
		{RestartIsAnother, bounds(a, b, a).with(0, 1, worst), 4},
		{Silenced, bounds(a, 0).with(1, 0, worst).answering(2), 8},
		{RowLate, bounds(a).with(1, 0, worst).answering(2).adopting(), 8},
		{LeaseLeft, bounds(0).with(1, 0, worst).answering(2).expiring(), 7},
	} {
		t.Run(tt.off.String(), func(t *testing.T) {
			t.Parallel()
			if tt.steps > 9 {
				takes.Seconds(t)
			}
			tt.in.Without, tt.in.Limit = tt.off, 3_000_000
			breaks(t, tt.in.Explore(), tt.steps)
		})
	}
}
