package coord

import (
	"testing"
	"time"
)

// The buckets tell all durations, in order, and each within its bound.
func TestHistogram_All(t *testing.T) {
	var r recorder
	durations := []time.Duration{0, 3, 4, 1000, time.Microsecond + 1, time.Second, 3 * time.Hour}
	for _, d := range durations {
		r.record(d)
	}
	var h Histogram
	r.addTo(&h)
	last, n := time.Duration(-1), uint64(0)
	for upper, count := range h.All() {
		if upper <= last || count == 0 {
			t.Errorf("%d up to %v after %v", count, upper, last)
		}
		last, n = upper, n+count
		if n == 3 {
			break // it may be left
		}
	}
	if n != 3 || last < 4 || last > 5 || h.Sum() != 3*time.Hour+time.Second+2008 || h.Count() != uint64(len(durations)) {
		t.Errorf("%d up to %v, sum %v, count %d", n, last, h.Sum(), h.Count())
	}
}
