package lately_test

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/lately"
)

// A report's records tell of deaths and of the last loss of the session. One of a release before
// lacks the process.
func TestLately(t *testing.T) {
	t.Parallel()
	now := time.Now()
	r := &coord.NodeReport{Clock: now, Events: []coord.Event{
		{Time: now.Add(-time.Second), Text: "session begins session=s2"},
		{Time: now.Add(-2 * time.Second), Text: "session lost, and all locks with it session=s1 locks=3 error=coord: late"},
		{Time: now.Add(-3 * time.Second), Text: "a node was silent for too long, and its session was ended session=t1 node=berta/X host=vm:7"},
		{Time: now.Add(-4 * time.Second), Text: "session lost, and all locks with it session=s0 locks=3 error=coord: late"},
		{Time: now.Add(-5 * time.Second), Text: "a node was silent for too long, and its session was ended session=u1 node=clara/Y"},
		{Time: now.Add(-6 * time.Second), Text: "a node's process has ended, and its session was ended session=v1 node=dora/Z host=vm:8"},
	}}
	if ago, known := lately.LostSession(r); ago != 2*time.Second || !known {
		t.Errorf("%v, %v", ago, known)
	}
	want := []lately.Death{{"t1", "berta/X", "vm:7", 3 * time.Second, false}, {"u1", "clara/Y", "", 5 * time.Second, false}, {"v1", "dora/Z", "vm:8", 6 * time.Second, true}}
	if got := lately.Deaths(r); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if ago, known := lately.LostSession(&coord.NodeReport{Clock: now}); known || ago != 0 {
		t.Errorf("without records: %v, %v", ago, known)
	}
}
