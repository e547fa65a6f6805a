package redisarbiter_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// A process that starts asks a formatted namespace three times: for the server's INFO, for the
// scripts' names, and for mark and secret. Each further time costs a slow server's whole round
// trip.
func TestRedis_AttachIsThreeRoundTrips(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settings := fallback.Settings{Namespace: "ns", Partitions: 300, Grace: time.Hour}
	attachTo(t, s.Client(t), cold, settings)

	c := s.Client(t)
	var count trips
	c.AddHook(&count)
	for range 2 { // once the client has connections for single calls and for several
		attachTo(t, c, &redisarbiter.Options{ColdStart: true, Background: c}, settings)
		count.n.Swap(0)
	}
	attachTo(t, c, &redisarbiter.Options{ColdStart: true, Background: c}, settings)
	if n := count.n.Load(); n > 3 {
		t.Errorf("Attach: %d round trips, want 3 at most", n)
	}
}
