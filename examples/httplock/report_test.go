package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func testOutcome(r rung, confirmed, commands int64, seen findings) outcome {
	o := outcome{
		rung:     r,
		tally:    tally{confirmed: confirmed},
		findings: seen,
		commands: commands,
		elapsed:  2 * time.Second,
	}
	for i := range 100 {
		o.tally.latencies = append(o.tally.latencies, time.Duration(i)*10*time.Microsecond)
	}
	o.tally.latencies = append(o.tally.latencies, 1500*time.Millisecond)
	return o
}

var testRungs = map[string]rung{
	"none":   {title: "no lock"},
	"plain":  {title: "50 % lock", locked: true},
	"fenced": {title: "Serialize", locked: true, fenced: true},
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	failing := testOutcome(testRungs["plain"], 100, 12345, findings{writes: 100, items: 100})
	failing.tally.failed, failing.tally.failure = 1234, "423 Locked: locked"
	writeTable(&out, []outcome{
		testOutcome(testRungs["none"], 4000, 0, findings{writes: 4000, items: 1000, broken: 2500, overlaps: 3500}),
		failing,
		testOutcome(testRungs["fenced"], 20_000, 200, findings{writes: 20_000, items: 20_000}),
		{rung: testRungs["fenced"]},
	})
	want := `
lock       requests/s     p50     p99      max   lost  overlapped  late tokens  Redis/request  failed
no lock         2,000  500 µs  990 µs  1.50 s   3,000       3,500            -           0.00       0
50 % lock          50  500 µs  990 µs  1.50 s       0           0            -         123.45   1,234
Serialize      10,000  500 µs  990 µs  1.50 s       0           0            0           0.01       0
Serialize           0    0 µs    0 µs     0 µs      0           0            0           0.00       0
50 % lock: 1,234 requests failed, one with: 423 Locked: locked
`
	got, legend, _ := strings.Cut(out.String(), "\n\n")
	if got != strings.Trim(want, "\n") {
		t.Errorf("got\n%s\nwant%s", got, want)
	}
	for _, column := range []string{"requests/s", "p50, p99, max", "lost", "overlapped", "late tokens", "Redis/request"} {
		if !strings.Contains("\n"+legend, "\n"+column) {
			t.Errorf("the legend does not explain %s:\n%s", column, legend)
		}
	}
}

func TestVerdict(t *testing.T) {
	good := testOutcome(testRungs["fenced"], 20, 0, findings{writes: 20, items: 20})
	careless := testOutcome(testRungs["none"], 20, 0, findings{writes: 20, items: 5, broken: 9, overlaps: 8})
	interrupted := testOutcome(testRungs["plain"], 20, 0, findings{writes: 21, items: 21}) // its client never knew
	interrupted.tally.failed = 1
	if err := verdict([]outcome{good, careless, interrupted}); err != nil {
		t.Errorf("%v", err)
	}
	for _, test := range []struct {
		want  string
		spoil func(*outcome)
	}{
		{"3 updates were lost, 0 writes", func(o *outcome) { o.findings.items -= 3 }},
		{"0 updates were lost, 1 writes did not go on", func(o *outcome) { o.findings.broken = 1 }},
		{"2 requests overlapped", func(o *outcome) { o.findings.overlaps = 2 }},
		{"4 fencing tokens were not above", func(o *outcome) { o.findings.late = 4 }},
		{"20 updates were confirmed, but only 19 stored", func(o *outcome) { o.findings.writes, o.findings.items = 19, 19 }},
		{"no request was answered with success; one failed with: 100 % broken", func(o *outcome) {
			o.tally.confirmed, o.tally.failed, o.tally.failure = 0, 5, "100 % broken"
		}},
	} {
		bad := testOutcome(testRungs["plain"], 20, 0, findings{writes: 20, items: 20})
		test.spoil(&bad)
		err := verdict([]outcome{good, bad})
		if err == nil || !strings.HasPrefix(err.Error(), "50 % lock: "+test.want) {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
	careless.tally.confirmed = 0
	if err := verdict([]outcome{careless}); err == nil {
		t.Error("a rung without a lock that answered nothing is no failure")
	}
}

func TestSummary(t *testing.T) {
	none := testOutcome(testRungs["none"], 20, 0, findings{writes: 1020, items: 5})
	plain, fenced := outcome{rung: testRungs["plain"]}, outcome{rung: testRungs["fenced"]}
	for _, test := range []struct {
		outcomes []outcome
		want     string
	}{
		{[]outcome{none, plain, fenced},
			"Without a lock 1,015 of 1,020 updates were lost. With one none was, and every fencing token was above the one before it."},
		{[]outcome{plain}, "With one none was."},
		{[]outcome{none}, "Without a lock 1,015 of 1,020 updates were lost."},
	} {
		if got := summary(test.outcomes); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, "[1/3] lock", 3*time.Second)
	for i := range int64(16) { // every 200 ms
		p.show(time.Duration(i)*200*time.Millisecond, i*800, i/10, findings{writes: i * 100, items: i * 50})
	}
	p.end()
	want := `[1/3] lock: 1.0 of 3s, 4,000 requests, 4,000/s, 0 failed, 250 updates lost
[1/3] lock: 2.0 of 3s, 8,000 requests, 4,000/s, 1 failed, 500 updates lost
[1/3] lock: 3.0 of 3s, 12,000 requests, 4,000/s, 1 failed, 750 updates lost
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}

	out.Reset()
	p = newProgress(&out, "lock", 3*time.Second)
	p.terminal = true
	p.show(200*time.Millisecond, 0, 0, findings{})
	p.end()
	if want := "\rlock: 0.2 of 3s, 0 requests, 0/s, 0 failed, 0 updates lost\x1b[K\r\x1b[K"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
