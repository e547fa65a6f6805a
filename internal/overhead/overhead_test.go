package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/budget"
	"github.com/holdfast-go/holdfast/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// race is true in a build with the race detector, which costs more.
var race bool

const (
	childEnv = "HOLDFAST_OVERHEAD"
	calls    = 64 // of an owner's unlocks one in 64 takes a longer way
	rounds   = 4
)

// instructions returns how many a Lock and Unlock of an owner's key takes in a variant, and how
// often it reads the clock.
func instructions(t *testing.T, name string) (n, reads float64) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), childEnv+"="+name, "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1")
	cmd.Stderr = t.Output()
	all, err := budget.Steps(cmd, rounds, func(budget.Round) bool { return false })
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	least := slices.MinFunc(all, func(a, b budget.Round) int { return a.Steps - b.Steps })
	return float64(least.Steps) / calls, float64(least.Reads) / calls
}

// With metrics and spans on, a lock of an owner's key takes no more than 5 % more instructions than
// without. A scrape comes once in 15 s or so: the command counts it in.
func TestOwnersPath(t *testing.T) {
	if race {
		t.Skip("the race detector executes more")
	}
	without, clock := instructions(t, makers[0].name)
	for _, m := range makers {
		if !m.metrics {
			continue
		}
		n, reads := instructions(t, m.name)
		t.Logf("%s: %.1f instructions, %.2f reads of the clock: %.3f times those without (%.1f, %.2f)",
			m.name, n, reads, n/without, without, clock)
		if n > most*without || reads > clock {
			t.Errorf("%s: %.1f instructions and %.2f reads of the clock; without metrics %.1f and %.2f", m.name, n, reads, without, clock)
		}
	}
}

// TestChild is the process whose instructions are counted.
func TestChild(t *testing.T) {
	name := os.Getenv(childEnv)
	if name == "" {
		t.Skip("TestOwnersPath runs it in a process of its own")
	}
	i := slices.IndexFunc(makers, func(m maker) bool { return m.name == name })
	if i < 0 {
		t.Fatalf("no variant %q", name)
	}
	v := &variant{name: name}
	t.Cleanup(v.close)
	// Nothing happens by time while instructions are counted: the clock hardly moves then.
	o := &coord.Options{SessionTTL: time.Hour, RenewEvery: 15 * time.Minute, Grace: 2 * time.Hour, Partitions: 61}
	o.Handoff.Linger = time.Hour
	if err := v.start(makers[i].with, o); err != nil {
		t.Fatal(err)
	}
	pairs := func(n int) {
		if err := works[0].run(v, n); err != nil {
			t.Error(err)
		}
	}
	pairs(1000)
	if v.scrape != nil { // so that a variant is not cheap because it is not in use
		if err := v.scrape(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	debug.SetGCPercent(-1)
	pairs(100)
	fmt.Println("ready")
	var line [3]byte
	if _, err := os.Stdin.Read(line[:]); err != nil {
		t.Fatal(err)
	}
	budget.Mark()
	for range rounds {
		pairs(calls)
		budget.Mark()
	}
}

// The variants run, and are scraped. Whether they cost too much is for TestOwnersPath, and for the
// command on a quiet machine.
func TestMeasure(t *testing.T) {
	all, done, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	for _, w := range works {
		for _, v := range all {
			var s sum
			if err := v.slice(&s, w, 100, true); err != nil || s.n != 100 || s.wall <= 0 {
				t.Errorf("%s, %s: %+v, %v", w.name, v.name, s, err)
			}
		}
	}
}

func TestRatios(t *testing.T) {
	a, b := []sum{{10, 30, 20}, {10, 60, 20}}, []sum{{10, 10, 10}, {20, 20, 20}}
	if x := ratios(a, b, (*sum).perWall); !slices.Equal(x, []float64{3, 6}) {
		t.Error(x)
	}
	if x := ratios(a, b, (*sum).perUsed); !slices.Equal(x, []float64{2, 2}) {
		t.Error(x)
	}
	if x := quantile([]float64{3, 1, 2}, 0.5); x != 2 {
		t.Error(x)
	}
}
