package debug

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// What nodes tell of arbiters and of each other becomes a sentence, and none where all is well.
func TestJudge(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) []coord.CallFailure {
		return []coord.CallFailure{{Op: "lock", Time: now.Add(-d), Reason: "full", Error: "the server has reached maxmemory"}}
	}
	hot := coord.KeySummary{Key: "sku", Waiters: hotWaiters}
	for _, tt := range []struct {
		name, want string
		o          Overview
		r          coord.NodeReport
	}{
		{
			"all is well", "", Overview{},
			coord.NodeReport{Renewal: 200 * time.Millisecond, Failures: ago(time.Hour), Nodes: []coord.NodeInfo{{Name: "berta", Linked: true}}},
		},
		{
			"a slow arbiter", "Node anna: the arbiter is slow: a renewal of its session took 300ms.", Overview{},
			coord.NodeReport{Renewal: 300 * time.Millisecond},
		},
		{
			"calls that fail", "Node anna: calls of the arbiter fail: lock, the last one 2s ago: the server has reached maxmemory", Overview{},
			coord.NodeReport{Failures: ago(2 * time.Second)},
		},
		{
			"another key", "Node anna and node berta refuse each other: none of the shared keys", Overview{},
			coord.NodeReport{Nodes: []coord.NodeInfo{{Name: "berta", Refused: "none of the shared keys"}}},
		},
		{
			"a hot key", `Key "sku" is hot: 50 callers wait for it.`, Overview{Taken: []coord.KeySummary{hot}, Waited: []coord.KeySummary{hot}},
			coord.NodeReport{},
		},
		{"a key that is not", "", Overview{Taken: []coord.KeySummary{{Key: "sku", Waiters: hotWaiters - 1}}}, coord.NodeReport{}},
	} {
		tt.r.Clock = now
		tt.o.Time, tt.o.Nodes = now, []Node{{NodeInfo: coord.NodeInfo{Name: "anna"}, Report: &tt.r}}
		tt.o.judge(10 * time.Second)
		if got := strings.Join(tt.o.Problems, "\n"); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
