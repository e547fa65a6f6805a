package model

import "testing"

func needsDeep(t *testing.T) {
	t.Helper()
	if !*deep {
		t.Skip("takes minutes: -model.deep")
	}
}

// TestDeep is TestInvariants with wider bounds. Where there are more states than -model.limit it
// sees those that are nearest to the beginning.
func TestDeep(t *testing.T) {
	needsDeep(t)
	for _, c := range []struct {
		name            string
		in              bounds
		nodes, requests uint8
		lag             uint8
	}{
		{"a late message, two requests", bounds{faults: 1, delays: 1}, 2, 2, 0},
		{"a failover that loses two writes, two requests", bounds{faults: 1, failovers: 1, lossy: true}, 2, 2, 2},
		{"a crash, a cut, a fast clock", bounds{faults: 2, crashes: 1, cuts: 1, drift: 1}, 2, 1, 0},
		{"two cuts", bounds{faults: 2, cuts: 2}, 2, 1, 0},
		{"three nodes and a crash or a cut", bounds{faults: 1, crashes: 1, cuts: 1}, 3, 1, 0},
		{"failovers of both slots", bounds{faults: 2, failovers: 1, sessions: 1}, 2, 1, 0},
		{"a cut or a crash, and a failover that loses", bounds{faults: 2, crashes: 1, cuts: 1, failovers: 1, lossy: true}, 2, 1, 1},
		{"a late message, and a cut or a crash", bounds{faults: 2, crashes: 1, delays: 1, cuts: 1}, 2, 1, 0},
		{"a late message, and a failover that loses", bounds{faults: 2, delays: 1, failovers: 1, lossy: true}, 2, 1, 2},
		{"three nodes, a node's clock steps", bounds{faults: 1, steps: 1}, 3, 1, 0},
		{"a node's clock steps, and a failover that loses", bounds{faults: 2, steps: 1, failovers: 1, lossy: true}, 2, 1, 1},
		{"a node's clock steps, and a cut, a crash or a late message", bounds{faults: 2, steps: 1, cuts: 1, crashes: 1, delays: 1}, 2, 1, 0},
		{"a node's clock steps, and a failover of the sessions", bounds{faults: 2, steps: 1, sessions: 1}, 2, 1, 0},
		{"two late messages", bounds{faults: 2, delays: 2}, 2, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := c.in.model()
			m.Nodes, m.Requests, m.Lag, m.Live, m.Limit = c.nodes, c.requests, c.lag, true, *limit
			explore(t, m)
		})
	}
}

// TestDeepShared is TestDeep with nodes that want the key for reading as well.
func TestDeepShared(t *testing.T) {
	needsDeep(t)
	for _, c := range []struct {
		name string
		in   bounds
	}{
		{"a cut", bounds{faults: 1, cuts: 1}},
		{"a late message", bounds{faults: 1, delays: 1}},
		{"a failover that loses", bounds{faults: 1, failovers: 1, lossy: true}},
		{"a failover of the sessions", bounds{faults: 1, sessions: 1}},
		{"a fast clock and a crash", bounds{faults: 2, drift: 1, crashes: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := c.in.model()
			m.Requests, m.Shared, m.Live, m.Limit = 1, true, true, *limit
			explore(t, m)
		})
	}
}

// TestDeepDowngrades is TestDeepShared with nodes that hold the key exclusively, and go on as
// readers.
func TestDeepDowngrades(t *testing.T) {
	needsDeep(t)
	for _, c := range []struct {
		name string
		in   bounds
	}{
		{"no faults", bounds{}},
		{"a crash", bounds{faults: 1, crashes: 1}},
		{"a node's clock steps", bounds{faults: 1, steps: 1}},
		{"a cut", bounds{faults: 1, cuts: 1}},
		{"a late message", bounds{faults: 1, delays: 1}},
		{"a failover that loses", bounds{faults: 1, failovers: 1, lossy: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := c.in.model()
			m.Shared, m.Downgrades, m.Live, m.Limit = true, true, true, *limit
			explore(t, m)
		})
	}
}

// TestDeepGuards is for a guard without which it takes long until something goes wrong.
func TestDeepGuards(t *testing.T) {
	needsDeep(t)
	m := bounds{faults: 2, delays: 1, failovers: 1, lossy: true}.model()
	m.Requests, m.Lag, m.Without, m.Check = 1, 2, ReclaimRaises, Harm
	r := m.Explore()
	t.Logf("%s, after %d states, %v:", r.Broken, r.States, r.Took)
	tell(t, r)
	if r.Broken == "" {
		t.Error("a row that was reclaimed need not raise the record, as it seems")
	}
}

// TestDefences takes away guards that turn out to be second defences: without them nothing goes
// wrong within these bounds. If this fails, the guard has become a first one, and belongs to
// TestGuards.
func TestDefences(t *testing.T) {
	needsDeep(t)
	for _, c := range []struct {
		off Guard
		in  bounds
	}{
		{EpochCompare, bounds{faults: 1, delays: 1}},
		{EpochCompare, bounds{faults: 2, delays: 2}},
		{VouchesForTable, bounds{faults: 1, crashes: 1, cuts: 1, failovers: 1, lossy: true}},
		{ReclaimInGrace, bounds{faults: 2, delays: 1, failovers: 1, lossy: true}},
	} {
		t.Run(c.off.String(), func(t *testing.T) {
			m := c.in.model()
			m.Requests, m.Lag, m.Without, m.Check, m.Limit = 1, 2, c.off, Harm, *limit
			explore(t, m)
		})
	}
}
