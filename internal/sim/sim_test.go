package sim

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/internal/model/spec"
	"github.com/holdfast-go/holdfast/internal/virtual"
	"github.com/holdfast-go/holdfast/internal/wire"
)

var (
	seed = flag.Uint64("sim.seed", 1, "first `seed`")
	most = flag.Int("sim.runs", 10, "number of `runs`; 0: no limit")
	logs = flag.Bool("sim.log", false, "what the coordinators log")
	same = flag.Bool("sim.same", false, "the same seed in every run")
	eyes = flag.Bool("sim.observed", false, "processes judge by their own clocks in every run")
	two  = flag.Bool("sim.spread", false, "all replicas have each session before it counts, and partitions are on two servers, in every run")
	dies = flag.Bool("sim.takeover", false, "Cluster.Takeover in every run, with clocks at either end of their range")

	planned = flag.String("sim.plan", "", "run what this `file` says, again and again, instead of what seeds say")
	saves   = flag.String("sim.save", os.TempDir(), "`directory` to write the plan of a run to that failed; empty: not")

	shrinking = flag.Duration("sim.shrink", 30*time.Second, "for how long to look for a smaller run that fails like one that failed; 0: not")

	lasts   = flag.Duration("sim.for", 0, "how long to begin runs; 0: no limit")
	workers = flag.Int("sim.workers", 0, "number of processes; 0: this one")
	step    = flag.Int("sim.step", 1, "from one seed to the next")
)

// judging is how long it may take to judge the history of one key.
const judging = 20 * time.Second

// simulate makes one run, and has its history judged.
func simulate(t *testing.T, cfg Config) (r Result) {
	virtual.Test(t, func(*testing.T) { r = Run(cfg) })
	err := history.Check(r.Records, judging)
	if err != nil && (errors.Is(err, history.ErrViolated) || !errors.Is(err, history.ErrTooHard)) { // a busy machine is no violation
		r.Bad = append(r.Bad, err.Error())
	}
	return r
}

