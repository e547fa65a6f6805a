package subjects

import (
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/reexec"
	"github.com/holdfast-go/holdfast/internal/takes"
)

func TestMain(m *testing.M) {
	// A measurement that a test makes in this process starts this binary again for its workers.
	harness.IfWorker()
	// A program with the race detector sleeps for a second before it ends, so that others may
	// report races. Ours are all awaited.
	os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")
	takes.SideBySide(4)
	goleak.VerifyTestMain(m)
}

// tinyDebounce is that of clusters.
const tinyDebounce = 200 * time.Millisecond

// tiny is enough to go through all of the code.
var tiny = Sizes{
	Hot:  Crowd{Processes: 2, Goroutines: 3, Rounds: 2, Round: 150 * time.Millisecond},
	Cold: ColdSizes{Blocks: 2, Calls: 10},
	Held: HeldSizes{Locks: 300, Periods: 1, Partitions: 31, SessionTTL: 5 * time.Second},

	own:     ownSizes{Blocks: 2, Pairs: 2000, HandOvers: 640, Calls: 5},
	Shared:  Crowd{Processes: 2, Goroutines: 3, Keys: 1, Rounds: 1, Round: 150 * time.Millisecond},
	Zipf:    Crowd{Processes: 2, Goroutines: 3, Keys: 20, Rounds: 1, Round: 150 * time.Millisecond},
	forward: forwardSizes{Blocks: 2, Calls: 10, Callers: 4, Round: 50 * time.Millisecond},
	idle:    idleSizes{processes: 3, periods: 1},
	http:    httpSizes{Blocks: 2, Calls: 100, Posts: 10},
	latency: latencySizes{Blocks: 2, Calls: 20},
	stalls: stallSizes{
		Rounds: 1, Processes: 2, Rate: 50, Keys: 20, Hold: time.Millisecond, Limit: 12 * time.Second,
		Calm: 200 * time.Millisecond, Every: 300 * time.Millisecond, Outage: 300 * time.Millisecond, After: 600 * time.Millisecond,
		SessionTTL: 6 * time.Second, // of less, on a busy machine, sessions expire
		without:    "killed",        // the same as at work
	},
	modes: modesSizes{blocks: 1, block: 20 * time.Millisecond, ratios: 3},
}

// tinyBench starts a server for a test.
func tinyBench(t *testing.T) *Run {
	t.Helper()
	needRedis(t)
	var out reexec.Buffer
	b, err := harness.NewBench(t.Context(), harness.Settings{Pin: true, Debounce: tinyDebounce}, &out, &out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(out.String())
		}
	})
	return &Run{b, tiny}
}

// check fails the test for claims that must hold whatever the speed: those have a limit of 0.
func check(t *testing.T, r report.Result) {
	t.Helper()
	for _, c := range r.Claims {
		if c.Limit == 0 && !c.Least && !c.Holds {
			t.Errorf("%s: %v", c.Text, c.Got)
		}
	}
	var out strings.Builder
	r.Write(&out)
	for _, c := range r.Claims {
		if !strings.Contains(out.String(), c.Text) {
			t.Errorf("%q is not in\n%s", c.Text, out.String())
		}
	}
}

// withRates measures until each one got somewhere: in longer rounds, if none could in a short one
// as the machine was busy.
func withRates(t *testing.T, length *time.Duration, measure func() (report.Result, error)) report.Result {
	t.Helper()
	for try := 0; ; try++ {
		r, err := measure()
		if err != nil {
			t.Fatal(err)
		}
		check(t, r)
		var none [][]string
		for _, row := range r.Table[1:] {
			// rueidislock may lose a wake-up (see TestVariants), and a round is short.
			if len(row) != len(r.Table[0]) || (row[1] == "0" || row[1] == "-") && !strings.HasPrefix(row[0], "rueidislock") {
				none = append(none, row)
			}
		}
		if len(none) == 0 || try == 3 || t.Failed() {
			for _, row := range none {
				t.Errorf("%q", row)
			}
			return r
		}
		*length *= 3
	}
}

// named returns the claim that contains the text.
func named(t *testing.T, r report.Result, text string) report.Claim {
	t.Helper()
	for _, c := range r.Claims {
		if strings.Contains(c.Text, text) {
			return c
		}
	}
	t.Fatalf("no claim about %q", text)
	return report.Claim{}
}

// checkMeasured checks that the figures common to all ways to lock were measured of each, and that
// nothing is free.
func checkMeasured(t *testing.T, r report.Result) {
	t.Helper()
	if len(r.Measured) == 0 {
		t.Fatal("nothing was measured")
	}
	for _, x := range r.Measured {
		if strings.HasPrefix(x.Name, "rueidislock") { // see withRates
			continue
		}
		for i, v := range x.Measures {
			if v.Name != stats.Metrics[i].Name || v.Least > v.Median || v.Median > v.Most {
				t.Errorf("%s: %+v", x.Name, v)
			}
			free := x.Kind == chart.Floor || v.Name == stats.MeasureCommands || v.Name == stats.MeasureBytes
			if math.IsNaN(float64(v.Median)) && !free && v.Name != "fairness (Jain, processes)" && v.Name != stats.MeasureServer || v.Median == 0 && !free {
				t.Errorf("%s: no %s", x.Name, v.Name)
			}
		}
	}
}

// needRedis skips the test where there is no redis-server, as redistest.Start does.
func needRedis(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("redis-server is not installed")
		}
		t.Skip("redis-server is not installed")
	}
}
