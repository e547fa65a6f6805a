package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// check fails the test for what must hold whatever the speed: those claims have a limit of 0.
func check(t *testing.T, r result) {
	t.Helper()
	for _, c := range r.claims {
		if c.limit == 0 && !c.least && !c.holds() {
			t.Errorf("%s: %v", c.text, c.got)
		}
	}
	var out strings.Builder
	r.write(&out)
	for _, c := range r.claims {
		if !strings.Contains(out.String(), c.text) {
			t.Errorf("%q is not in\n%s", c.text, out.String())
		}
	}
}

// withRates measures until each one got somewhere: in longer rounds, if none could in a short one as the machine was busy.
func withRates(t *testing.T, length *time.Duration, measure func() (result, error)) result {
	t.Helper()
	for try := 0; ; try++ {
		r, err := measure()
		if err != nil {
			t.Fatal(err)
		}
		check(t, r)
		var none [][]string
		for _, row := range r.table[1:] {
			// rueidislock may lose a wake-up (see TestVariants), and a round is short.
			if len(row) != len(r.table[0]) || (row[1] == "0" || row[1] == "-") && !strings.HasPrefix(row[0], "rueidislock") {
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

// named returns what was measured for a claim.
func named(t *testing.T, r result, text string) claim {
	t.Helper()
	for _, c := range r.claims {
		if strings.Contains(c.text, text) {
			return c
		}
	}
	t.Fatalf("no claim about %q", text)
	return claim{}
}

func TestHot(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	r := withRates(t, &b.sizes.hot.round, func() (result, error) { return measureHot(t.Context(), b) })
	if len(r.table) != 6 || !strings.HasPrefix(r.table[1][0], "Holdfast") {
		t.Errorf("%q", r.table)
	}
	checkMeasured(t, r)
	if c := named(t, r, "Redis commands per section"); !(c.got > 0) {
		t.Errorf("%v commands per section", c.got)
	}
}

func TestHotSeesTwoHolders(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	b.sizes.hot.goroutines = 8
	r, err := measureVariants(t.Context(), b, variants[len(variants)-1:])
	if err != nil {
		t.Fatal(err)
	}
	if c := named(t, r, "two held the lock"); c.holds() {
		t.Error("without a lock, nobody met anybody")
	}
}

func TestCold(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	r, err := measureCold(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	check(t, r)
	for _, text := range []string{"commands per Lock", "commands per Unlock"} {
		if c := named(t, r, text); c.got != 1 {
			t.Errorf("%s: %v", c.text, c.got)
		}
	}
	if !strings.Contains(strings.Join(r.notes, "\n"), "pinned") {
		t.Errorf("it does not say what is pinned: %q", r.notes)
	}
}

func TestHeld(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	r, err := measureHeld(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	check(t, r)
	if c := named(t, r, "rows while they are held"); c.got != 300 {
		t.Errorf("%v rows", c.got)
	}
	if c := named(t, r, "one read per partition"); c.got <= 0 || c.got > 31 {
		t.Errorf("%v reads of 31 partitions in a period", c.got)
	}
}

// checkMeasured checks that what every way to lock has was measured of each, and that nothing is free.
func checkMeasured(t *testing.T, r result) {
	t.Helper()
	if len(r.measured) == 0 {
		t.Fatal("nothing was measured")
	}
	for _, x := range r.measured {
		if strings.HasPrefix(x.Name, "rueidislock") { // see withRates
			continue
		}
		for i, v := range x.Measures {
			if v.Name != metrics[i].name || v.Median != nil && (*v.Least > *v.Median || *v.Median > *v.Most) {
				t.Errorf("%s: %+v", x.Name, v)
			}
			free := x.Kind == chart.Floor || v.Name == measureCommands || v.Name == measureBytes
			if v.Median == nil && !free && v.Name != "fairness (Jain, processes)" && v.Name != measureServer || v.Median != nil && *v.Median == 0 && !free {
				t.Errorf("%s: no %s", x.Name, v.Name)
			}
		}
	}
}

// The whole command, on a server that was there before, of which nothing must remain.
func TestWholeRun(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	dir := filepath.Join(t.TempDir(), "profiles")
	var stdout, stderr lockedBuffer
	cfg := config{redis: server.Addr, only: []string{"hot", "held", "cold"}, report: true, profile: dir, sizes: tiny}
	if code := measure(t.Context(), cfg, &stdout, &stderr); code != 0 || stderr.String() != "" {
		t.Errorf("exit status %d, stderr %q", code, stderr.String())
	}
	out := stdout.String()
	at := 0
	for _, want := range []string{"redis-server ", "HOT:", "must hold", "COLD:", "nothing is pinned", "HELD:", "must hold"} {
		i := strings.Index(out[at:], want)
		if i < 0 {
			t.Fatalf("no %q, or not in this order:\n%s", want, out)
		}
		at += i
	}
	if !strings.Contains(out, "Everything holds.") && !strings.Contains(out, "Does not hold:") {
		t.Errorf("no verdict:\n%s", out)
	}
	keys, err := server.Client(t).Keys(t.Context(), "*").Result()
	if err != nil || len(keys) > 0 {
		t.Errorf("left %q, %v", keys, err)
	}
	for _, name := range []string{"hot-1", "hot-2", "cold-1", "held-1"} {
		if info, err := os.Stat(filepath.Join(dir, name+".prof")); err != nil || info.Size() == 0 {
			t.Errorf("profile %s: %v", name, err)
		}
	}
}

// What does not hold makes the command fail, unless it is only to report, or to measure little.
func TestExitStatus(t *testing.T) {
	needRedis(t)
	saved := subjects
	defer func() { subjects = saved }()
	for _, test := range []struct {
		got    float64
		report bool
		quick  bool
		code   int
		text   string
	}{
		{1, false, false, 0, "Everything holds."},
		{3, false, false, 1, "Does not hold:\n  fake: a fake"},
		{3, true, false, 0, "Does not hold:\n  fake: a fake"},
		{3, false, true, 0, "Does not hold:\n  fake: a fake"},
	} {
		subjects = []subject{{"fake", func(context.Context, *bench) (result, error) {
			return result{title: "FAKE", table: [][]string{{"a"}}, claims: []claim{atMost(2, test.got, "a fake")}}, nil
		}}}
		var stdout, stderr lockedBuffer
		cfg := config{only: []string{"fake"}, report: test.report, quick: test.quick}
		if code := measure(t.Context(), cfg, &stdout, &stderr); code != test.code || !strings.Contains(stdout.String(), test.text) {
			t.Errorf("%+v: exit status %d:\n%s%s", test, code, stdout.String(), stderr.String())
		}
	}
}

// A run that is interrupted ends soon, and its workers with it.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	b.sizes.hot.round = time.Minute
	b.sizes.held.locks = 200_000
	b.sizes.stalls.calm = time.Minute
	for _, s := range []subject{{"hot", measureHot}, {"held", measureHeld}, {"stalls", measureStalls}} {
		ctx, cancel := context.WithCancel(t.Context())
		stop := time.AfterFunc(2*time.Second, cancel)
		begin := time.Now()
		if _, err := s.measure(ctx, b); err == nil {
			t.Errorf("%s: no error", s.name)
		}
		if d := time.Since(begin); d > 2*time.Second+2*closeTime {
			t.Errorf("%s: it took %v", s.name, d)
		}
		stop.Stop()
		cancel()
	}
}
