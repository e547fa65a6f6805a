package fallback

import (
	"context"
	"maps"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A Lister is a Namespace that lists the rows of partitions, so that what crashed processes left can be removed.
type Lister interface {
	// Rows returns the rows of each partition by key. It need not be atomic: a row that is written or
	// removed meanwhile may be there or not.
	Rows(ctx context.Context, partitions []uint32) ([]map[string]Row, error)
}

// Rows implements [Lister].
func (n *memory) Rows(ctx context.Context, partitions []uint32) (all []map[string]Row, err error) {
	err = n.do(ctx, func(Moment) {
		for _, p := range partitions {
			all = append(all, maps.Clone(n.space.parts[p].Rows))
		}
	})
	return all, err
}

// rowsPerScan is how many rows one command reads, about.
const rowsPerScan = 500

// Rows implements [Lister]. It reads without a script, so it begins and ends no Grace: in one round trip, if no partition has
// more than rowsPerScan rows.
func (n *redisSpace) Rows(ctx context.Context, partitions []uint32) ([]map[string]Row, error) {
	return outlive(ctx, &n.calls, func(ctx context.Context) ([]map[string]Row, error) {
		all := make([]map[string]Row, len(partitions))
		cursors := make(map[int]uint64) // of those that are not read to their end, by index
		for i := range partitions {
			all[i], cursors[i] = make(map[string]Row), 0
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
					if all[i][strings.TrimPrefix(fields[j], "r:")], err = decodeRow(fields[j+1]); err != nil {
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
