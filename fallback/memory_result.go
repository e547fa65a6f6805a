package fallback

import (
	"context"
	"maps"
	"slices"
	"time"
)

// memoryResults is the results of a namespace. Its values are never changed, so that copies may
// share them.
type memoryResults struct {
	all   map[resultKey]memoryResult
	sweep int // with so many of them, those that have expired are removed
}

type resultKey struct {
	partition uint32
	key       string
}

type memoryResult struct {
	value          []byte
	fence          uint64
	saved, expires int64 // ms
}

func (r *memoryResults) clone() memoryResults { return memoryResults{maps.Clone(r.all), r.sweep} }

func (r *memoryResults) load(now int64, k resultKey) Result {
	x, ok := r.all[k]
	if !ok || now >= x.expires {
		return Result{}
	}
	return Result{
		Value: slices.Clone(x.value), Fence: x.fence,
		Age: time.Duration(max(0, now-x.saved)) * time.Millisecond,
	}
}

func (r *memoryResults) save(now int64, k resultKey, x memoryResult) Verdict {
	if was := r.load(now, k); was.Fence > x.fence {
		return Stale
	}
	if r.all == nil {
		r.all = make(map[resultKey]memoryResult)
	}
	r.all[k] = x
	if len(r.all) > r.sweep {
		// Whenever there are twice as many as were left the last time: values without requests cost
		// no memory in the end.
		maps.DeleteFunc(r.all, func(_ resultKey, x memoryResult) bool { return now >= x.expires })
		r.sweep = max(64, 2*len(r.all))
	}
	return Granted
}

// LoadResult implements [ResultStore].
func (n *memory) LoadResult(ctx context.Context, p uint32, key string) (r Result, err error) {
	err = n.do(ctx, func(m Moment) { r = n.space.results.load(m.Now, resultKey{p, key}) })
	return r, err
}

// SaveResult implements [ResultStore].
func (n *memory) SaveResult(ctx context.Context, p uint32, key string, value []byte, fence uint64, ttl time.Duration) (v Verdict, err error) {
	x := memoryResult{value: slices.Clone(value), fence: fence}
	err = n.do(ctx, func(m Moment) {
		x.saved, x.expires = m.Now, m.Now+ttl.Milliseconds()
		v = n.space.results.save(m.Now, resultKey{p, key}, x)
	})
	return v, err
}
