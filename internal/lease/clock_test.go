package lease

import (
	"math"
	"testing"
	"time"
)

// Left is the time that the clock leaves which says less, also where a time is too far for
// UnixNano, or has a wall clock only.
func TestLeft(t *testing.T) {
	now := time.Now()
	wall := now.Round(0) // without the monotonic clock
	for _, x := range []struct {
		name     string
		deadline time.Time
		want     time.Duration
	}{
		{"now", now, 0},
		{"in a second", now.Add(time.Second), time.Second},
		{"a second ago", now.Add(-time.Second), -time.Second},
		{"by the wall clock only", wall.Add(time.Second), time.Second},
		{"in an hour, and a minute ago by the wall clock", stepped(t, now.Add(time.Hour), -3660), -time.Minute},
		{"a minute ago, and in an hour by the wall clock", stepped(t, now.Add(-time.Minute), 3660), -time.Minute},
		{"by the wall clock only, an hour ago", wall.Add(-time.Hour), -time.Hour},
		{"never set", time.Time{}, math.MinInt64},
		{"in 99 years", now.Add(99 * 365 * 24 * time.Hour), 99 * 365 * 24 * time.Hour},
		{"in 250 years", wall.Add(250 * 365 * 24 * time.Hour), 250 * 365 * 24 * time.Hour},
		{"in a thousand years", now.AddDate(1000, 0, 0), math.MaxInt64},
		{"a thousand years ago", now.AddDate(-1000, 0, 0), math.MinInt64},
	} {
		if got := Left(x.deadline, now); got != x.want {
			t.Errorf("%s: %v, not %v", x.name, got, x.want)
		}
	}
}
