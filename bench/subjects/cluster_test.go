package subjects

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
)

func TestOwn(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	r, err := measureOwn(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	check(t, r)
	for _, text := range []string{"Lock and Unlock, times", "hand-over among 64", "SET NX PX and EVALSHA"} {
		if c := named(t, r, text); !(c.Got > 0) {
			t.Errorf("%s: %v", c.Text, c.Got)
		}
	}
}

// checkContest checks what must be so of shared and zipf.
func checkContest(t *testing.T, r report.Result, lines int) {
	t.Helper()
	checkMeasured(t, r)
	if len(r.Table) != lines+1 || !strings.HasPrefix(r.Table[1][0], "Holdfast cluster") {
		t.Errorf("%q", r.Table)
	}
	for _, row := range r.Table[1:] {
		if _, ok := rivals.PostgresKind.Find(); ok == (row[1] == notRun) && strings.HasPrefix(row[0], rivals.Advisory) {
			t.Errorf("%q", row)
		}
	}
}

func TestShared(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	r := withRates(t, &b.Sizes.Shared.Round, func() (report.Result, error) { return measureShared(t.Context(), b) })
	checkContest(t, r, 9)
	if c := named(t, r, "of one worker without a lock"); !(c.Got > 0) {
		t.Errorf("%s: %v", c.Text, c.Got)
	}
}

func TestZipf(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	b.Pin = false
	r := withRates(t, &b.Sizes.Zipf.Round, func() (report.Result, error) { return measureZipf(t.Context(), b) })
	checkContest(t, r, 9)
}

func TestForward(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	r, err := measureForward(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	check(t, r)
	for _, c := range r.Claims[:3] {
		if !(c.Got > 0) {
			t.Errorf("%s: %v", c.Text, c.Got)
		}
	}
}

func TestIdle(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	r, err := measureIdle(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	check(t, r)
	if c := named(t, r, "on average"); !(c.Got > 0) {
		t.Errorf("%v round trips", c.Got)
	}
}
