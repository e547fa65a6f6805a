package subjects

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/internal/histogram"
)

// stallBook is memory that the processes of a scenario share, a file mapped by each. What a process
// has written there stays when it is killed.
type stallBook struct {
	begin  atomic.Int64             // nanoseconds since 1970; 0: not yet
	over   atomic.Bool              // no requests arrive any more
	serves [stallSlots]atomic.Int64 // which process gets the requests that arrive at a slot
	stale  atomic.Int64             // tokens that were not above the last one of their key
	slow   atomic.Int64             // requests that waited for longer than stallSlow
	tokens [stallKeys]atomic.Uint64
	waits  [histogram.Buckets]atomic.Int64 // as those of a histogram
	moment [stallMoments]stallMoment
}

const (
	stallSlots   = 8
	stallKeys    = 1024
	stallMoments = 1200 // two minutes
	stallBucket  = 100 * time.Millisecond
	stallSlow    = 100 * time.Millisecond
)

// stallMoment is what happened in one stallBucket.
type stallMoment struct {
	arrived atomic.Int64
	done    atomic.Int64 // sections that ended then
	failed  atomic.Int64 // of what arrived then
	longest atomic.Int64 // wait of what arrived then, nanoseconds
}

func openBook(path string) (_ *stallBook, unmap func() error, err error) {
	mem, unmap, err := harness.MapFile(path, int(unsafe.Sizeof(stallBook{})))
	if err != nil {
		return nil, nil, err
	}
	return (*stallBook)(mem), unmap, nil
}

// at returns the moment that t belongs to. What is later than all belongs to the last.
func (b *stallBook) at(t time.Time) *stallMoment {
	i := t.Sub(time.Unix(0, b.begin.Load())) / stallBucket
	return &b.moment[min(max(int(i), 0), stallMoments-1)]
}

// waited notes how long a request waited that arrived at a moment, or until it failed.
func (b *stallBook) waited(arrived time.Time, d time.Duration) {
	for m := &b.at(arrived).longest; ; {
		seen := m.Load()
		if seen >= int64(d) || m.CompareAndSwap(seen, int64(d)) {
			break
		}
	}
	b.waits[histogram.Bucket(d)].Add(1)
	if d > stallSlow {
		b.slow.Add(1)
	}
}

// granted notes a token of a key, if there are tokens.
func (b *stallBook) granted(key int, fence uint64) {
	if fence != 0 && b.tokens[key].Swap(fence) >= fence {
		b.stale.Add(1)
	}
}

// histogram is that of all waits.
func (b *stallBook) histogram() *histogram.Histogram {
	h := new(histogram.Histogram)
	for i := range b.waits {
		h.Buckets[i] = b.waits[i].Load()
	}
	for i := range b.moment {
		h.Longest = max(h.Longest, time.Duration(b.moment[i].longest.Load()))
	}
	return h
}
