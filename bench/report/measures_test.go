package report

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/histogram"
)

// A round is what all processes did, and each figure is the median of the rounds.
func TestMeasured(t *testing.T) {
	var waits histogram.Histogram
	waits.Record(time.Millisecond)
	play := func(server time.Duration, rounds ...[2]stats.Effort) *stats.Tally {
		x := new(stats.Tally)
		for _, r := range rounds {
			x.Add(stats.NewRound(2*time.Second, server, r[:], &waits))
		}
		return x
	}
	floor := play(0, [2]stats.Effort{{Sections: 500}, {Sections: 500}}, [2]stats.Effort{{Sections: 250}, {Sections: 250}})
	floor.Untold = []string{stats.MeasureCommands}
	ours := play(time.Second,
		[2]stats.Effort{{Sections: 60, Commands: 1, Sent: 60, Received: 40, Allocs: 200, CPU: time.Millisecond}, {Sections: 40, CPU: time.Millisecond}},
		[2]stats.Effort{{Sections: 25}, {Sections: 25}})
	quick := play(0, [2]stats.Effort{{Sections: 20, Commands: 80}, {Sections: 20}}, [2]stats.Effort{{Sections: 10, Commands: 10}, {Sections: 0}})
	sparing := play(0, [2]stats.Effort{{Sections: 10, Commands: 10}, {}}, [2]stats.Effort{{Sections: 1, Commands: 1}, {}})
	var r Result
	r.Compare([]Contestant{{"ours", chart.Ours, ours}, {"quick", chart.Rival, quick}, {"sparing", chart.Rival, sparing}, {"floor", chart.Floor, floor}})
	of := func(who int, name string) measureValue {
		for _, v := range r.Measured[who].Measures {
			if v.Name == name {
				return v
			}
		}
		t.Fatalf("no %s", name)
		return measureValue{}
	}
	for _, test := range []struct {
		who                 int
		name                string
		median, least, most float64
		best                string
		toBest, toFloor     float64 // NaN: there is none
	}{
		{0, "operations per second", 37.5, 25, 50, "quick", 3.75, 0.1},
		{1, "operations per second", 12.5, 5, 20, "quick", 1, 0.03},
		{0, stats.MeasureCommands, 0.005, 0, 0.01, "sparing", 0.005, math.NaN()},
		{3, stats.MeasureCommands, math.NaN(), math.NaN(), math.NaN(), "", math.NaN(), math.NaN()},
		{0, stats.MeasureBytes, 0.5, 0, 1, "", math.NaN(), math.NaN()}, // of the best 0: no ratio
		{0, "CPU s per million, callers", 10, 0, 20, "", math.NaN(), math.NaN()},
		{0, stats.MeasureServer, 15_000, 10_000, 20_000, "", math.NaN(), math.NaN()},
		{0, "allocations per operation", 1, 0, 2, "", math.NaN(), math.NaN()},
		{0, "fairness (Jain, processes)", (1/1.04 + 1) / 2, 1 / 1.04, 1, "quick", (1/1.04 + 2) / 2, (1/1.04 + 1) / 2},
		{0, "max", 1e6, 1e6, 1e6, "quick", 1, 1},
	} {
		v := of(test.who, test.name)
		for _, pair := range [][2]float64{
			{float64(v.Median), test.median}, {float64(v.Least), test.least}, {float64(v.Most), test.most},
			{float64(v.ToBest), test.toBest}, {float64(v.ToFloor), test.toFloor},
		} {
			if math.Abs(pair[0]-pair[1]) > 1e-9*math.Abs(pair[1]) || math.IsNaN(pair[0]) != math.IsNaN(pair[1]) {
				t.Errorf("%d, %s: %+v, got %v, want %v", test.who, test.name, test, pair[0], pair[1])
			}
		}
		if v.Best != test.best {
			t.Errorf("%d, %s: the best is %q", test.who, test.name, v.Best)
		}
	}
	table := spreads(r.Measured)
	for _, row := range table {
		if len(row) != 1+len(stats.Metrics) && row[0] != "" {
			t.Errorf("%q", row)
		}
	}
	if row := strings.Join(table[1][:2], "|"); row != "ours|37.5" {
		t.Errorf("%q", row)
	}
	if row := strings.Join(table[2][:2], "|"); row != "  least..most|25..50" {
		t.Errorf("%q", row)
	}
}

// What is allocated, sent and computed is seen.
func TestMeter(t *testing.T) {
	count := new(harness.Counter)
	m := harness.NewMeter(count, nil)
	count.Commands.Add(3)
	count.Trips.Add(2)
	count.Sent.Add(100)
	count.Received.Add(11)
	var kept [][]byte
	for cpu := harness.SelfCPU(); harness.SelfCPU()-cpu < 5*time.Millisecond; {
		kept = append(kept, make([]byte, 100))
	}
	e := m.Read(7)
	if e.Sections != 7 || e.Commands != 3 || e.Trips != 2 || e.Bytes() != 111 || e.Allocs < uint64(len(kept)) || e.CPU < 5*time.Millisecond {
		t.Errorf("%+v, %d allocations", e, len(kept))
	}
}
