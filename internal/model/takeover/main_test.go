package takeover

import (
	"flag"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/internal/leak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if race {
		fmt.Println("takeover: nothing is explored with the race detector: go test ./internal/model/takeover, without it")
		return
	}
	leak.Main(m)
}

// race is whether this is a build with the race detector, which makes exploring six times slower,
// and has nothing to find: each exploration is one goroutine with a model of its own.
var race bool

var (
	deep  = flag.Bool("model.deep", false, "bounds that take minutes, and some GB")
	limit = flag.Int("model.limit", 3_000_000, "with -model.deep: `states` to stop at")
)

func needsDeep(t *testing.T) {
	t.Helper()
	if !*deep {
		t.Skip("takes minutes: -model.deep")
	}
}

func tell(t *testing.T, r Result) {
	t.Helper()
	for i, line := range r.Story() {
		t.Logf("%3d. %s", i+1, line)
	}
}

// holds fails the test if an invariant does not hold, or, with all, if not all states were seen.
func holds(t *testing.T, r Result, all bool) {
	t.Helper()
	t.Logf("%d states, depth %d, complete %t, %v", r.States, r.Depth, r.Complete, r.Took)
	if r.Broken != "" || all && !r.Complete || r.States < 100 {
		t.Errorf("%q, complete %t", r.Broken, r.Complete)
		tell(t, r)
	}
}

// breaks fails the test if there is no violation, or not in so many steps.
func breaks(t *testing.T, r Result, steps int) {
	t.Helper()
	t.Logf("%s, after %d states, %v:", r.Broken, r.States, r.Took)
	tell(t, r)
	if r.Broken == "" || len(r.events) != steps {
		t.Errorf("%q in %d steps, expected a violation in %d", r.Broken, len(r.events), steps)
	}
}
