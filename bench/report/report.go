// Package report keeps and shows what was found: on the terminal, as a record in a file, as a page
// with charts, and in README.
package report

import (
	"fmt"
	"io"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// Result is what a subject prints: a table, notes, and what must hold. The report shows these of
// any subject; what else there is to draw is in the other fields, which may be empty.
type Result struct {
	Title  string     `json:"title"`
	Table  [][]string `json:"table"` // the first row is the head
	Notes  []string   `json:"notes"`
	Claims []Claim    `json:"-"`

	Measured      []measured     `json:"measured,omitempty"` // all figures of each way to lock
	Rungs         []chart.Bar    `json:"rungs,omitempty"`    // nanoseconds per lock, for the ladder of all subjects
	Versus        []chart.Ratio  `json:"versus,omitempty"`   // how many times better than others
	Distributions []distribution `json:"distributions,omitempty"`
	Figures       []Figure       `json:"figures,omitempty"`
}

// Claim is one statement that must hold.
type Claim struct {
	Text  string
	Got   float64
	Limit float64
	Least bool // the limit is the least that is allowed, else the most
}

func AtLeast(limit float64, got float64, text string) Claim { return Claim{text, got, limit, true} }
func AtMost(limit float64, got float64, text string) Claim  { return Claim{text, got, limit, false} }

// Holds is false for NaN: what was not measured does not hold.
func (c Claim) Holds() bool {
	if c.Least {
		return c.Got >= c.Limit
	}
	return c.Got <= c.Limit
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
		if !c.Holds() {
			verdict = "DOES NOT HOLD"
		}
		table = append(table, []string{c.Text, stats.Number(c.Got), bound + stats.Number(c.Limit), verdict})
	}
	figures.Align(w, table)
}
