package model

import "testing"

// TestBurials: a session that is over is buried before it expires. Nothing of the protocol relies
// on the time that a dead session has left at the arbiter.
func TestBurials(t *testing.T) {
	for _, c := range []struct {
		name            string
		in              bounds
		nodes, requests uint8
		deep            bool
	}{
		{"a crash", bounds{faults: 1, crashes: 1}, 2, 2, false},
		{"a cut", bounds{faults: 1, cuts: 1}, 2, 1, false},
		{"a node's clock steps", bounds{faults: 1, steps: 1}, 2, 1, false},
		{"a crash, and a failover of the sessions", bounds{faults: 2, crashes: 1, sessions: 1}, 2, 1, false},
		{"three nodes and a crash", bounds{faults: 1, crashes: 1}, 3, 1, true},
		{"a crash, a cut, a fast clock", bounds{faults: 2, crashes: 1, cuts: 1, drift: 1}, 2, 1, true},
		{"a crash, and a failover that loses", bounds{faults: 2, crashes: 1, failovers: 1, lossy: true}, 2, 1, true},
		{"a crash, and a late message", bounds{faults: 2, crashes: 1, delays: 1}, 2, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.deep {
				needsDeep(t)
			}
			m := c.in.model()
			m.Nodes, m.Requests, m.Live, m.Takeover = c.nodes, c.requests, true, true
			if c.deep {
				m.Limit = *limit
			}
			if r := explore(t, m); r.States < 500 || !c.deep && !r.Complete && !testing.Short() {
				t.Errorf("%d states, complete %t: the model does not do what it should", r.States, r.Complete)
			}
		})
	}
}

// TestBurials_Wait: without its guard a session is buried while another node relies on its
// announced deadline.
func TestBurials_Wait(t *testing.T) {
	for _, in := range []bounds{{faults: 1, crashes: 1}, {faults: 1, steps: 1}} {
		m := in.model()
		m.Nodes, m.Requests, m.Takeover, m.Without, m.Check = 3, 1, true, BuryWaits, Harm
		r := m.Explore()
		t.Logf("%s, after %d states, %v:", r.Broken, r.States, r.Took)
		tell(t, r)
		if r.Broken == "" {
			t.Error("no violation")
		}
	}
}
