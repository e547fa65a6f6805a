package subjects

import (
	"testing"

	"github.com/holdfast-go/holdfast/bench/report"
)

// checkModes checks what must be so of any jobs.
func checkModes(t *testing.T, r report.Result, lines int) {
	t.Helper()
	check(t, r)
	if len(r.Table) != lines+1 {
		t.Errorf("%q", r.Table)
	}
	for _, row := range r.Table[1:] {
		if len(row) > 1 && (row[1] == "0" || row[1] == "-") {
			t.Errorf("%q", row)
		}
	}
	checkMeasured(t, r)
}

func TestModesRead(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	r, err := measureModes(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	lines := 0 // one of a rival whose server is missing says that it was not run
	for _, j := range b.Sizes.modes.jobs() {
		lines++
		for _, w := range modeWays {
			if w.MeasuredIn(j.kind(), false) {
				lines++
			}
		}
	}
	checkModes(t, r, lines)
	if c := named(t, r, "Holdfast Semaphore, permits: no limit, sections per second"); c.Got <= 0 {
		t.Errorf("%s: %v", c.Text, c.Got)
	}
	for _, text := range []string{"Holdfast RLock, own key, read-1: alloc", "Holdfast RLock, another's key, read-2: alloc"} {
		if c := named(t, r, text); !(c.Got >= 0) {
			t.Errorf("%s: %v", c.Text, c.Got)
		}
	}
}
