package histogram

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestBucketsAreInOrderAndNarrow(t *testing.T) {
	last := 0
	check := func(d time.Duration) {
		bucket := Bucket(d)
		if bucket < last || bucket > last+1 {
			t.Fatalf("bucket of %d is %d after %d", d, bucket, last)
		}
		last = bucket
		if diff := math.Abs(float64(middle(bucket) - d)); diff > 0.008*float64(d) {
			t.Fatalf("the middle of bucket %d is %d, %g from %d", bucket, middle(bucket), diff, d)
		}
	}
	for d := range time.Duration(100_000) {
		check(d)
	}
	// From here on, steps of less than a bucket.
	for d := time.Duration(100_000); d < 24*time.Hour; d += d / 200 {
		check(d)
	}
	for _, d := range []time.Duration{-1, math.MinInt64} {
		if Bucket(d) != 0 {
			t.Errorf("bucket of %d is %d", d, Bucket(d))
		}
	}
	if d := middle(Bucket(math.MaxInt64)); d < math.MaxInt64/100*99 {
		t.Errorf("the middle of the last bucket is %d", d)
	}
	if b := Bucket(math.MaxInt64); b != Buckets-1 {
		t.Errorf("the last bucket is %d of %d", b, Buckets)
	}
}

func TestQuantile(t *testing.T) {
	var empty Histogram
	if got := empty.Quantile(0.5); got != 0 {
		t.Errorf("quantile of nothing: %v", got)
	}
	var h Histogram
	for i := range 1000 {
		h.Record(time.Duration(i+1) * time.Millisecond)
	}
	for _, test := range []struct {
		q    float64
		want time.Duration
	}{
		{0, time.Millisecond},
		{0.5, 500 * time.Millisecond},
		{0.99, 990 * time.Millisecond},
		{1, time.Second},
	} {
		got := h.Quantile(test.q)
		if diff := (got - test.want).Abs(); diff > test.want/50 {
			t.Errorf("quantile %g: %v, want %v", test.q, got, test.want)
		}
	}
	if h.Longest != time.Second || h.Count() != 1000 {
		t.Errorf("longest %v, count %d", h.Longest, h.Count())
	}
}

func TestHistogramsMergeThroughJSON(t *testing.T) {
	var all, merged Histogram
	for range 4 {
		var part Histogram
		for range 1000 {
			d := time.Duration(rand.ExpFloat64() * float64(time.Millisecond))
			part.Record(d)
			all.Record(d)
		}
		text, err := json.Marshal(part)
		if err != nil {
			t.Fatal(err)
		}
		var read Histogram
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		merged.Merge(&read)
	}
	merged.Merge(&Histogram{})
	if all != merged {
		t.Errorf("all\n%v\nmerged\n%v", all, merged)
	}
}
