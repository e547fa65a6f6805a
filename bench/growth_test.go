package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/bench/chart"
)

func TestGrowth(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	r, err := measureGrowth(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	check(t, r)
	for _, text := range []string{"keys: the cost", "held meanwhile", "goroutines: the cost", "Lock at Redis", "bytes per key held", "sections per second of 2"} {
		if c := named(t, r, text); !(c.got > 0) {
			t.Errorf("%s: %v", c.text, c.got)
		}
	}
	for _, f := range r.figures {
		if f.Lines == nil || len(f.Lines.Series) < 2 {
			t.Fatalf("%+v", f.head())
		}
		for _, s := range f.Lines.Series {
			if len(s.Points) == 0 || slices.ContainsFunc(s.Points, func(p chart.Point) bool { return p.X <= 0 && f.Lines.Name != "growth-traffic" }) {
				t.Errorf("%s: %s: %v", f.Lines.Name, s.Name, s.Points)
			}
		}
	}
}

// A cost that grows with the number is noticed.
func TestGrowthIsSeen(t *testing.T) {
	flat := curve{1: {100}, 16: {100}, 1000: {100}, 10_000: {100}, 1_000_000: {110}}
	steep := curve{1: {100}, 16: {100}, 1000: {100}, 10_000: {1000}, 1_000_000: {100_000}}
	for _, test := range []struct {
		c     curve
		trips float64
		holds bool
	}{{flat, 2, true}, {steep, 20, false}} {
		rivals := curve{8: {5}}
		total := growthTotal{
			sizes: growthSizes{keys: 1_000_000, processes: 8, window: 5 * time.Second},
			keys:  test.c, mutexes: test.c, held: test.c, waiters: test.c, token: test.c, rows: test.c, sets: test.c, rowTimes: test.c,
			bytes: curve{1000: {500}}, idle: curve{1000: {0}},
			shared: curve{8: {10}}, sharedRival: rivals, once: rivals, onceRival: rivals,
			rate: []traffic{{locks: 10, trips: test.trips}}, overKeys: []traffic{{keys: 1, trips: test.trips}},
		}
		r := total.result()
		for _, text := range []string{
			"1,000,000, times that of 1,000", "1,000,000, times that of 10,000", "held meanwhile", "goroutines: the cost", "Lock at Redis", "at any rate", "over 1 to",
		} {
			if c := named(t, r, text); c.holds() != test.holds {
				t.Errorf("%s: %v of %v", c.text, c.got, c.limit)
			}
		}
	}
}

func TestCurve(t *testing.T) {
	c := curve{}
	for _, x := range []int{100, 1, 10} {
		c.add(x, float64(x))
		c.add(x, float64(3*x))
	}
	if c.nearest(50) != 10 || c.nearest(0) != 1 || c.last() != 100 {
		t.Errorf("%d %d %d", c.nearest(50), c.nearest(0), c.last())
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
