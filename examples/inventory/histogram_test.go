package main

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

func TestBucketsAreInOrderAndNarrow(t *testing.T) {
	last := 0
	check := func(d time.Duration) {
		bucket := bucketOf(d)
		if bucket < last || bucket > last+1 {
			t.Fatalf("bucket of %d is %d after %d", d, bucket, last)
		}
		last = bucket
		if diff := math.Abs(float64(middleOf(bucket) - d)); diff > 0.008*float64(d) {
			t.Fatalf("the middle of bucket %d is %d, %g from %d", bucket, middleOf(bucket), diff, d)
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
		if bucketOf(d) != 0 {
			t.Errorf("bucket of %d is %d", d, bucketOf(d))
		}
	}
	if d := middleOf(bucketOf(math.MaxInt64)); d < math.MaxInt64/100*99 {
		t.Errorf("the middle of the last bucket is %d", d)
	}
}

func TestQuantile(t *testing.T) {
	var empty histogram
	if got := empty.quantile(0.5); got != 0 {
		t.Errorf("quantile of nothing: %v", got)
	}
	var h histogram
	for i := range 1000 {
		h.record(time.Duration(i+1) * time.Millisecond)
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
		got := h.quantile(test.q)
		if diff := (got - test.want).Abs(); diff > test.want/50 {
			t.Errorf("quantile %g: %v, want %v", test.q, got, test.want)
		}
	}
	if h.Longest != time.Second || h.count() != 1000 {
		t.Errorf("longest %v, count %d", h.Longest, h.count())
	}
}

func TestHistogramsMergeThroughJSON(t *testing.T) {
	var all, merged histogram
	for range 4 {
		var part histogram
		for range 1000 {
			d := time.Duration(rand.ExpFloat64() * float64(time.Millisecond))
			part.record(d)
			all.record(d)
		}
		text, err := json.Marshal(part)
		if err != nil {
			t.Fatal(err)
		}
		var read histogram
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		merged.merge(read)
	}
	merged.merge(histogram{})
	if !reflect.DeepEqual(all, merged) {
		t.Errorf("all\n%v\nmerged\n%v", all, merged)
	}
}
