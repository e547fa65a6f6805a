package coord

import (
	"testing"
	"time"
)

// TestGuarded_AWakeDelaysNoPing: a session that is woken between two pings looks again when the next one is due, not a whole period later.
func TestGuarded_AWakeDelaysNoPing(t *testing.T) {
	g := &guarded{}
	g.times.Promise = looksPerPromise * time.Second
	now := time.Now()
	if !g.due(now) {
		t.Error("the first pings are not due")
	}
	for _, after := range []time.Duration{0, 400, 900} {
		at := now.Add(after * time.Millisecond)
		if g.due(at) {
			t.Errorf("the next pings are due after %v ms", int64(after))
		}
		if left, want := g.untilDue(at), (1000-after)*time.Millisecond; left != want {
			t.Errorf("after %v ms it looks again in %v, want %v", int64(after), left, want)
		}
	}
	if !g.due(now.Add(time.Second)) {
		t.Error("the next pings are not due after a period")
	}
}
