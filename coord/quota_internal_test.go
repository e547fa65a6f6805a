package coord

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/gossip"
)

// Keys are counted every RenewEvery where a node is near its limit, and every fourth time
// elsewhere.
func TestCountDue(t *testing.T) {
	o := (&Options{Cluster: &Cluster{Membership: gossip.Start, MaxPerNode: 10}}).filled()
	x := &cluster{c: &Coordinator{opts: o}}
	l := &link{x: x}
	x.streams.up = map[*link]bool{l: true}
	for _, tt := range []struct {
		since time.Duration // in RenewEvery
		used  int64
		most  int
		due   bool
	}{
		{1, 4, 10, false}, {1, 5, 10, true}, {0, 5, 10, false}, {3, 0, 10, false}, {4, 0, 10, true}, {1, 1 << 30, -1, false}, {4, 0, -1, true},
	} {
		l.used.Store(tt.used)
		x.c.opts.Cluster.MaxPerNode = tt.most
		if due := x.countDue(tt.since * o.RenewEvery); due != tt.due {
			t.Errorf("%d used of %d, counted %d periods ago: due is %t", tt.used, tt.most, tt.since, due)
		}
	}
}