// run fails the test if anything happens that must not, and then tells the story.
func run(t *testing.T, cfg Config) (r Result, ok bool) {
	t.Helper()
	if *logs {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	begin := time.Now()
	r = simulate(t, cfg)
	if testing.Verbose() {
		t.Logf("seed %d: %d grants, %d writes, %d refused, %d circles, %v, took %v", cfg.Seed, r.Grants, r.Writes, r.Late, r.Found, r.Faults, time.Since(begin))
	}
	if len(r.Bad) == 0 {
		return r, true
	}
	if before := len(r.Story); cfg.script == nil && *shrinking > 0 && *planned == "" {
		cfg, r = shrink(t, cfg, r, *shrinking)
		t.Logf("%d faults were enough, of %d", len(cfg.Plan), before)
	}
	t.Error(tell(cfg, r))
	if cfg.script == nil && *saves != "" && *planned == "" {
		file := filepath.Join(*saves, fmt.Sprintf("holdfast-sim-%d.json", cfg.Seed))
		if err := os.WriteFile(file, cfg.save(r.Bad[0]), 0o600); err != nil {
			t.Error(err)
		}
		t.Logf("to run this again: -run Simulation -sim.runs 100 -sim.plan %s", file)
	}
	return r, false
}

func TestSimulation(t *testing.T) {
	begin := time.Now()
	var all total
	if *workers > 0 {
		all = inWorkers(t, *workers)
	} else {
		all = runs(t, begin)
	}
	if os.Getenv(worker) != "" {
		all.report()
	}
	t.Logf("%d runs, %.0f simulated hours in %.0f s: %d faults, %.0f per hour, %d grants, %d writes, %d refused by the resource, %d violations",
		all.Runs, all.Took.Hours(), time.Since(begin).Seconds(), all.Faults, float64(all.Faults)/max(all.Took.Hours(), 1e-9), all.Grants, all.Writes,
		all.Late, all.Violations)
	t.Logf("permits: %d callers got some of a block that the process had, %d blocks were made smaller while they were in use", all.Local, all.Shrunk)
	t.Logf("%d circles of callers that waited for each other", all.Found)
	all.traced(t)
	if all.Runs >= 10 && all.Violations == 0 && *planned == "" && (all.Local == 0 || all.Shrunk == 0) {
		t.Error("blocks of permits are not shared, or not made smaller: the simulation does not do what it should")
	}
	t.Logf("Graces of partitions that ended early: %d", all.Ended)
	if all.Runs >= 60 && all.Ended == 0 && *planned == "" && *step == 1 { // every other seed has servers that fail over apart
		t.Error("no Grace ended early: the simulation does not do what it should")
	}
	t.Logf("messages that nodes were to carry: %d", all.Carried)
	if all.Runs >= 60 && all.Carried == 0 && *planned == "" {
		t.Error("no message was carried: the simulation does not do what it should")
	}
	t.Logf("rows of other sessions that were listed, and removed: %d, and %d waiters", all.Cleaned, all.Dequeued)
	if all.Runs >= 60 && *planned == "" && (all.Cleaned == 0 || all.Dequeued == 0) {
		t.Error("no row, or no waiter, of another session was removed: the simulation does not do what it should")
	}
	t.Logf("sessions that observers declared dead: %d", all.Watched)
	if all.Runs >= 60 && all.Watched == 0 && *planned == "" && !*two {
		t.Error("no observer declared a session dead: the simulation does not do what it should")
	}
	all.outside(t)
}

// outside logs the counts that only some runs raise, and fails the test if no run has raised one of
// them.
func (t *total) outside(test *testing.T) {
	for _, x := range []struct {
		what  string
		n     int
		never bool
	}{
		{"servers that took over with another clock than the one before", t.Skewed, false},
		{"steps of servers' clocks", t.Ticks, false},
		{"processes that started again at the same address at once", t.Again, false},
		{"steps of wall clocks alone", t.Steps, !wire.Clocks},
		{"operators' calls", t.Asked, false},
		{"locks and permits that were broken", t.Broken, false},
		{"processes that were drained", t.Drained, false},
	} {
		test.Logf("%s: %d", x.what, x.n)
		if t.Runs >= 60 && x.n == 0 && *planned == "" && !x.never {
			test.Errorf("%s: none: the simulation does not do what it should", x.what)
		}
	}
}

// traced logs the events that were compared with the specification, and fails the test if a kind of
// them never was.
func (t *total) traced(test *testing.T) {
	var text strings.Builder
	sum := 0
	for k := spec.Acquired; k < spec.Kinds; k++ {
		if sum += t.Events[k]; t.Events[k] > 0 {
			fmt.Fprintf(&text, ", %d %v", t.Events[k], k)
		} else if t.Runs >= 100 && k != spec.Over && k != spec.Opened && wire.Clocks && *planned == "" {
			test.Errorf("in %d runs no event was %q: the simulation does not do what it should", t.Runs, k)
		}
	}
	test.Logf("traces: %d events were compared with the specification, in %d cases without a node's clock%s", sum, t.Unknown, &text)
}

// runs makes as many as it should, or until something happens that must not.
func runs(t *testing.T, begin time.Time) (all total) {
	for n := uint64(0); ; n++ {
		if *most > 0 && n*uint64(*step) >= uint64(*most) || *lasts > 0 && time.Since(begin) > *lasts {
			return all
		}
		cfg := Random(*seed + n*uint64(*step))
		if *planned != "" {
			text, err := os.ReadFile(*planned)
			if err == nil {
				cfg, err = load(text)
			}
			if err != nil {
				t.Error(err)
				return all
			}
		}
		if *same {
			cfg = Random(*seed)
			cfg.History = true
		}
		cfg.Observed = cfg.Observed || *eyes
		if *dies {
			cfg.Takeover, cfg.Drift, cfg.Ends = takeoverD, maxDrift, true
		}
		if *two {
			cfg.Observed, cfg.Opened, cfg.Spread = false, true, true
		}
		r, ok := run(t, cfg)
		faults := 0
		for _, n := range r.Faults {
			faults += n
		}
		all.plus(total{
			Runs: 1, Took: r.Took, Faults: faults, Grants: r.Grants, Writes: r.Writes, Late: r.Late, Local: r.Blocks.Local, Shrunk: r.Blocks.Shrunk,
			Found: r.Found, Events: r.Events, Unknown: r.Unknown, Carried: r.Carried, Ended: r.Ended, Watched: r.Watched, Cleaned: r.Cleaned, Dequeued: r.Dequeued,
			Outside: r.Outside,
		})
		if !ok {
			all.Violations++
			return all
		}
	}
}

// Events that happened once, told by hand.
func TestScenarios(t *testing.T) {
	if !wire.Clocks {
		t.Skip("make test runs the scenarios with -tags simulation")
	}
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			for n := range s.runs {
				if _, ok := run(t, s.config(n)); !ok {
					return
				}
			}
		})
	}
}
