//go:build mutants

package sim

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/internal/lease"
)

var (
	patience = flag.Duration("sim.patience", time.Minute, "how long to look for what a missing guard breaks, each")
	without  = flag.String("sim.without", "", "a `guard` to be taken out in all tests")
)

func init() {
	prepare = func() {
		if *without == "" {
			return
		}
		g := guard.All[*without]
		if g == nil {
			panic("there is no guard " + *without)
		}
		*g = false
	}
}

const worlds = "an hour of runs has few such moments: the worlds of internal/guardians notice it in seconds"

// spared are guards whose absence a simulation need not notice, and why.
var spared = map[string]string{
	"Renewal":     "the watch that ends a session at its deadline is there as well",
	"Quantum":     "without it keys are shared out unfairly, and locks are as exclusive as before",
	"PassAdopts":  "a pass counts after delta + M (PassOld), and a holder that has lost its stream has asked for a row by then (rule 7)",
	"PassWaits":   "holders have asked for rows before they speak (PassAdopts), and those that cannot do not speak; the model knows one holder, which does not",
	"CompleteOld": "a pass counts after delta + M (PassOld), and each session that ends Grace has spoken itself: the model's story has a table without sessions",
	"PassWhole":   "a pass counts after delta + M (PassOld), and what a deposed server wrote is hardly ever new then: internal/model/takeover has the story",
	"Capped":      "a session has promises a moment after its first lease, and hardly owns a partition by then: the replay of internal/model/takeover notices it",
	"PingSent":    worlds,
	"NextCounts":  worlds,
	"VoteFinal":   worlds,
	"Rising":      worlds,
	"ListGrace":   "it takes a process that has just started, for which rings keep still for Debounce; a deposed server, which buries, answers for less: internal/model/takeover has the story",
	"Forsworn":    "while a request to acquire is outstanding no record is demoted (lease.Partition.MayForswear)",
}

// observed are guards of processes that are observers: each run has some.
var observed = []string{"SameBeat", "BeatUnique", "GraceLook", "GraceAnew"}

// traced are guards whose absence makes a run diverge from package spec. ADR 0024 names the others,
// and the checks that notice those.
var traced = []string{
	"Absent", "Announced", "Covered", "Dead", "Downgrades", "Epoch", "Freeze", "Grace", "Hearsay", "Identity", "Import", "Lapse", "Listed",
	"Modes", "OnItsWay", "Promised", "VoteLate", "Votes", "Waits",
}

// TestMutants takes out one guard after another. Each time something has to go wrong: it proves
// that the simulation can fail.
func TestMutants(t *testing.T) {
	var names []string
	for name := range guard.All {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			n, found := seek(t, name, "")
			if why := spared[name]; !found && why != "" {
				t.Skipf("not noticed in %d runs, as %s", n, why)
			}
			if !found {
				t.Errorf("not noticed in %d runs", n)
			}
		})
	}
}

// TestMutants_Diverge is TestMutants for divergences from the specification.
func TestMutants_Diverge(t *testing.T) {
	for _, name := range traced {
		t.Run(name, func(t *testing.T) {
			if n, found := seek(t, name, "trace: "); !found {
				t.Errorf("no divergence in %d runs", n)
			}
		})
	}
}

// seek runs without a guard until a line about a failure has the text, or patience ends.
func seek(t *testing.T, name, text string) (n int, found bool) {
	*guard.All[name] = false
	defer func() { *guard.All[name] = true }()
	begin := time.Now()
	noticed := func(cfg Config) bool {
		r := unguarded(t, cfg)
		n++
		at := slices.IndexFunc(r.Bad, func(line string) bool { return strings.Contains(line, text) })
		if at >= 0 {
			t.Logf("run %d, %.1f s: %s", n, time.Since(begin).Seconds(), r.Bad[at])
		}
		return at >= 0
	}
	for i := 0; time.Since(begin) < *patience; i++ {
		cfg := Random(*seed + uint64(i))
		if slices.Contains(observed, name) {
			cfg.Observed = true
		}
		for _, s := range scenarios {
			if i < s.runs && !cfg.Observed && noticed(s.config(i)) {
				return n, true
			}
		}
		if noticed(cfg) {
			return n, true
		}
	}
	return n, false
}

// unguarded is simulate of a core that lacks a guard: a step that its tables do not allow is one
// more failure.
func unguarded(t *testing.T, cfg Config) Result {
	var mu sync.Mutex // protects illegal
	var illegal []string
	before := lease.Illegal
	defer func() { lease.Illegal = before }()
	lease.Illegal = func(text string) {
		mu.Lock()
		defer mu.Unlock()
		illegal = append(illegal, "lease: "+text)
	}
	r := simulate(t, cfg)
	r.Bad = append(r.Bad, illegal...)
	return r
}

// TestShrink makes a long story short, writes it down, and runs it again from the file, as
// -sim.plan does: it fails in the same way, and no more once the guard is back.
func TestShrink(t *testing.T) {
	guard.Grace = false
	defer func() { guard.Grace = true }()
	for i := uint64(0); i < 500; i++ {
		cfg := Random(*seed + i)
		r := simulate(t, cfg)
		again := func() bool { // a failure that comes by chance only cannot be made smaller
			second := simulate(t, cfg)
			return len(second.Bad) > 0 && class(second) == class(r)
		}
		if len(r.Bad) == 0 || len(cfg.plan()) < 20 || !again() || !again() || !again() {
			continue
		}
		small, short := shrink(t, cfg, r, *patience)
		if len(small.Plan) > len(cfg.plan())/2 || len(short.Bad) == 0 || class(short) != class(r) {
			t.Errorf("%d faults are left of %d", len(small.Plan), len(cfg.plan()))
		}
		t.Log(tell(small, short))
		file := filepath.Join(t.TempDir(), "plan.json")
		if err := os.WriteFile(file, small.save(short.Bad[0]), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := replay(t, file, "-sim.without=Grace"); err == nil || !bytes.Contains(out, []byte(class(r))) {
			t.Errorf("without the guard: %v\n%s", err, out)
		}
		if out, err := replay(t, file); err != nil {
			t.Errorf("with the guard: %v\n%s", err, out)
		}
		return
	}
	t.Error("nothing has gone wrong")
}

// replay runs a plan from a file in another process, ten times or until it fails.
func replay(t *testing.T, file string, args ...string) ([]byte, error) {
	args = append(args, "-test.run=^TestSimulation$", "-sim.plan="+file, "-sim.runs=10")
	return exec.CommandContext(t.Context(), os.Args[0], args...).CombinedOutput()
}
