package once

import "testing"

func TestCounter_ForgetsIdleKeys(t *testing.T) {
	var q Counter
	for range 3 {
		for i, want := range []bool{true, true, true, false, false} {
			if got := q.Enter("k", 2); got != want {
				t.Errorf("number %d: %v", i, got)
			}
		}
		q.Enter("other", 0)
		q.Begin("other")
		for range 3 {
			q.Leave("k")
		}
		q.End("other")
		if len(q.n) > 0 {
			t.Errorf("left behind: %v", q.n)
		}
	}
	if q.Enter("k", -1); len(q.n) > 0 {
		t.Error("counted without a limit")
	}
	q.Leave("k")
	q.Begin("k")
	q.End("k")
}

// Requests that have begun are one together: all but one of them have given their lock back.
func TestCounter_ManyThatHaveBegun(t *testing.T) {
	var q Counter
	for i := range 3 {
		if !q.Enter("k", 1) {
			t.Errorf("number %d is sent away, behind one that runs", i)
		}
		q.Begin("k")
	}
	if !q.Enter("k", 1) || q.Enter("k", 1) {
		t.Error("behind one that runs not exactly one may wait")
	}
}
