package report

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/histogram"
)

// tallyOf is what was done in rounds of a second.
func tallyOf(waits *histogram.Histogram, sections ...int64) *stats.Tally {
	t := new(stats.Tally)
	for _, n := range sections {
		t.Add(stats.NewRound(time.Second, 0, []stats.Effort{{Sections: n}}, waits))
	}
	t.Waits = *waits
	return t
}

// sample is what two subjects found: one with everything that there is, and one with what all have.
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
		Versus: []chart.Ratio{Against("won", []float64{4, 5}), Against("lost", []float64{0.5})},
	}
	x.Contest("first", "some", []Contestant{
		{"Holdfast", chart.Ours, tallyOf(waits, 10, 12)}, {"other", chart.Rival, tallyOf(new(histogram.Histogram), 1, 0)},
		{"third", chart.Rival, tallyOf(waits, 2, 3)},
	})
	r.Add("first", x, time.Second)
	r.Add("second", Result{Title: "SECOND", Table: [][]string{{"a"}}, Claims: []Claim{AtMost(1, 1, "it holds")}}, time.Second)
	return r
}

// A record that was written and read gives the same page, and the same report on the terminal.
func TestRecordIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	r, o := sample(), Outputs{JSON: filepath.Join(dir, "r.json"), HTML: filepath.Join(dir, "a.html"), SVG: filepath.Join(dir, "svg")}
	if err := o.Write(r); err != nil {
		t.Fatal(err)
	}
	second := filepath.Join(dir, "b.html")
	var stdout strings.Builder
	rec, err := Again(o.JSON, Outputs{HTML: second}, &stdout)
	if err != nil {
		t.Fatal(err)
	}
	if code := Verdict(rec, false, &stdout); code != 1 {
		t.Errorf("exit status %d", code)
	}
	a, err := os.ReadFile(o.HTML)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(second)
	if err != nil || string(a) != string(b) {
		t.Errorf("the pages differ, %v", err)
	}
	for _, want := range []string{"FIRST: everything", "<b>", "more", "not measured", "DOES NOT HOLD", "Does not hold:\n  first: more\n  first: not measured\n"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, stdout.String())
		}
	}
	some := filepath.Join(dir, "some")
	if rec, err = Again(o.JSON, Outputs{SVG: some, Charts: "versus,first-waits"}, &stdout); err != nil || Verdict(rec, true, &stdout) != 0 {
		t.Error(err)
	}
	if files, err := os.ReadDir(some); err != nil || len(files) != 2 {
		t.Errorf("%v, %v", files, err)
	}
	if _, err := Again(o.JSON, Outputs{SVG: some, Charts: "nothing"}, &stdout); err == nil ||
		!strings.Contains(err.Error(), `no chart "nothing", only ladder,versus,first-rates,first-waits`) {
		t.Error(err)
	}
	for _, name := range []string{"ladder", "versus", "first-rates", "first-waits"} {
		if text, err := os.ReadFile(filepath.Join(o.SVG, name+".svg")); err != nil || !strings.HasPrefix(string(text), "<svg ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.html")
	if err := writePage(file, sample()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, want := range []string{
		`<section id="first">`, `<section id="second">`, `<section id="ladder">`, "&lt;b&gt;", "go run ./bench &lt;all&gt;", "c0ffee",
		"All figures", "× best", "11<small>10..12<br>4.50 × best", "1 of 3 claims hold", "1 of 1 claims hold", "lost: 2 times worse", "<b>4</b><span>claims tested",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
	// It needs nothing from anywhere, and runs nothing.
	for _, not := range []string{"<script", "<link", "<img", "@import", "url(", "src=", "https://", "ZgotmplZ", "NaN"} {
		if strings.Contains(page, not) {
			t.Errorf("%q is in the page", not)
		}
	}
	if n := strings.Count(strings.ReplaceAll(page, `xmlns="http://www.w3.org/2000/svg"`, ""), "http://"); n > 0 {
		t.Errorf("%d references", n)
	}
	if strings.Count(page, ">quick<") != 1 || strings.Index(page, ">quick<") > strings.Index(page, ">slow<") {
		t.Error("the ladder is not in order, or has a rung twice")
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
