package coord_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// A node that leaves gives each partition to the node that is next: when Close has returned, the
// others have all of them, though Debounce is far longer.
func TestLeave_HandsPartitionsOver(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	const debounce = 5 * time.Second
	a := fallback.NewMemory()
	var nodes []*coord.Coordinator
	for range 3 {
		o := unhurried()
		o.Cluster.Debounce = debounce
		nodes = append(nodes, join(t, a, o))
	}
	settled(t, 61, nodes...)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	begin := time.Now()
	if err := nodes[0].Close(ctx); err != nil {
		t.Fatal(err)
	}
	for _, c := range nodes[1:] {
		if err := c.Settled(ctx, 2); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(begin); took > debounce/2 {
		t.Errorf("partitions had no owner for %v, with a Debounce of %v", took, debounce)
	}
}
