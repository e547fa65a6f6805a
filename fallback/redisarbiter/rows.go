package redisarbiter

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
)

// rowsPerScan is how many rows one command reads, about.
const rowsPerScan = 500

// Rows implements [fallback.Lister]. It reads without a script, so it begins and ends no Grace: in
// one round trip, if no partition has more than rowsPerScan rows.
func (n *redisSpace) Rows(ctx context.Context, partitions []uint32) ([]map[string]fallback.Row, error) {
	return outlive(ctx, &n.calls, func(ctx context.Context) ([]map[string]fallback.Row, error) {
		all := make([]map[string]fallback.Row, len(partitions))
		cursors := make(map[int]uint64) // of those that are not read to their end, by index
		for i := range partitions {
			all[i], cursors[i] = make(map[string]fallback.Row), 0
		}
		for len(cursors) > 0 {
			scans := make(map[int]*redis.ScanCmd, len(cursors))
			_, err := n.conns.work.Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for i, cursor := range cursors {
					scans[i] = pipe.HScan(ctx, n.part(partitions[i]), cursor, "r:*", rowsPerScan)
				}
				return nil
			})
			if err != nil {
				return nil, refused(err)
			}
			for i, scan := range scans {
				fields, next := scan.Val()
				for j := 0; j+1 < len(fields); j += 2 {
					if all[i][strings.TrimPrefix(fields[j], "r:")], err = fallback.DecodeRow(fields[j+1]); err != nil {
						return nil, err
					}
				}
				if cursors[i] = next; next == 0 {
					delete(cursors, i)
				}
			}
		}
		return all, nil
	})
}
