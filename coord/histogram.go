package coord

import (
	"iter"
	"math/bits"
	"sync/atomic"
	"time"
)

// A Histogram counts durations in buckets a quarter of an octave wide, so a quantile is exact to
// about a fifth. It is a snapshot: it does not change.
type Histogram struct {
	counts [buckets]uint64
	total  uint64
	sum    time.Duration
}

// buckets is enough for 4 per octave of nanoseconds up to 2^42 ns, more than an hour; longer ones
// count in the last.
const buckets = 4 * 42

func bucketOf(d time.Duration) int {
	n := uint64(max(d, 0))
	if n < 4 {
		return int(n)
	}
	// The two bits below the highest tell the quarter.
	l := bits.Len64(n)
	return min(4*(l-2)+int(n>>(l-3)&3), buckets-1)
}

// upper is the end of a bucket.
func upper(b int) time.Duration {
	if b < 4 {
		return time.Duration(b)
	}
	return time.Duration(uint64(4+b%4+1)<<(b/4-1)) - 1
}

// All returns the buckets that have durations: the longest that a bucket takes, and how many it
// has.
func (h Histogram) All() iter.Seq2[time.Duration, uint64] {
	return func(yield func(time.Duration, uint64) bool) {
		for b, n := range h.counts {
			if n > 0 && !yield(upper(b), n) {
				return
			}
		}
	}
}

// Sum returns the sum of the durations.
func (h Histogram) Sum() time.Duration { return h.sum }

// Count returns the number of durations.
func (h Histogram) Count() uint64 { return h.total }

// Mean returns the mean, 0 if there is none.
func (h Histogram) Mean() time.Duration {
	if h.total == 0 {
		return 0
	}
	return h.sum / time.Duration(h.total)
}

// Quantile returns an upper bound of the q-quantile, for q from 0 to 1; 0 if there is no duration.
func (h Histogram) Quantile(q float64) time.Duration {
	rank := uint64(q * float64(h.total))
	var seen uint64
	for b, n := range h.counts {
		seen += n
		if n > 0 && (seen > rank || seen == h.total) {
			return upper(b)
		}
	}
	return 0
}

func (h *Histogram) add(other *Histogram) {
	for b, n := range other.counts {
		h.counts[b] += n
	}
	h.total += other.total
	h.sum += other.sum
}

// recorder is a histogram that is being written.
type recorder struct {
	counts [buckets]atomic.Uint64
	sum    atomic.Int64
}

func (r *recorder) record(d time.Duration) {
	r.counts[bucketOf(d)].Add(1)
	r.sum.Add(int64(d))
}

func (r *recorder) addTo(h *Histogram) {
	for b := range r.counts {
		n := r.counts[b].Load()
		h.counts[b] += n
		h.total += n
	}
	h.sum += time.Duration(r.sum.Load())
}
