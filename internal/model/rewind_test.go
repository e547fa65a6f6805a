package model

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/takes"
)

// rewound is a model in which the arbiter's data go back, after a few changes.
func (b bounds) rewound(back uint8) *Model {
	b.faults, b.rewinds = b.faults+1, 1
	m := b.model()
	m.Requests, m.Back, m.Behind = 1, back, 3
	return m
}

// TestRewinds: the arbiter's data go back to those of a backup, under the same identity. All nodes
// have seen newer ones. There are more states than seconds see, so the bound is their number.
func TestRewinds(t *testing.T) {
	for _, c := range []struct {
		name  string
		back  uint8
		in    bounds
		deep  bool
		check Invariant
	}{
		{"the record", BackRecord, bounds{}, false, 0},
		{"the sessions", BackSessions, bounds{}, false, 0},
		{"both", BackRecord | BackSessions, bounds{}, false, 0},
		{"the record", BackRecord, bounds{}, true, 0},
		{"the sessions", BackSessions, bounds{}, true, 0},
		{"both", BackRecord | BackSessions, bounds{}, true, 0},
		{"the record, and a failover that loses nothing", BackRecord, bounds{faults: 1, failovers: 1}, true, 0},
		{"both, and a failover of the sessions", BackRecord | BackSessions, bounds{faults: 1, sessions: 1}, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := c.in.rewound(c.back)
			m.Check, m.Limit = c.check, 60_000
			if c.deep {
				needsDeep(t)
				m.Limit = *limit
			}
			if r := explore(t, m); r.States < m.Limit && !r.Complete {
				t.Errorf("%d states: the model does not do what it should", r.States)
			}
		})
	}
}

// TestRewinds_AreNotNoticed has the cases that are not covered: a limit, which docs/protocol.md
// names.
func TestRewinds_AreNotNoticed(t *testing.T) {
	for _, c := range []struct {
		name string
		back uint8
		in   bounds
	}{
		{"a node has not seen the newer record", BackRecord, bounds{}},
		{"a session has begun since the backup of the sessions", BackSessions, bounds{faults: 1, crashes: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := c.in.rewound(c.back)
			m.Unaware, m.Check, m.Limit = true, Harm, 100_000
			r := m.Explore()
			t.Logf("%s, after %d states, %v:", r.Broken, r.States, r.Took)
			tell(t, r)
			if r.Broken == "" {
				t.Error("it is no limit, as it seems")
			}
		})
	}
}

// TestRewinds_Guards takes each guard against older data away, and expects harm.
func TestRewinds_Guards(t *testing.T) {
	for _, c := range []struct {
		off   Guard
		back  uint8
		in    bounds
		steps int
	}{
		{Witness, BackRecord, bounds{}, 6},
		{WitnessNamed, BackRecord, bounds{}, 11},
		{WitnessNext, BackRecord, bounds{}, 9},
		{WitnessAbove, BackRecord, bounds{}, 8},
		{SeenExpiry, BackSessions, bounds{}, 6},
	} {
		t.Run(c.off.String(), func(t *testing.T) {
			if c.steps > 8 {
				takes.Seconds(t)
			}
			m := c.in.rewound(c.back)
			m.Without, m.Check, m.Limit = c.off, Harm, 600_000
			r := m.Explore()
			t.Logf("%s, after %d states, %v:", r.Broken, r.States, r.Took)
			tell(t, r)
			if r.Broken == "" || len(r.Story) != c.steps {
				t.Errorf("%q in %d steps, expected a violation in %d", r.Broken, len(r.Story), c.steps)
			}
		})
	}
}
