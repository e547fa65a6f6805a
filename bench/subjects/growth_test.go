package subjects

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/report"
)

func growthIsDrawn(t *testing.T, _ *Run, r report.Result) {
	for _, f := range r.Figures {
		if f.Lines == nil || len(f.Lines.Series) < 2 {
			t.Fatalf("%+v", f.Head())
		}
		for _, s := range f.Lines.Series {
			if len(s.Points) == 0 || slices.ContainsFunc(s.Points, func(p chart.Point) bool { return p.X <= 0 && f.Lines.Name != "growth-traffic" }) {
				t.Errorf("%s: %s: %v", f.Lines.Name, s.Name, s.Points)
			}
		}
	}
}

// A cost that grows with the number more than its floor does is noticed.
func TestGrowthIsSeen(t *testing.T) {
	floor := curve{1: {10}, 1000: {20}, 1_000_000: {50}}
	flat := curve{1: {100}, 1000: {100}, 1_000_000: {600}} // by as much as the floor, and a fifth
	steep := curve{1: {100}, 1000: {100}, 1_000_000: {1100}}
	for _, test := range []struct {
		c     curve
		trips float64
		holds bool
	}{{flat, 2, true}, {steep, 20, false}} {
		total := growthTotal{
			sizes: growthSizes{Keys: 1_000_000, Processes: 8, Window: 5 * time.Second},
			curves: map[string]curve{
				growthKeys: test.c, growthMutexes: floor, growthHeld: test.c, growthHeldMutexes: floor, growthWaiters: test.c, growthToken: floor,
				growthRows: test.c, growthSets: floor, growthBytes: {1000: {500}}, growthIdle: {1000: {0}},
				growthShared: {8: {10}}, growthSharedRival: {8: {5}}, growthOnce: {8: {5}}, growthOnceRival: {8: {5}},
			},
			rate:     []traffic{{locks: 10, trips: 1.75}, {locks: 100, trips: test.trips}},
			overKeys: []traffic{{trips: 1.75}, {trips: test.trips}},
		}
		r := total.result()
		for _, text := range []string{
			"pair, keys: rise from 1 to 1,000,000", "held meanwhile: rise", "goroutines: rise", "Lock at Redis", "at any rate", "over 1 to",
			"rate less the least", "keys less the least",
		} {
			if c := named(t, r, text); c.Holds != test.holds {
				t.Errorf("%s: %v of %v", c.Text, c.Got, c.Limit)
			}
		}
	}
}

func TestCurve(t *testing.T) {
	c := curve{100: {100, 300}, 1: {1, 3}, 10: {10, 30}}
	if c.last() != 100 {
		t.Errorf("%d", c.last())
	}
	if got := c.line("x", chart.Ours).Points; !slices.Equal(got, []chart.Point{{X: 1, Y: 2, Least: 1, Most: 3}, {X: 10, Y: 20, Least: 10, Most: 30}, {X: 100, Y: 200, Least: 100, Most: 300}}) {
		t.Errorf("%v", got)
	}
	if got := c.rows("x"); len(got) != 3 || strings.Join(got[1], "|") != "|10|20|10..30|10" {
		t.Errorf("%q", got)
	}
	if got := upTo(1024, 4); !slices.Equal(got, []int{1, 4, 16, 64, 256, 1024}) {
		t.Errorf("%v", got)
	}
	if got := upTo(6, 2); !slices.Equal(got, []int{1, 2, 4, 6}) {
		t.Errorf("%v", got)
	}
}
