package subjects

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// column is one of the table of a contest, or some.
type column struct {
	heads string // of all, with commas between
	cells func(t *total) []string
}

// rates are the columns that all tables begin with: a rate, and that of the first way to it.
func rates(what string, first *total) column {
	return column{what + ",(min..max),ratio,(min..max)", func(t *total) []string {
		return append(stats.SpreadOf(t.Rates).Cells(), first.Times(&t.Tally).Cells()...)
	}}
}

// per is a column of the usage of one section.
func per(head string, of func(t *total) float64) column {
	return column{head, func(t *total) []string { return []string{stats.Number(t.Per(of(t)))} }}
}

// number is a column of something else.
func number(head string, of func(t *total) float64) column {
	return column{head, func(t *total) []string { return []string{stats.Number(of(t))} }}
}

// The columns that several tables have.
var (
	commands = per("commands/section", func(t *total) float64 { return float64(t.All.Commands) })
	waits    = column{"p50 wait ms,p99,p99.9,max", (*total).WaitCells}
)

func two(t *total) float64 { return float64(t.wrong) }

// shares is a column of how the processes share; it is "-" for a way that is alone.
func shares(head string, of func(t *total) string) column {
	return column{head, func(t *total) []string {
		if t.alone {
			return []string{"-"}
		}
		return []string{of(t)}
	}}
}

func jain(t *total) string { return stats.Number(stats.Jain(t.Parts)) }

// headOf is the first row of a table.
func headOf(columns []column) (row []string) {
	row = []string{""}
	for _, c := range columns {
		row = append(row, strings.Split(c.heads, ",")...)
	}
	return row
}

// row is that of a way. Its name is indented where a job has a row of its own.
func (t *total) row(indent string, columns []column) []string {
	row := []string{indent + t.Title()}
	for _, c := range columns {
		row = append(row, c.cells(t)...)
	}
	return row
}

// contestants are the totals as the report draws them.
func contestants(totals []*total, name func(*total) string) (list []report.Contestant) {
	for _, t := range totals {
		list = append(list, report.Contestant{Name: name(t), Kind: t.kind(), Tally: &t.Tally})
	}
	return list
}

// describe describes each variant once.
func describe(list []rivals.Variant) (notes []string) {
	said := make(map[string]bool)
	for _, v := range list {
		if v.How != "" && !said[v.Name] {
			said[v.Name] = true
			notes = append(notes, v.Title()+": "+v.How)
		}
	}
	return notes
}

// variants are those of the totals.
func variants(totals []*total) (list []rivals.Variant) {
	for _, t := range totals {
		list = append(list, t.Variant)
	}
	return list
}

// listed writes the counts that are not zero.
func listed(counts map[string]int64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[name]; n != 0 {
			parts = append(parts, name+" "+figures.Thousands(n))
		}
	}
	return strings.Join(parts, ", ")
}

// noteFailed notes the failures of a way: how many, and the error of one.
func (t *total) noteFailed(r *report.Result, name, what string) {
	if t.failed > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%s: %s %s failed; one: %s", name, figures.Thousands(t.failed), what, t.failure))
	}
}
