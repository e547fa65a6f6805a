package redisarbiter

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

func (n *redisSpace) result(p uint32, k string) string { return n.part(p) + ":v:" + k }

// LoadResult implements [ResultStore].
func (n *redisSpace) LoadResult(ctx context.Context, p uint32, key string) (fallback.Result, error) {
	v, err := n.run(ctx, scriptLoadResult, []string{n.result(p, key)})
	if err != nil || len(list(v)) == 0 {
		return fallback.Result{}, err
	}
	r := reader{v: list(v)}
	fence, err := strconv.ParseUint(r.str(0), 10, 64)
	if err != nil || fence == 0 {
		return fallback.Result{}, fmt.Errorf("fallback: the fence of a result is %q", r.str(0))
	}
	return fallback.Result{Value: []byte(r.str(2)), Fence: fence, Age: r.ms(1)}, r.err
}

// observers is the fence of the results that observers keep, and of no others: see package coord.
const observers = 1

// SaveResult implements [ResultStore].
func (n *redisSpace) SaveResult(ctx context.Context, p uint32, key string, value []byte, fence uint64, ttl time.Duration) (fallback.Verdict, error) {
	if fence > observers && !n.results.Load() {
		n.results.Store(true)
	}
	v, err := n.run(ctx, scriptSaveResult, []string{n.result(p, key)}, fmt.Sprintf("%020d", fence), value, ttl.Milliseconds())
	if err != nil {
		return 0, err
	}
	r := reader{v: []any{v}}
	return r.verdict(), r.err
}
