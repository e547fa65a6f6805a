package sim

import (
	"flag"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/history"
)

var (
	seed = flag.Uint64("sim.seed", 1, "first `seed`")
	runs = flag.Int("sim.runs", 25, "number of `runs`")
	logs = flag.Bool("sim.log", false, "what the coordinators log")
	same = flag.Bool("sim.same", false, "the same seed in every run")
)

// judging is how long it may take to judge the history of one key.
const judging = 20 * time.Second

// simulate makes one run, and has its history judged.
func simulate(t *testing.T, cfg Config) (r Result) {
	synctest.Test(t, func(*testing.T) { r = Run(cfg) })
	if err := history.Check(r.Records, judging); err != nil {
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
		t.Logf("seed %d: %d grants, %d writes, %d refused, %v, took %v", cfg.Seed, r.Grants, r.Writes, r.Late, r.Faults, time.Since(begin))
	}
	if len(r.Bad) == 0 {
		return r, true
	}
	t.Errorf("seed %d: %+v", cfg.Seed, cfg)
	for _, line := range r.Story {
		t.Log(line)
	}
	for _, line := range r.Bad {
		t.Error(line)
	}
	return r, false
}

func TestSimulation(t *testing.T) {
	var took time.Duration
	grants, writes, late, faults, begin := 0, 0, 0, 0, time.Now()
	for i := range *runs {
		cfg := Random(*seed + uint64(i))
		if *same {
			cfg = Random(*seed)
		}
		r, ok := run(t, cfg)
		if !ok {
			return
		}
		took += r.Took
		grants, writes, late, faults = grants+r.Grants, writes+r.Writes, late+r.Late, faults+len(r.Story)
	}
	t.Logf("%.0f simulated hours in %v: %d faults, %d grants, %d writes, %d refused by the resource",
		took.Hours(), time.Since(begin), faults, grants, writes, late)
}

// What happened once, told by hand.
func TestScenarios(t *testing.T) {
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
