package main

import (
	"maps"
	"math/bits"
	"slices"
	"time"
)

// A histogram counts durations in buckets that grow with the value: each power of two is cut
// in 64, so a bucket's middle is within 0.8 % of whatever is in it. The zero value is ready to use,
// and JSON carries it, so one process can merge what another measured.
type histogram struct {
	Buckets map[int]int64 `json:"buckets"`
	Longest time.Duration `json:"longest"` // exact
}

const (
	bucketBits = 6
	bucketsPer = 1 << bucketBits // per power of two
)

// bucketOf numbers the buckets from zero, in order of their values. Values below 64 ns have one each.
func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	shift := max(bits.Len64(v)-bucketBits-1, 0)
	return shift*bucketsPer + int(v>>shift)
}

// middleOf is the middle of a bucket's values.
func middleOf(bucket int) time.Duration {
	if bucket < 2*bucketsPer {
		return time.Duration(bucket)
	}
	shift := bucket/bucketsPer - 1
	lowest := time.Duration(bucket-shift*bucketsPer) << shift
	return lowest + time.Duration(1)<<shift/2
}

func (h *histogram) record(d time.Duration) {
	if h.Buckets == nil {
		h.Buckets = make(map[int]int64)
	}
	h.Buckets[bucketOf(d)]++
	h.Longest = max(h.Longest, d)
}

func (h *histogram) merge(other histogram) {
	if h.Buckets == nil {
		h.Buckets = make(map[int]int64)
	}
	for bucket, n := range other.Buckets {
		h.Buckets[bucket] += n
	}
	h.Longest = max(h.Longest, other.Longest)
}

func (h *histogram) count() int64 {
	var sum int64
	for _, n := range h.Buckets {
		sum += n
	}
	return sum
}

// quantile returns the duration that a part q (0 to 1) of all recorded ones do not exceed, or zero
// if there are none.
func (h *histogram) quantile(q float64) time.Duration {
	rank := int64(q * float64(h.count()))
	for _, bucket := range slices.Sorted(maps.Keys(h.Buckets)) {
		if rank -= h.Buckets[bucket]; rank < 0 {
			return min(middleOf(bucket), h.Longest)
		}
	}
	return h.Longest
}
