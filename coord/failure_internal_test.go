package coord

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// A failure that was noted while the wall clock was an hour off has its true age in a report. One
// of a minute ago does not fail still.
func TestReport_AFailureBeforeTheClockStepped(t *testing.T) {
	for _, off := range []int64{-3600, 0, 3600} {
		c := &Coordinator{}
		now := time.Now()
		noted := earlierByWall(now.Add(-time.Minute), -off)
		c.tells.stats.failures[OpRenew].Store(&CallFailure{OpRenew.String(), noted, ReasonOther.String(), "cut"})
		text, err := json.Marshal(NodeReport{Clock: now, Failures: c.failures(now)})
		if err != nil {
			t.Fatal(err)
		}
		var r NodeReport
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		if age := r.Clock.Sub(r.Failures[0].Time); age != time.Minute || len(r.Failing()) > 0 {
			t.Errorf("the clock was off by %d s: a minute is %v, %+v", off, age, r.Failing())
		}
	}
}

// A report tells how many nodes its list leaves out.
func TestReport_NodesThatAreLeftOut(t *testing.T) {
	r := &NodeReport{Nodes: make([]NodeInfo, 120)}
	for _, want := range []int{100, 50, 25} {
		if want == mostNodes {
			r.keepNodes(mostNodes)
		} else {
			r = r.shorter()
		}
		if len(r.Nodes) != want || r.MoreNodes != 120-want {
			t.Errorf("%d nodes and %d more", len(r.Nodes), r.MoreNodes)
		}
	}
}

// A call that was cancelled, as when its session ends, says nothing about the arbiter: that it is
// silent, how fast it is, or that it answers.
func TestHealth_ACancelledCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(t.Context(), fallback.NewMemory(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range []Op{OpRenew, OpVerify, OpReclaim} {
			c.called(op, c.now(), nil)
			c.called(op, c.now().Add(-time.Hour), context.Canceled)
			if silent, slowest := c.remote.health.isSilent(), c.tells.stats.renewals.slowest(); silent || slowest >= time.Hour {
				t.Errorf("%v: silent %t, a renewal takes %v", op, silent, slowest)
			}
			c.called(op, c.now(), errNoAnswer)
			c.called(op, c.now(), context.Canceled)
			if !c.remote.health.isSilent() {
				t.Errorf("%v: a call that is not answered does not count", op)
			}
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Each operation has words for people, and an operation of another version has none.
func TestCallFailure_Doing(t *testing.T) {
	seen := make(map[string]bool)
	for op := range opCount {
		f := CallFailure{Op: op.String()}
		if text := f.Doing(); text == "" || seen[text] {
			t.Errorf("%v: %q", op, text)
		}
		seen[f.Doing()] = true
	}
	if got := (&CallFailure{Op: "of tomorrow"}).Doing(); got != "" {
		t.Error(got)
	}
}
