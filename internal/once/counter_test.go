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
		for range 3 {
			q.Leave("k")
		}
		q.Leave("other")
		if len(q.n) > 0 {
			t.Errorf("left behind: %v", q.n)
		}
	}
	if q.Enter("k", -1); len(q.n) > 0 {
		t.Error("counted without a limit")
	}
	q.Leave("k")
}
