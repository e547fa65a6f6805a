package coord

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestBucketsCoverEveryDurationOnce(t *testing.T) {
	for b := range buckets - 1 {
		if bucketOf(upper(b)) != b || bucketOf(upper(b)+1) != b+1 {
			t.Errorf("bucket %d ends at %d", b, upper(b))
		}
	}
	for _, d := range []time.Duration{-1, 0} {
		if bucketOf(d) != 0 {
			t.Errorf("bucket of %d", d)
		}
	}
	if bucketOf(1<<62) != buckets-1 {
		t.Error("a long duration has no bucket")
	}
}

func TestQuantilesAreAFifthTooLargeAtMost(t *testing.T) {
	var r recorder
	var all []time.Duration
	for range 10_000 {
		d := time.Duration(rand.ExpFloat64() * float64(time.Millisecond))
		r.record(d)
		all = append(all, d)
	}
	slices.Sort(all)
	var h Histogram
	r.addTo(&h)
	for _, q := range []float64{0, 0.5, 0.9, 0.99, 0.999} {
		exact := all[int(q*float64(len(all)))]
		if got := h.Quantile(q); got < exact || float64(got) > 1.25*float64(exact)+1 {
			t.Errorf("quantile %v: %v, exactly %v", q, got, exact)
		}
	}
	if h.Count() != 10_000 || h.Quantile(1) < all[len(all)-1] || h.Mean() < 900*time.Microsecond || h.Mean() > 1100*time.Microsecond {
		t.Errorf("%d, %v, %v", h.Count(), h.Quantile(1), h.Mean())
	}
	if (Histogram{}).Quantile(0.5) != 0 || (Histogram{}).Mean() != 0 {
		t.Error("the empty histogram")
	}
}
