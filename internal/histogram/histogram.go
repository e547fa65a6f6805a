// Package histogram counts durations, for the bench and the examples.
//
// [github.com/holdfast-go/holdfast/coord.Histogram] is another one, which users read: its buckets
// are wider, as each coordinator has them, it adds the durations up for Prometheus, and it is
// written to by many goroutines.
package histogram

import (
	"encoding/json"
	"math/bits"
	"time"
)

// A Histogram counts durations in buckets that grow with the value: each power of two is cut in 64,
// so a bucket's middle is within 0.8 % of each value in it. The zero value is ready for use.
// Recording does not allocate. JSON carries it, so one process can merge the measurements of
// another.
type Histogram struct {
	Buckets [Buckets]int64
	Longest time.Duration // exact
}

const (
	bucketBits = 6
	bucketsPer = 1 << bucketBits                         // per power of two
	Buckets    = (63-bucketBits)*bucketsPer + bucketsPer // Buckets is the number of buckets: enough for any duration
)

// Bucket returns the number of a duration's bucket. They are in the order of their values; those
// below 64 ns have one each.
func Bucket(d time.Duration) int {
	v := uint64(max(d, 0))
	shift := max(bits.Len64(v)-bucketBits-1, 0)
	return shift*bucketsPer + int(v>>shift)
}

// middle is the middle of a bucket's values.
func middle(bucket int) time.Duration {
	if bucket < 2*bucketsPer {
		return time.Duration(bucket)
	}
	shift := bucket/bucketsPer - 1
	return time.Duration(bucket-shift*bucketsPer)<<shift + time.Duration(1)<<shift/2
}

// Record counts a duration.
func (h *Histogram) Record(d time.Duration) {
	h.Buckets[Bucket(d)]++
	h.Longest = max(h.Longest, d)
}

// Merge adds the counts of another one.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range other.Buckets {
		h.Buckets[i] += n
	}
	h.Longest = max(h.Longest, other.Longest)
}

// Count returns the number of recorded durations.
func (h *Histogram) Count() (n int64) {
	for _, in := range h.Buckets {
		n += in
	}
	return n
}

// Quantile returns the duration that a part q (0 to 1) of all recorded ones do not exceed, zero if
// there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := int64(q * float64(h.Count()))
	for i, n := range h.Buckets {
		if rank -= n; rank < 0 {
			return min(middle(i), h.Longest)
		}
	}
	return h.Longest
}

// sparse is the form in JSON: without empty buckets.
type sparse struct {
	Buckets map[int]int64 `json:"buckets"`
	Longest time.Duration `json:"longest"`
}

// MarshalJSON implements [json.Marshaler].
func (h Histogram) MarshalJSON() ([]byte, error) {
	s := sparse{make(map[int]int64), h.Longest}
	for i, n := range h.Buckets {
		if n != 0 {
			s.Buckets[i] = n
		}
	}
	return json.Marshal(s)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (h *Histogram) UnmarshalJSON(text []byte) error {
	var s sparse
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	*h = Histogram{Longest: s.Longest}
	for i, n := range s.Buckets {
		if i >= 0 && i < Buckets {
			h.Buckets[i] = n
		}
	}
	return nil
}
