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
		if len(q.n) > 1 || q.n["other"] == nil { // the last one
			t.Errorf("left behind: %v", q.n)
		}
	}
	if q.Enter("k", -1); q.n["k"] != nil {
		t.Error("counted without a limit")
	}
	q.Leave("k")
	q.Begin("k")
	q.End("k")
}

// The key that is kept without requests is counted as one that is new.
func TestCounter_TheLastKeyComesAgain(t *testing.T) {
	var q Counter
	for _, key := range []string{"a", "a", "b", "a", "b", "b"} {
		for i, want := range []bool{true, true, false} {
			if got := q.Enter(key, 1); got != want {
				t.Errorf("number %d of %s: %v", i, key, got)
			}
			if i == 0 {
				q.Begin(key)
			}
		}
		q.Leave(key)
		q.Leave("other") // not counted
		if got := *q.n[key]; got != (present{key, 0, 1}) {
			t.Errorf("%+v", got)
		}
		q.End(key)
		q.End(key) // once more than it may: not counted
		if len(q.n) > 1 || *q.n[key] != (present{key: key}) {
			t.Errorf("left behind: %v", q.n)
		}
	}
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
