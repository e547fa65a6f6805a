package fallback

import (
	"context"
	"maps"
	"strings"
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

// Rows implements [Lister]. It reads without a script, so it begins and ends no Grace.
func (n *redisSpace) Rows(ctx context.Context, partitions []uint32) ([]map[string]Row, error) {
	return outlive(ctx, &n.calls, func(ctx context.Context) ([]map[string]Row, error) {
		all := make([]map[string]Row, len(partitions))
		for i, p := range partitions {
			all[i] = make(map[string]Row)
			for cursor := uint64(0); ; {
				fields, next, err := n.conns.work.HScan(ctx, n.part(p), cursor, "r:*", rowsPerScan).Result()
				if err != nil {
					return nil, refused(err)
				}
				for j := 0; j+1 < len(fields); j += 2 {
					key, _ := strings.CutPrefix(fields[j], "r:")
					if all[i][key], err = decodeRow(fields[j+1]); err != nil {
						return nil, err
					}
				}
				if cursor = next; cursor == 0 {
					break
				}
			}
		}
		return all, nil
	})
}
