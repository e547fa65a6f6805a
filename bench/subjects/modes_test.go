package subjects

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/bench/report"
)

// allModes has a line for each job and way, that of a rival without its server among them.
func allModes(t *testing.T, b *Run, r report.Result) {
	lines := 0
	for _, j := range b.Sizes.modes.jobs() {
		lines++
		for _, w := range modeWays {
			if w.MeasuredIn(j.kind(), false) {
				lines++
			}
		}
	}
	if len(r.Table) != lines+1 {
		t.Errorf("%q", r.Table)
	}
	for _, row := range r.Table[1:] {
		if len(row) > 1 && (row[1] == "0" || row[1] == "-") {
			t.Errorf("%q", row)
		}
	}
	checkMeasured(t, r)
	for _, text := range []string{"Holdfast RLock, own key, read-1: alloc", "Holdfast RLock, another's key, read-2: alloc"} {
		if c := named(t, r, text); !(c.Got >= 0) {
			t.Errorf("%s: %v", c.Text, c.Got)
		}
	}
}

// A way that does half as much as another one for the same processor time is told so, though both become slower all the time.
func TestPairsOf(t *testing.T) {
	t.Parallel()
	const ratios = 5
	all := pairsResult{}
	for i := range warmSlices + ratios*slicesPerRatio {
		n := int64(1000 - 10*i)
		if second(i) {
			n *= 2
		}
		if i < warmSlices {
			n = 7
		}
		all.Sections, all.CPU = append(all.Sections, n), append(all.CPU, time.Millisecond)
	}
	p := pairsOf(all)
	if len(p.rates) != ratios || len(p.costs) != ratios {
		t.Fatalf("%v, %v", p.rates, p.costs)
	}
	for i := range p.rates {
		if p.rates[i] != 2 || p.costs[i] != 2 {
			t.Errorf("%v times the sections, %v times the processor time for one", p.rates[i], p.costs[i])
		}
	}
	if p.cpu[0] != 2*p.cpu[1] {
		t.Errorf("%v", p.cpu)
	}
}
