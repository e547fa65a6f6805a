// Package report keeps and shows results: on the terminal, as a record in a file, as charts,
// and in README.
package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// Result is the result of a subject: a table, notes, and claims that must hold. The report shows
// these of any subject; the other fields, which may be empty, are drawn besides.
type Result struct {
	Title  string     `json:"title"`
	Table  [][]string `json:"table"` // the first row is the head
	Notes  []string   `json:"notes"`
	Claims []Claim    `json:"claims"`

	Measured []measured  `json:"measured,omitempty"` // all figures of each way to lock
	Rungs    []chart.Bar `json:"rungs,omitempty"`    // nanoseconds per lock, for the ladder of all subjects
	Figures  []Figure    `json:"figures,omitempty"`
}

// Claim is one statement that must hold. A claim about NaN, which was not measured, does not hold.
type Claim struct {
	Text  string  `json:"text"`
	Got   value   `json:"value"`
	Limit float64 `json:"bound"`
	Least bool    `json:"least"` // the limit is the least that is allowed, else the most
	Holds bool    `json:"holds"`
}

func AtLeast(limit float64, got float64, text string) Claim {
	return Claim{text, value(got), limit, true, got >= limit}
}

func AtMost(limit float64, got float64, text string) Claim {
	return Claim{text, value(got), limit, false, got <= limit}
}

func (r Result) Write(w io.Writer) {
	fmt.Fprintf(w, "\n%s\n\n", r.Title)
	figures.Align(w, r.Table)
	if table := spreads(r.Measured); table != nil {
		fmt.Fprintln(w)
		figures.Align(w, table)
	}
	if len(r.Notes) > 0 {
		fmt.Fprintln(w)
		for _, note := range r.Notes {
			fmt.Fprintln(w, note)
		}
	}
	fmt.Fprintln(w)
	table := [][]string{{"must hold", "measured", "limit", ""}}
	for _, c := range r.Claims {
		bound, verdict := "at most ", "holds"
		if c.Least {
			bound = "at least "
		}
		if !c.Holds {
			verdict = "DOES NOT HOLD"
		}
		table = append(table, []string{c.Text, c.Got.String(), bound + stats.Number(c.Limit), verdict})
	}
	figures.Align(w, table)
}

// Again prints and writes a record that was made before, which is in one file or more.
func Again(files string, o Outputs, stdout io.Writer) (*Record, error) {
	rec, err := readRecords(strings.Split(files, ","))
	if err != nil {
		return nil, err
	}
	for _, s := range rec.Subjects {
		s.Write(stdout)
	}
	return rec, o.Write(rec)
}

// Verdict says whether everything holds. It returns the exit status, which is 0 for a quick run in
// any case.
func Verdict(rec *Record, report bool, stdout io.Writer) int {
	broken := rec.broken()
	if len(broken) == 0 {
		fmt.Fprintln(stdout, "\nEverything holds.")
		return 0
	}
	fmt.Fprintf(stdout, "\nDoes not hold:\n  %s\n", strings.Join(broken, "\n  "))
	if rec.Quick {
		fmt.Fprintln(stdout, "So little was measured that this may be chance.")
	}
	if report || rec.Quick {
		return 0
	}
	return 1
}

// KindOf tells ours from theirs by the name of a variant.
func KindOf(name string) chart.Kind {
	if strings.HasPrefix(name, "Holdfast") {
		return chart.Ours
	}
	return chart.Rival
}

// Bar sums up a sample. A figure that was not measured is 0, as JSON has no number for it.
func Bar(name string, kind chart.Kind, sample []float64) chart.Bar {
	s := stats.SpreadOf(sample)
	known := func(x float64) float64 {
		if !value(x).known() {
			return 0
		}
		return x
	}
	return chart.Bar{Name: name, Kind: kind, Value: known(s.Median), Least: known(s.Least), Most: known(s.Most)}
}

// TimesFloor says beside a bar how many times a floor it is.
func TimesFloor(b chart.Bar, sample, floor []float64, name string) chart.Bar {
	b.Note = stats.Number(stats.Median(stats.PerRound(sample, floor))) + " times " + name
	return b
}

// Contestant is a variant with the tally of its rounds.
type Contestant struct {
	Name string
	Kind chart.Kind
	*stats.Tally
}

// Contest adds the charts of variants that contend.
func (r *Result) Contest(name, what string, list []Contestant) {
	bars := chart.Bars{
		Name: name + "-rates", Title: "Critical sections per second, " + what, Unit: "/s",
		About: "A bar for each lock, on a logarithmic scale: the median of the rounds, and between what they varied.",
	}
	for _, c := range list {
		bars.Rows = append(bars.Rows, Bar(c.Name, c.Kind, c.Rates))
	}
	r.Figures = append(r.Figures, Figure{Bars: &bars})
	r.Compare(list)
}
