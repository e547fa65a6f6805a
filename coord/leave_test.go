package coord_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// Nodes leave at the same time, with callers at work that have keys from each other. No node comes
// after them, so a key that one gave back to another at the last moment must not stay at the
// arbiter.
func TestNothingIsLeftBehindByNodesThatLeaveAtOnce(t *testing.T) {
	takes.Seconds(t)
	a := fallback.NewMemory()
	for range 3 {
		var nodes []*coord.Coordinator
		for range 3 {
			nodes = append(nodes, join(t, a, unhurried()))
		}
		settled(t, 61, nodes...)
		var keys []string
		for k := range 40 {
			keys = append(keys, fmt.Sprint("key", k))
		}
		var work sync.WaitGroup
		for _, c := range nodes {
			for _, k := range keys {
				work.Go(func() {
					pace := time.NewTicker(time.Millisecond)
					defer pace.Stop()
					for {
						l, err := c.Lock(context.Background(), k)
						if err != nil {
							return // closed
						}
						<-pace.C
						l.Unlock()
					}
				})
			}
		}
		await.Until(t, "each node has keys from the others", func() bool {
			least := uint64(math.MaxUint64)
			for _, c := range nodes {
				least = min(least, c.Stats().Granted[coord.PathForwarded])
			}
			return least > 20
		})
		for _, c := range nodes {
			work.Go(func() {
				if err := c.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		work.Wait()
		ns, err := a.Attach(t.Context(), fallback.Settings{Namespace: "holdfast", Partitions: 61, Grace: unhurried().Grace})
		if err != nil {
			t.Fatal(err)
		}
		reads := make([]fallback.Read, 61)
		for p := range reads {
			reads[p].Partition = uint32(p)
		}
		for _, k := range keys {
			p := xxhash.Sum64String(k) % 61
			reads[p].Keys = append(reads[p].Keys, k)
		}
		left := 0
		for i, s := range ns.Verify(t.Context(), reads) {
			for j, row := range s.Rows {
				if row != (fallback.Row{}) {
					left++
					t.Logf("partition %d of %q: %q: %+v", i, s.Record.Owner, reads[i].Keys[j], row)
				}
			}
		}
		if left > 0 {
			t.Errorf("%d rows are left", left)
		}
		ns.Close()
	}
}
