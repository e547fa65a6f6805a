package model

import (
	"flag"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/internal/leak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if race {
		fmt.Println("model: nothing is explored with the race detector: go test ./internal/model, without it")
		return
	}
	leak.Main(m)
}

// race is whether this is a build with the race detector. It makes exploring six times slower, and
// has nothing to find: each exploration is one goroutine with a model of its own.
var race bool

var (
	deep  = flag.Bool("model.deep", false, "bounds that take minutes, and some GB")
	limit = flag.Int("model.limit", 3_000_000, "with -model.deep: `states` to stop at")
)

// bounds are the faults that a run may have.
type bounds struct {
	faults, crashes, delays, cuts, failovers, sessions, drift, steps, rewinds uint8
	lossy                                                                     bool
}

// model has times that are as short as they may be: the margin is only for clocks that differ.
func (b bounds) model() *Model {
	return &Model{
		Nodes: 2, Requests: 2, T: 2 + b.drift, M: b.drift, Q: 3 + 2*b.drift,
		Faults: b.faults, Crashes: b.crashes, Delays: b.delays, Cuts: b.cuts, Failovers: b.failovers,
		SessionFailovers: b.sessions, Drift: b.drift, Steps: b.steps, Rewinds: b.rewinds, Lossy: b.lossy, Lag: 1,
	}
}

// nearest is how many states are explored with -short: those that are nearest to the beginning.
const nearest = 1000

// explore fails the test if an invariant does not hold, or if package spec does not allow an
// action. It also fails if there are states where nothing can be granted any more.
func explore(t *testing.T, m *Model) Result {
	t.Helper()
	m.Specified = m.Rewinds == 0 // older data are granted from until a node notices: that is not specified
	if testing.Short() {
		m.Limit = nearest
	}
	r := m.Explore()
	t.Logf("%d states, depth %d, complete %t, %v", r.States, r.Depth, r.Complete, r.Took)
	if r.Broken != "" || r.Stuck > 0 {
		t.Errorf("%s; %d states are stuck (I8); this is how it comes to that:", r.Broken, r.Stuck)
		tell(t, r)
	}
	return r
}

func tell(t *testing.T, r Result) {
	t.Helper()
	for i, line := range r.Story {
		t.Logf("%3d. %s", i+1, line)
	}
}

func TestInvariants(t *testing.T) {
	for _, c := range []struct {
		name                     string
		in                       bounds
		nodes, requests, atLeast int
	}{
		{"no faults", bounds{}, 2, 3, 1000},
		{"three nodes, no faults", bounds{}, 3, 1, 1000},
		{"a crash", bounds{faults: 1, crashes: 1}, 2, 2, 1000},
		{"a cut", bounds{faults: 1, cuts: 1}, 2, 1, 1000},
		{"a fast clock", bounds{faults: 1, drift: 1}, 2, 1, 500},
		{"a late message", bounds{faults: 1, delays: 1}, 2, 1, 1000},
		{"a failover", bounds{faults: 1, failovers: 1}, 2, 1, 1000},
		{"a failover that loses", bounds{faults: 1, failovers: 1, lossy: true}, 2, 1, 1000},
		{"a node's clock steps", bounds{faults: 1, steps: 1}, 2, 1, 1000},
		{"a node's clock steps, a fast clock", bounds{faults: 2, steps: 1, drift: 1}, 2, 1, 500},
		{"a failover of the sessions", bounds{faults: 1, sessions: 1}, 2, 1, 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := c.in.model()
			m.Nodes, m.Requests, m.Live = uint8(c.nodes), uint8(c.requests), true
			r := explore(t, m)
			if !r.Complete && !testing.Short() || r.States < c.atLeast {
				t.Errorf("%d states, complete %t: the model does not do what it should", r.States, r.Complete)
			}
		})
	}
}

// TestDowngrades is TestSharedInvariants with nodes that hold the key exclusively, and go on as
// readers: the states that are nearest to the beginning. TestDeepDowngrades has all of them, and
// faults.
func TestDowngrades(t *testing.T) {
	m := bounds{}.model()
	m.Shared, m.Downgrades, m.Limit = true, true, 20_000
	if r := explore(t, m); r.States < m.Limit {
		t.Errorf("%d states: the model does not do what it should", r.States)
	}
}

// TestSharedInvariants is TestInvariants with nodes that want the key for reading as well. TestDeep
// has the other faults.
func TestSharedInvariants(t *testing.T) {
	for _, c := range []struct {
		name     string
		in       bounds
		requests uint8
	}{
		{"no faults", bounds{}, 2},
		{"a crash", bounds{faults: 1, crashes: 1}, 1},
		{"a node's clock steps", bounds{faults: 1, steps: 1}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := c.in.model()
			m.Requests, m.Live, m.Shared = c.requests, true, true
			if r := explore(t, m); !r.Complete && !testing.Short() || r.States < 1000 {
				t.Errorf("%d states, complete %t: the model does not do what it should", r.States, r.Complete)
			}
		})
	}
}
