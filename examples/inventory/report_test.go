package main

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"
)

func testOutcome(title string, commands, oversold int64, processes ...int64) outcome {
	o := outcome{
		rung:      rung{title: title},
		tally:     tally{Sold: []int64{sum(processes), 0}},
		processes: processes,
		stock:     1_000_000,
		oversold:  oversold,
		commands:  commands,
		elapsed:   2 * time.Second,
	}
	for i := range 100 {
		o.tally.Waits.Record(time.Duration(i+1) * 10 * time.Microsecond)
	}
	o.tally.Waits.Record(1500 * time.Millisecond)
	return o
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	soldOut := testOutcome("with hand-over", 123, 7, 10_000, 10_000)
	soldOut.stock = 10_000
	writeTable(&out, []outcome{
		testOutcome("SET NX PX", 8000, 0, 1000, 3000),
		testOutcome("idle", 12, 0, 0, 0),
		soldOut,
	})
	want := `
lock              sold  oversold  sales/s  ratio  wait p50      p99      max  Redis/sale   Jain  smallest
SET NX PX        4,000         0    2,000   1.00    509 µs  1.00 ms  1.50 s         2.00  0.800      50 %
idle                 0         0        0   0.00    509 µs  1.00 ms  1.50 s         0.00  0.000       0 %
with hand-over  20,000         7   10,000   5.00    509 µs  1.00 ms  1.50 s         0.01  1.000     100 %
with hand-over: sold out after 2.0 s
`
	got, legend, _ := strings.Cut(out.String(), "\n\n")
	if got != strings.Trim(want, "\n") {
		t.Errorf("got\n%s\nwant%s", got, want)
	}
	for _, column := range []string{"oversold", "ratio", "wait", "Redis/sale", "Jain", "smallest"} {
		if !strings.Contains(legend, column) {
			t.Errorf("the legend does not explain %s:\n%s", column, legend)
		}
	}
}

func TestVerdict(t *testing.T) {
	good := testOutcome("lock", 0, 0, 10, 10)
	if err := verdict([]outcome{good, good}); err != nil {
		t.Errorf("%v", err)
	}
	for _, test := range []struct {
		want  string
		spoil func(*outcome)
	}{
		{"3 units oversold", func(o *outcome) { o.oversold = 3 }},
		{"sold 20 of the 19 units of sku-1", func(o *outcome) { o.stock = 19 }},
		{"2 fencing tokens were not above", func(o *outcome) { o.tally.Rejected = 2 }},
		{"1 calls failed, one with: 100 % broken", func(o *outcome) { o.tally.fail(1, "100 % broken") }},
		{"nothing was sold", func(o *outcome) { o.tally.Sold = []int64{0, 0} }},
	} {
		bad := testOutcome("50 % lock", 0, 0, 10, 10)
		test.spoil(&bad)
		err := verdict([]outcome{good, bad})
		if err == nil || !strings.HasPrefix(err.Error(), "50 % lock: "+test.want) {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
}

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, "[1/3] lock", 3*time.Second)
	for i := range 16 { // every 200 ms
		p.show(time.Duration(i)*200*time.Millisecond, []int64{int64(i) * 600, int64(i) * 200})
	}
	p.end()
	want := `[1/3] lock: 1.0 of 3s, 4,000 sold, 4,000/s, smallest share 50 %
[1/3] lock: 2.0 of 3s, 8,000 sold, 4,000/s, smallest share 50 %
[1/3] lock: 3.0 of 3s, 12,000 sold, 4,000/s, smallest share 50 %
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}

	out.Reset()
	p = newProgress(&out, "lock", 3*time.Second)
	p.terminal = true
	p.show(200*time.Millisecond, []int64{0, 0})
	p.end()
	if want := "\rlock: 0.2 of 3s, 0 sold, 0/s, smallest share 0 %\x1b[K\r\x1b[K"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestFairness(t *testing.T) {
	for _, test := range []struct {
		parts          []int64
		jain, smallest float64
	}{
		{[]int64{5}, 1, 1},
		{[]int64{5, 5, 5, 5}, 1, 1},
		{[]int64{20, 0, 0, 0}, 0.25, 0},
		{[]int64{0, 0}, 0, 0},
		{[]int64{3, 1}, 0.8, 0.5},
	} {
		if got := jain(test.parts); math.Abs(got-test.jain) > 1e-9 {
			t.Errorf("jain %v: %g", test.parts, got)
		}
		if got := smallestShare(test.parts); math.Abs(got-test.smallest) > 1e-9 {
			t.Errorf("smallest share of %v: %g", test.parts, got)
		}
	}
}
