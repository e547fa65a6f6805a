package redisarbiter

import (
	"context"
	"strings"

	"github.com/holdfast-go/holdfast/fallback"
)

// Waiters implements [fallback.WaiterLister]. It reads without a script, so it begins and ends no
// Grace.
func (n *redisSpace) Waiters(ctx context.Context, partition uint32, key string, most int) ([]fallback.Release, error) {
	return outlive(ctx, &n.calls, func(ctx context.Context) ([]fallback.Release, error) {
		if most < 1 {
			return nil, nil
		}
		members, err := n.conns.work.ZRange(ctx, n.queue(partition, key), 0, int64(most)-1).Result()
		if err != nil {
			return nil, refused(err)
		}
		all := make([]fallback.Release, len(members))
		for i, m := range members {
			f := strings.SplitN(m, " ", 3) // session, request, and perhaps the mode
			row, err := fallback.DecodeRow(strings.Join(f[:min(len(f), 2)], " ") + " 0 0")
			if err != nil {
				return nil, err
			}
			w := fallback.Waiter{Identity: row.Identity}
			if len(f) > 2 {
				w.Spec = f[2]
			}
			all[i] = w.Release(partition, key)
		}
		return all, nil
	})
}
