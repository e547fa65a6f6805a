package report

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/histogram"
)

// tallyOf returns the tally of rounds of a second.
func tallyOf(waits *histogram.Histogram, sections ...int64) *stats.Tally {
	t := new(stats.Tally)
	for _, n := range sections {
		t.Add(stats.NewRound(time.Second, 0, []stats.Effort{{Sections: n}}, waits))
	}
	t.Waits = *waits
	return t
}

// sample returns the record of two subjects: one with all fields, and one with those that all have.
func sample() *Record {
	r := &Record{Format: RecordFormat, Date: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Commit: "c0ffee", Command: "go run ./bench <all>"}
	waits := new(histogram.Histogram)
	for i := range 5000 {
		waits.Record(time.Duration(i) * time.Microsecond)
	}
	x := Result{
		Title: "FIRST: everything", Table: [][]string{{"", "µs"}, {"<b>", "1"}}, Notes: []string{"a note"},
		Claims: []Claim{AtMost(2, 1, "fast"), AtLeast(2, 1, "more"), AtMost(2, math.NaN(), "not measured")},
		Rungs: []chart.Bar{
			Bar("slow", chart.Rival, []float64{300}), Bar("quick", chart.Ours, []float64{3, 5}), Bar("quick", chart.Ours, []float64{77}),
		},
	}
	x.Contest("first", "some", []Contestant{
		{"Holdfast", chart.Ours, tallyOf(waits, 10, 12)}, {"other", chart.Rival, tallyOf(new(histogram.Histogram), 1, 0)},
		{"third", chart.Rival, tallyOf(waits, 2, 3)},
	})
	r.Add("first", x)
	r.Add("second", Result{Title: "SECOND", Table: [][]string{{"a"}}, Claims: []Claim{AtMost(1, 1, "it holds")}})
	return r
}

// A record that was written and read gives the same charts, and the same report on the terminal.
func TestRecordIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	r, o := sample(), Outputs{JSON: filepath.Join(dir, "r.json"), SVG: filepath.Join(dir, "first")}
	if err := o.Write(r); err != nil {
		t.Fatal(err)
	}
	second := filepath.Join(dir, "second")
	var stdout strings.Builder
	rec, err := Again(o.JSON, Outputs{SVG: second}, &stdout)
	if err != nil {
		t.Fatal(err)
	}
	if code := Verdict(rec, false, &stdout); code != 1 {
		t.Errorf("exit status %d", code)
	}
	for _, want := range []string{"FIRST: everything", "<b>", "more", "not measured", "DOES NOT HOLD", "Does not hold:\n  first: more\n  first: not measured\n"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, stdout.String())
		}
	}
	for _, name := range []string{"ladder.svg", "first-rates.svg"} {
		a, err := os.ReadFile(filepath.Join(o.SVG, name))
		if err != nil || !strings.HasPrefix(string(a), "<svg ") {
			t.Errorf("%s: %v", name, err)
		}
		if b, err := os.ReadFile(filepath.Join(second, name)); err != nil || string(a) != string(b) {
			t.Errorf("%s: the charts differ, %v", name, err)
		}
		if text := string(a); name == "ladder.svg" && (strings.Count(text, ">quick<") != 1 || strings.Index(text, ">quick<") > strings.Index(text, ">slow<")) {
			t.Error("the ladder is not in order, or has a rung twice")
		}
	}
	some := filepath.Join(dir, "some")
	if rec, err = Again(o.JSON, Outputs{SVG: some, Charts: "first-rates"}, &stdout); err != nil || Verdict(rec, true, &stdout) != 0 {
		t.Error(err)
	}
	if files, err := os.ReadDir(some); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
	if _, err := Again(o.JSON, Outputs{SVG: some, Charts: "nothing"}, &stdout); err == nil ||
		!strings.Contains(err.Error(), `no chart "nothing", only ladder,first-rates`) {
		t.Error(err)
	}
}

func TestRecordThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"no.json": "{", "old.json": `{"format": 99}`} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadRecord(file); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRecordsArePutTogether(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, change func(*Record)) string {
		r := sample()
		change(r)
		file := filepath.Join(dir, name)
		if err := r.write(file); err != nil {
			t.Fatal(err)
		}
		return file
	}
	first := write("a.json", func(*Record) {})
	other := write("b.json", func(r *Record) { r.Subjects, r.Quick = r.Subjects[:1], true; r.Subjects[0].Name = "third" })
	r, err := readRecords([]string{first, other})
	if err != nil || len(r.Subjects) != 3 || r.Subjects[2].Name != "third" || !r.Quick || !strings.Contains(r.Command, "; ") {
		t.Errorf("%+v, %v", r, err)
	}
	for text, change := range map[string]func(*Record){
		"different":       func(r *Record) { r.Commit = "another" },
		"measured before": func(*Record) {},
	} {
		if _, err := readRecords([]string{first, write("c.json", change)}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A round sums up all processes, and each figure is the median of the rounds.
func TestMeasured(t *testing.T) {
	var waits histogram.Histogram
	waits.Record(time.Millisecond)
	play := func(server time.Duration, rounds ...[2]stats.Effort) *stats.Tally {
		x := new(stats.Tally)
		for _, r := range rounds {
			x.Add(stats.NewRound(2*time.Second, server, r[:], &waits))
		}
		return x
	}
	floor := play(0, [2]stats.Effort{{Sections: 500}, {Sections: 500}}, [2]stats.Effort{{Sections: 250}, {Sections: 250}})
	floor.Untold = []string{stats.MeasureCommands}
	ours := play(time.Second,
		[2]stats.Effort{{Sections: 60, Commands: 1, Sent: 60, Received: 40, Allocs: 200, CPU: time.Millisecond}, {Sections: 40, CPU: time.Millisecond}},
		[2]stats.Effort{{Sections: 25}, {Sections: 25}})
	quick := play(0, [2]stats.Effort{{Sections: 20, Commands: 80}, {Sections: 20}}, [2]stats.Effort{{Sections: 10, Commands: 10}, {Sections: 0}})
	sparing := play(0, [2]stats.Effort{{Sections: 10, Commands: 10}, {}}, [2]stats.Effort{{Sections: 1, Commands: 1}, {}})
	var r Result
	r.Compare([]Contestant{{"ours", chart.Ours, ours}, {"quick", chart.Rival, quick}, {"sparing", chart.Rival, sparing}, {"floor", chart.Floor, floor}})
	of := func(who int, name string) measureValue {
		for _, v := range r.Measured[who].Measures {
			if v.Name == name {
				return v
			}
		}
		t.Fatalf("no %s", name)
		return measureValue{}
	}
	for _, test := range []struct {
		who                 int
		name                string
		median, least, most float64
		best                string
		toBest, toFloor     float64 // NaN: there is none
	}{
		{0, "operations per second", 37.5, 25, 50, "quick", 3.75, 0.1},
		{1, "operations per second", 12.5, 5, 20, "quick", 1, 0.03},
		{0, stats.MeasureCommands, 0.005, 0, 0.01, "sparing", 0.005, math.NaN()},
		{3, stats.MeasureCommands, math.NaN(), math.NaN(), math.NaN(), "", math.NaN(), math.NaN()},
		{0, stats.MeasureBytes, 0.5, 0, 1, "", math.NaN(), math.NaN()}, // of the best 0: no ratio
		{0, "CPU s per million, callers", 10, 0, 20, "", math.NaN(), math.NaN()},
		{0, stats.MeasureServer, 15_000, 10_000, 20_000, "", math.NaN(), math.NaN()},
		{0, "allocations per operation", 1, 0, 2, "", math.NaN(), math.NaN()},
		{0, "fairness (Jain, processes)", (1/1.04 + 1) / 2, 1 / 1.04, 1, "quick", (1/1.04 + 2) / 2, (1/1.04 + 1) / 2},
		{0, "max", 1e6, 1e6, 1e6, "quick", 1, 1},
	} {
		v := of(test.who, test.name)
		for _, pair := range [][2]float64{
			{float64(v.Median), test.median}, {float64(v.Least), test.least}, {float64(v.Most), test.most},
			{float64(v.ToBest), test.toBest}, {float64(v.ToFloor), test.toFloor},
		} {
			if math.Abs(pair[0]-pair[1]) > 1e-9*math.Abs(pair[1]) || math.IsNaN(pair[0]) != math.IsNaN(pair[1]) {
				t.Errorf("%d, %s: %+v, got %v, want %v", test.who, test.name, test, pair[0], pair[1])
			}
		}
		if v.Best != test.best {
			t.Errorf("%d, %s: the best is %q", test.who, test.name, v.Best)
		}
	}
	table := spreads(r.Measured)
	for _, row := range table {
		if len(row) != 1+len(stats.Metrics) && row[0] != "" {
			t.Errorf("%q", row)
		}
	}
	if row := strings.Join(table[1][:2], "|"); row != "ours|37.5" {
		t.Errorf("%q", row)
	}
	if row := strings.Join(table[2][:2], "|"); row != "  least..most|25..50" {
		t.Errorf("%q", row)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestClaims(t *testing.T) {
	for _, test := range []struct {
		claim Claim
		holds bool
	}{
		{AtMost(2, 2, ""), true},
		{AtMost(2, 2.01, ""), false},
		{AtLeast(2, 2, ""), true},
		{AtLeast(2, 1.99, ""), false},
		{AtMost(2, math.NaN(), ""), false},
		{AtLeast(2, math.NaN(), ""), false},
		{AtLeast(2, stats.Ratio(1, 0), ""), false},
	} {
		if test.claim.Holds != test.holds {
			t.Errorf("%+v", test)
		}
	}
}

func TestResultIsPrinted(t *testing.T) {
	var out strings.Builder
	Result{
		Title:  "T",
		Table:  [][]string{{"", "µs"}, {"first", "1"}, {"2nd", "1,000"}},
		Notes:  []string{"a note"},
		Claims: []Claim{AtMost(1.3, 1.5, "slow"), AtLeast(20, 2000, "fast")},
	}.Write(&out)
	want := `
T

          µs
first      1
2nd    1,000

a note

must hold  measured         limit
slow           1.50  at most 1.30  DOES NOT HOLD
fast          2,000   at least 20          holds
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
