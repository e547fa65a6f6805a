package stats

import (
	"math"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStatistics(t *testing.T) {
	if got := Median([]float64{3, 1, 2, 10}); got != 2.5 {
		t.Errorf("median %v", got)
	}
	sample := []float64{5, 1, 4, 2, 3}
	if got := quantile(sample, 0.5); got != 3 {
		t.Errorf("quantile %v", got)
	}
	if got := quantile(sample, 1); got != 5 {
		t.Errorf("quantile 1: %v", got)
	}
	if !math.IsNaN(Median(nil)) || !math.IsNaN(quantile(nil, 0.5)) || SpreadOf(nil).String() != "- (-..-)" {
		t.Error("there is something in nothing")
	}
	if got := SpreadOf([]float64{1.25, 20000, 0.012}).String(); got != "1.25 (0.012..20,000)" {
		t.Errorf("spread %q", got)
	}
	if got := IntervalOf(nil).String(); got != "- (-..-)" {
		t.Errorf("interval %q", got)
	}
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	if got := IntervalOf(hundred); got != (Spread{50.5, 40, 61}) { // the ranks in tables, for 96.5 %
		t.Errorf("interval %v", got)
	}
	if got := IntervalOf([]float64{3, 1, 2}); got != (Spread{2, 1, 3}) {
		t.Errorf("interval %v", got)
	}
	if got := Number(math.Inf(1)); got != "+Inf" {
		t.Errorf("infinity is %q", got)
	}
	for want, x := range map[string]float64{"13 ns": 13, "1.00 µs": 999.9, "67.4 µs": 67_400, "0 ns": 0, "1.50 s": 1.5e9} {
		if got := Format(x, Nanoseconds); got != want {
			t.Errorf("%v: %q, want %q", x, got, want)
		}
	}
	if got := Format(731_614, "/s"); got != "731,614/s" {
		t.Errorf("rate %q", got)
	}
	if got := SmallestShare([]int64{10, 20, 30}); got != 0.5 {
		t.Errorf("share %v", got)
	}
	if got := Jain([]int64{3, 3, 3}); got != 1 {
		t.Errorf("Jain index %v", got)
	}
	if got := Jain([]int64{7, 0}); got != 0.5 {
		t.Errorf("Jain index %v", got)
	}
	if got := PerRound([]float64{10, 30}, []float64{5, 10}); !slices.Equal(got, []float64{2, 3}) {
		t.Errorf("per round %v", got)
	}
}
