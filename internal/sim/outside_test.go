package sim

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// Faults from outside are in a share of the runs, and the clocks of servers stay within the limits
// of M.
func TestPlan_FromOutside(t *testing.T) {
	const runs = 400
	has := make(map[kind]int)
	var skewed, all int
	for seed := range uint64(runs) {
		cfg := Random(seed)
		plan := cfg.plan()
		if !slices.IsSortedFunc(plan, func(a, b Fault) int { return int(a.At - b.At) }) {
			t.Errorf("seed %d: not in order", seed)
		}
		least, most := time.Duration(0), time.Duration(0)
		kinds := make(map[kind]bool)
		for _, f := range plan {
			kinds[f.Kind] = true
			if f.Kind != wall {
				least, most = min(least, f.Ahead), max(most, f.Ahead)
			}
			if err := f.check(cfg.Nodes); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		}
		for k := range kinds {
			has[k]++
		}
		if cfg.Observed {
			continue
		}
		if all++; least != most {
			skewed++
		}
		if margin := cfg.TTL/10 - time.Duration(cfg.Drift*float64(cfg.TTL)); most-least > margin {
			t.Errorf("seed %d: clocks of servers differ by %v, more than %v", seed, most-least, margin)
		}
	}
	between := func(what string, n, of, least, most int) {
		if n*100 < of*least || n*100 > of*most {
			t.Errorf("%s: %d of %d runs, want %d to %d %%", what, n, of, least, most)
		}
	}
	between("other clocks of servers", skewed, all, 35, 60)
	between("steps of servers' clocks", has[tick], runs, 12, 30)
	between("again", has[again], runs, 25, 42)
	between("ask", has[ask], runs, 25, 42)
	between("break", has[breaks], runs, 25, 42)
	between("drain", has[drain], runs, 20, 42)
	between("rotate", has[rotate], runs, 20, 42)
	if wire.Clocks {
		between("wall", has[wall], runs, 17, 34)
	}
}

// Plans of before can be read, and rewind is a kind for plans from files.
func TestPlanFile_OfBefore(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no plans", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if cfg, err := load(text); err != nil || len(cfg.Plan) == 0 || strings.Contains(string(text), "ahead") {
			t.Errorf("%s: %d faults, %v", file, len(cfg.Plan), err)
		}
	}
	cfg := Random(1)
	cfg.Plan = []Fault{{Kind: rewind, Late: time.Second}}
	if _, err := load(cfg.save("")); err != nil {
		t.Error(err)
	}
	cfg.Plan = []Fault{{Kind: "sneeze"}}
	if _, err := load(cfg.save("")); err == nil {
		t.Error("a kind that there is not")
	}
}

// A broken lock is lost before Break returns, and nothing else is.
func TestJudge_Broken(t *testing.T) {
	h := newJudge(4 * time.Second)
	h.state = func(string) []string { return nil }
	by := &start{n: new(node), h: &host{clock: new(clock)}}
	h.of("k").holder = &grant{by: by, ctx: t.Context(), token: 4}
	if h.broke("k", 3); len(h.bad) > 0 {
		t.Errorf("another token: %q", h.bad)
	}
	if h.broke("k", 4); len(h.bad) == 0 {
		t.Error("a lock that was broken is in force")
	}
	h.bad = nil
	h.breaking(4)
	h.lost(by, "k", &coord.LossError{Key: "k", Fence: 4, Cause: coord.Broken})
	h.lost(by, "k", errors.Join(coord.ErrLost))
	h.lost(by, "k", &coord.LossError{Key: "k", Fence: 5, Cause: coord.SessionExpired})
	if len(h.bad) > 0 {
		t.Errorf("%q", h.bad)
	}
	if h.lost(by, "k", &coord.LossError{Key: "k", Fence: 5, Cause: coord.Broken}); len(h.bad) == 0 {
		t.Error("a lock was broken, and Break not called")
	}
}

// A process starts at the address of the one before. Connections to that are reset at once, or when
// something is written to them.
func TestAgain(t *testing.T) {
	for _, f := range []Fault{{Kind: again, Both: true}, {Kind: again}, {Kind: again, Some: [8]bool{true}}} {
		r := simulate(t, Config{Seed: 1, TTL: 10 * time.Second, Nodes: 2, Clients: 2, Keys: 2, History: true, script: func(w *world) {
			time.Sleep(15 * time.Second)
			before := w.nodes[0].now
			w.inject(f)
			w.times.run(time.Now().Add(30 * time.Second))
			after := w.nodes[0].now
			if after == nil || after == before || after.h.addr != before.h.addr || !before.h.replaced.Load() {
				w.h.say("%v is in the place of %v", after, before)
				return
			}
			if other := w.nodes[1].now; other.c != nil {
				linked := false
				for _, n := range other.c.Nodes() {
					linked = linked || n.Name == "node0" && n.Linked
				}
				if !linked {
					w.h.say("the other node has no stream to the new process: %+v", other.c.Nodes())
				}
			}
		}})
		if len(r.Bad) > 0 || r.Again != 1 {
			t.Errorf("%v: %d started again, %q", f, r.Again, r.Bad)
		}
	}
}
