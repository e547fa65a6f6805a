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

// A machine that was suspended has lost the time of what it announces: the wall clock has gone on.
func TestOffer_ByBothClocks(t *testing.T) {
	l := &link{x: &cluster{}}
	l.x.heard.announces.Store(int64(time.Hour))
	now := time.Now()
	l.beat.heard, l.beat.heardAt = 1, now
	for _, x := range []struct {
		deadline time.Time
		left     uint32
	}{
		{now.Add(9 * time.Second), 9000},
		{earlierByWall(now.Add(9*time.Second), 8), 1000},
		{earlierByWall(now.Add(9*time.Second), 10), 0},
		{earlierByWall(now.Add(9*time.Second), -8), 9000},
	} {
		if _, left := l.Offer(x.deadline); left != x.left {
			t.Errorf("%d ms, want %d", left, x.left)
		}
	}
}
