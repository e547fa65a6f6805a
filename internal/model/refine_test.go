package model

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/takes"
)

// TestSpecifiedGuards takes guards away. Without each of them the model breaks a rule of package
// spec.
func TestSpecifiedGuards(t *testing.T) {
	takes.Seconds(t)
	for _, c := range []struct {
		off    Guard
		in     bounds
		shared bool
		rule   string
	}{
		{ImportRows, bounds{}, false, "I1: there is"},
		{OwnedRefusesLocks, bounds{}, false, "I4: the arbiter grants the key while"},
		{DeadBeforeEvictRow, bounds{}, false, "I1: there is"},
		{DeadBeforeEvictOwner, bounds{}, false, "I4: the partition is given away while"},
		{Clock, bounds{faults: 1, failovers: 1, lossy: true}, false, "I6: epoch"},
		{Margin, bounds{faults: 2, cuts: 1, drift: 1}, false, "I3: it"},
		{StopBeforeDemote, bounds{faults: 1, delays: 1}, false, "rule 5: it demotes before it freezes"},
		{SteppedRemote, bounds{faults: 1, steps: 1}, false, "rule 5: the rows lack"},
		{UnservedForswears, bounds{faults: 1, delays: 1}, false, "rule 6: the epoch was not given to it"},
		{PendingIsHad, bounds{}, false, "the model has"}, // a grant on its way of a hold that was released
		{FreedAsked, bounds{}, false, "rule 9: the hold is in force"},
		{GrantLooksShared, bounds{}, true, "I1: there is"},
		{Downgrades, bounds{}, true, "I1: there is"},
	} {
		t.Run(c.off.String(), func(t *testing.T) {
			t.Parallel()
			m := c.in.model()
			m.Without, m.Shared, m.Downgrades, m.Specified, m.Check = c.off, c.shared, c.off == Downgrades, true, unchecked
			r := m.Explore()
			t.Logf("%s, after %d states, %v:", r.Broken, r.States, r.Took)
			tell(t, r)
			if !strings.HasPrefix(r.Broken, "not specified: ") || !strings.Contains(r.Broken, ": "+c.rule) {
				t.Errorf("%q, expected that %s", r.Broken, c.rule)
			}
		})
	}
}

// unchecked is no invariant.
const unchecked Invariant = 1 << 15
