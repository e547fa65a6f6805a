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
	Claims []Claim    `json:"claims"`

	Measured      []measured     `json:"measured,omitempty"` // all figures of each way to lock
	Rungs         []chart.Bar    `json:"rungs,omitempty"`    // nanoseconds per lock, for the ladder of all subjects
	Versus        []chart.Ratio  `json:"versus,omitempty"`   // how many times better than others
	Distributions []distribution `json:"distributions,omitempty"`
	Figures       []Figure       `json:"figures,omitempty"`
}

// Claim is one statement that must hold. What was not measured, NaN, does not hold.
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
