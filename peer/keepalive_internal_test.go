package peer

import (
	"math"
	"testing"
	"time"
)

// The Keepalive that others claim ends no stream at once, and keeps none for ever.
func TestRhythm_Bounds(t *testing.T) {
	for _, c := range []struct{ send, hear time.Duration }{
		{10 * time.Millisecond, math.MaxInt64}, {0, math.MaxInt64}, {math.MaxInt64, math.MaxInt64}, {math.MinInt64, math.MinInt64}, {time.Second, 0},
	} {
		r := newRhythm(c.send, c.hear)
		if after := time.Duration(r.dead()) * r.tick(); after < 5*r.send/2 || after > 3*mostKeepalive || r.send < leastKeepalive {
			t.Errorf("%v, %v: dead after %d ticks of %v", c.send, c.hear, r.dead(), r.tick())
		}
	}
}
