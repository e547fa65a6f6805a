package stats

import (
	"math/bits"
	"time"
)

// Histogram counts durations in buckets that grow with the value: each power of two is cut in 16,
// so a bucket's middle is within 3.2 % of whatever is in it. The zero value is ready to use, and
// recording does not allocate.
type Histogram struct {
	Buckets [BucketCount]int64 `json:"buckets"`
	Longest time.Duration      `json:"longest"` // exact
}

const (
	bucketBits  = 4
	bucketsPer  = 1 << bucketBits // per power of two
	BucketCount = 40 * bucketsPer // up to an hour; longer ones count in the last
)

func BucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	shift := max(bits.Len64(v)-bucketBits-1, 0)
	return min(shift*bucketsPer+int(v>>shift), BucketCount-1)
}

// middleOf is the middle of a bucket's values.
func middleOf(bucket int) time.Duration {
	if bucket < 2*bucketsPer {
		return time.Duration(bucket)
	}
	shift := bucket/bucketsPer - 1
	return time.Duration(bucket-shift*bucketsPer)<<shift + time.Duration(1)<<shift/2
}

func (h *Histogram) Record(d time.Duration) {
	h.Buckets[BucketOf(d)]++
	h.Longest = max(h.Longest, d)
}

func (h *Histogram) Merge(other Histogram) {
	for i, n := range other.Buckets {
		h.Buckets[i] += n
	}
	h.Longest = max(h.Longest, other.Longest)
}

// Quantile returns the duration that a part q (0 to 1) of all recorded ones do not exceed, zero if
// there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := int64(q * float64(Sum(h.Buckets[:])))
	for i, n := range h.Buckets {
		if rank -= n; rank < 0 {
			return min(middleOf(i), h.Longest)
		}
	}
	return h.Longest
}
