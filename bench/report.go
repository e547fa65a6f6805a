package main

import (
	"fmt"
	"io"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// result is what a subject prints: a table, notes, and what must hold. The report shows these of any subject; what else
// there is to draw is in the other fields, which may be empty.
type result struct {
	title  string
	table  [][]string // the first row is the head
	notes  []string
	claims []claim

	measured      []measured    // all figures of each way to lock
	rungs         []chart.Bar   // nanoseconds per lock, for the ladder
	versus        []chart.Ratio // how many times better than others
	distributions []distribution
	figures       []figure
}

// claim is one statement that must hold.
type claim struct {
	text  string
	got   float64
	limit float64
	least bool // the limit is the least that is allowed, else the most
}

func atLeast(limit float64, got float64, text string) claim { return claim{text, got, limit, true} }
func atMost(limit float64, got float64, text string) claim  { return claim{text, got, limit, false} }

// holds is false for NaN: what was not measured does not hold.
func (c claim) holds() bool {
	if c.least {
		return c.got >= c.limit
	}
	return c.got <= c.limit
}

func (r result) write(w io.Writer) {
	fmt.Fprintf(w, "\n%s\n\n", r.title)
	figures.Align(w, r.table)
	if table := spreads(r.measured); table != nil {
		fmt.Fprintln(w)
		figures.Align(w, table)
	}
	if len(r.notes) > 0 {
		fmt.Fprintln(w)
		for _, note := range r.notes {
			fmt.Fprintln(w, note)
		}
	}
	fmt.Fprintln(w)
	table := [][]string{{"must hold", "measured", "limit", ""}}
	for _, c := range r.claims {
		bound, verdict := "at most ", "holds"
		if c.least {
			bound = "at least "
		}
		if !c.holds() {
			verdict = "DOES NOT HOLD"
		}
		table = append(table, []string{c.text, number(c.got), bound + number(c.limit), verdict})
	}
	figures.Align(w, table)
}
