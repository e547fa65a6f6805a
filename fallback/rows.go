package fallback

import (
	"context"
	"maps"
)

// A Lister is a Namespace that lists the rows of partitions, so that those of crashed processes can
// be removed.
type Lister interface {
	// Rows returns the rows of each partition by key. It need not be atomic: a row that is written
	// or removed meanwhile may be there or not.
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
