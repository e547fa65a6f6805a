package sim

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/virtual"
)

// A wall clock that steps alone moves no time that the monotonic clock measures.
func TestApart(t *testing.T) {
	virtual.Test(t, func(*testing.T) {
		now := time.Now().Add(time.Minute + 123)
		right := apart(now, 0)
		for _, by := range []time.Duration{0, time.Millisecond, -time.Millisecond, 999_999_999, -time.Second, anyTime, -anyTime} {
			x := apart(now, by)
			if wall := time.Duration(x.UnixNano() - now.UnixNano()); wall != by || x.Sub(right) != 0 {
				t.Errorf("%v: the wall clock has moved by %v, the monotonic one by %v", by, wall, x.Sub(right))
			}
			later := x.Add(time.Hour)
			if wall := time.Duration(later.UnixNano() - now.UnixNano()); wall != by+time.Hour || later.Sub(right) != time.Hour {
				t.Errorf("%v: an hour later the wall clock has moved by %v, the monotonic one by %v", by, wall, later.Sub(right))
			}
			if past := lease.Past(right.Add(time.Second), x); past != (by >= time.Second) {
				t.Errorf("%v: a deadline in a second has passed: %v", by, past)
			}
		}
	})
}
