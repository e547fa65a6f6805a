package main

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/bench/chart"
)

// tallyOf is what was done in rounds of a second.
func tallyOf(waits *histogram, sections ...int64) *tally {
	t := new(tally)
	for _, n := range sections {
		t.add(newRound(time.Second, 0, []effort{{Sections: n}}, waits))
	}
	t.waits = *waits
	return t
}

// sample is what two subjects found: one with everything that there is, and one with what all have.
func sample() *record {
	r := &record{Format: recordFormat, Date: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Commit: "c0ffee", Command: "go run ./bench <all>"}
	waits := new(histogram)
	for i := range 5000 {
		waits.record(time.Duration(i) * time.Microsecond)
	}
	x := result{
		title: "FIRST: everything", table: [][]string{{"", "µs"}, {"<b>", "1"}}, notes: []string{"a note"},
		claims: []claim{atMost(2, 1, "fast"), atLeast(2, 1, "more"), atMost(2, math.NaN(), "not measured")},
		rungs: []chart.Bar{
			bar("slow", chart.Rival, []float64{300}), bar("quick", chart.Ours, []float64{3, 5}), bar("quick", chart.Ours, []float64{77}),
		},
		versus: []chart.Ratio{against("won", []float64{4, 5}), against("lost", []float64{0.5})},
	}
	x.contest("first", "some", []contestant{
		{"Holdfast", chart.Ours, tallyOf(waits, 10, 12)}, {"other", chart.Rival, tallyOf(new(histogram), 1, 0)},
		{"third", chart.Rival, tallyOf(waits, 2, 3)},
	})
	r.add("first", x, time.Second)
	r.add("second", result{title: "SECOND", table: [][]string{{"a"}}, claims: []claim{atMost(1, 1, "it holds")}}, time.Second)
	return r
}

// A record that was written and read gives the same page, and the same report on the terminal.
func TestRecordIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	r, o := sample(), outputs{json: filepath.Join(dir, "r.json"), html: filepath.Join(dir, "a.html"), svg: filepath.Join(dir, "svg")}
	if err := o.write(r); err != nil {
		t.Fatal(err)
	}
	second := filepath.Join(dir, "b.html")
	var stdout, stderr lockedBuffer
	if code := run(t.Context(), []string{"-from", o.json, "-html", second}, &stdout, &stderr); code != 1 || stderr.String() != "" {
		t.Errorf("exit status %d, stderr %q", code, stderr.String())
	}
	a, err := os.ReadFile(o.html)
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
	if code := run(t.Context(), []string{"-from", o.json, "-report", "-svg", some, "-charts", "versus,first-waits"}, &stdout, &stderr); code != 0 {
		t.Errorf("exit status %d, stderr %q", code, stderr.String())
	}
	if files, err := os.ReadDir(some); err != nil || len(files) != 2 {
		t.Errorf("%v, %v", files, err)
	}
	if code := run(t.Context(), []string{"-from", o.json, "-svg", some, "-charts", "nothing"}, &stdout, &stderr); code != 1 ||
		!strings.Contains(stderr.String(), `no chart "nothing", only ladder,versus,first-rates,first-waits`) {
		t.Errorf("exit status %d, stderr %q", code, stderr.String())
	}
	for _, name := range []string{"ladder", "versus", "first-rates", "first-waits"} {
		if text, err := os.ReadFile(filepath.Join(o.svg, name+".svg")); err != nil || !strings.HasPrefix(string(text), "<svg ") {
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
		if _, err := readRecord(file); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRecordsArePutTogether(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, change func(*record)) string {
		r := sample()
		change(r)
		file := filepath.Join(dir, name)
		if err := r.write(file); err != nil {
			t.Fatal(err)
		}
		return file
	}
	first := write("a.json", func(*record) {})
	other := write("b.json", func(r *record) { r.Subjects, r.Quick = r.Subjects[:1], true; r.Subjects[0].Name = "third" })
	r, err := readRecords([]string{first, other})
	if err != nil || len(r.Subjects) != 3 || r.Subjects[2].Name != "third" || !r.Quick || !strings.Contains(r.Command, "; ") {
		t.Errorf("%+v, %v", r, err)
	}
	for text, change := range map[string]func(*record){
		"different":       func(r *record) { r.Commit = "another" },
		"measured before": func(*record) {},
	} {
		if _, err := readRecords([]string{first, write("c.json", change)}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// What was measured before a subject failed is kept, and the others are measured.
func TestRecordOfAFailedRun(t *testing.T) {
	needRedis(t)
	saved := subjects
	defer func() { subjects = saved }()
	subjects = []subject{
		{"good", func(context.Context, *bench) (result, error) {
			return result{title: "GOOD", table: [][]string{{"a"}}}, nil
		}},
		{"bad", func(context.Context, *bench) (result, error) { return result{}, errors.New("it failed") }},
		{"late", func(context.Context, *bench) (result, error) {
			return result{title: "LATE", table: [][]string{{"a"}}}, nil
		}},
	}
	var stdout, stderr lockedBuffer
	file := filepath.Join(t.TempDir(), "r.json")
	code := measure(t.Context(), config{only: []string{"good", "bad", "late"}, outputs: outputs{json: file}}, &stdout, &stderr)
	if code != 1 || !strings.Contains(stderr.String(), "bad: it failed") {
		t.Errorf("exit status %d, stderr %q", code, stderr.String())
	}
	r, err := readRecord(file)
	if err != nil || len(r.Subjects) != 2 || r.Subjects[0].Name != "good" || r.Subjects[1].Name != "late" || r.Machine.Cores < 1 || r.Machine.Go == "" ||
		len(r.Machine.Servers) != 1 || r.Date.IsZero() {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestProgress(t *testing.T) {
	var out lockedBuffer
	p := startProgress(&out, 60)
	p.begin("hot", 1, 9)
	p.step("redsync with a name that is much too long for this terminal", 1, 2)
	p.step("redsync", 2, 4)
	p.clear()
	p.close()
	lines := strings.Split(out.String(), "\r\x1b[K")
	if len(lines) != 5 || lines[1] != "1/9 hot: under way" || !strings.HasPrefix(lines[3], "1/9 hot: redsync, 3/4, about 0s left") || lines[4] != "" {
		t.Errorf("%q", lines)
	}
	for _, l := range lines {
		if len(l) > 59 {
			t.Errorf("%q is too long", l)
		}
	}
	var nobody *progress
	nobody.begin("hot", 1, 9)
	nobody.step("redsync", 0, 1)
	nobody.clear()
	nobody.close()
	if newProgress(&out) != nil {
		t.Error("a buffer is no terminal")
	}
}
