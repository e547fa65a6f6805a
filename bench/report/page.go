package report

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// Outputs are the files that a run is written to, besides the terminal; empty: not.
type Outputs struct {
	JSON, HTML string
	SVG        string // directory
	Charts     string // names of those that are written there; empty: all
	Readme     string // file whose part with figures is written anew
}

func (o Outputs) Write(r *Record) error {
	var errs []error
	if o.JSON != "" {
		errs = append(errs, r.write(o.JSON))
	}
	if o.HTML != "" {
		errs = append(errs, writePage(o.HTML, r))
	}
	if o.SVG != "" {
		errs = append(errs, writeCharts(o.SVG, o.Charts, r))
	}
	if o.Readme != "" {
		errs = append(errs, writeReadme(o.Readme, r))
	}
	return errors.Join(errs...)
}

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"known": value.known,
	"bound": func(c Claim) string {
		return map[bool]string{true: "≥ ", false: "≤ "}[c.Least] + stats.Number(c.Limit)
	},
	"ns":        func(x float64) string { return chart.Format(x, chart.Nanoseconds) },
	"thousands": figures.Thousands,
	"ours":      func(row []string) bool { return len(row) > 0 && strings.Contains(row[0], "Holdfast") },
	"value":     func(v measureValue) string { return v.text(v.Median) },
	"between":   measureValue.between,
	"times":     func(x float64) string { return stats.Number(1 / x) },
	"head":      Figure.Head,
	"draw":      func(f Figure) template.HTML { return template.HTML(f.chart().SVG()) }, // our own drawing, which escapes names itself
}).Parse(pageText))

// page is what the template is filled with.
type page struct {
	*Record
	Style    template.CSS
	Total    int // claims
	Broken   []string
	Ladder   *Figure
	Versus   *Figure
	Worse    []chart.Ratio
	Sections []section
}

// section is a subject in the page.
type section struct {
	subjectRecord
	Heading, Rest string // the title's word in capitals, and what follows it
	Held          int
	Drawn         []Figure
}

func newPage(r *Record) page {
	p := page{Record: r, Style: chart.Style, Broken: r.broken(), Ladder: r.ladder(), Versus: r.versus()}
	for _, s := range r.Subjects {
		x := section{subjectRecord: s, Heading: strings.ToUpper(s.Name[:1]) + s.Name[1:], Rest: s.Title, Drawn: s.drawn()}
		if head, rest, ok := strings.Cut(s.Title, ": "); ok && strings.EqualFold(head, s.Name) {
			x.Rest = rest
		}
		for _, c := range s.Claims {
			if c.Holds {
				x.Held++
			}
		}
		p.Total += len(s.Claims)
		for _, v := range s.Versus {
			if v.Times > 0 && v.Times < 1 { // 0: not measured
				p.Worse = append(p.Worse, v)
			}
		}
		p.Sections = append(p.Sections, x)
	}
	return p
}

func writePage(file string, r *Record) error {
	var text strings.Builder
	if err := pageTemplate.Execute(&text, newPage(r)); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text.String()), 0o644)
}

// writeCharts writes each chart, or those that are named, to a file of its own.
func writeCharts(dir, names string, r *Record) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	charts := make(map[string]Figure)
	var all []string
	add := func(f Figure) {
		charts[f.Head().Name] = f
		all = append(all, f.Head().Name)
	}
	for _, f := range []*Figure{r.ladder(), r.versus()} {
		if f != nil {
			add(*f)
		}
	}
	for _, s := range r.Subjects {
		for _, f := range s.drawn() {
			add(f)
		}
	}
	wanted := all
	if names != "" {
		wanted = strings.Split(names, ",")
	}
	for _, name := range wanted {
		f, ok := charts[name]
		if !ok {
			return fmt.Errorf("no chart %q, only %s", name, strings.Join(all, ","))
		}
		text := chart.Standalone(f.Head(), f.chart().SVG()) + "\n"
		if err := os.WriteFile(filepath.Join(dir, name+".svg"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// ladder is what a lock costs on each rung, of all subjects; nil if there is none.
func (r *Record) ladder() *Figure {
	bars := chart.Bars{
		Head: chart.Head{
			Name: "ladder", Title: "What a lock costs, rung by rung",
			About: "A bar for each way to lock, from the cheapest to the dearest, on a logarithmic scale.",
		},
		Unit: chart.Nanoseconds, Scale: chart.Log,
	}
	for _, s := range r.Subjects {
		for _, rung := range s.Rungs {
			// Several subjects measure the same for their own comparison.
			if !slices.ContainsFunc(bars.Rows, func(b chart.Bar) bool { return b.Name == rung.Name }) {
				bars.Rows = append(bars.Rows, rung)
			}
		}
	}
	if len(bars.Rows) == 0 {
		return nil
	}
	slices.SortStableFunc(bars.Rows, func(a, b chart.Bar) int { return cmp.Compare(a.Value, b.Value) })
	return &Figure{Bars: &bars}
}

// versus is how many times better than others, of all subjects; nil if nothing is compared.
func (r *Record) versus() *Figure {
	ratios := chart.Ratios{Head: chart.Head{
		Name: "versus", Title: "How many times better than what you would use instead",
		About: "A point for each comparison, on a logarithmic scale: right of the line Holdfast is better, left of it it is worse.",
	}}
	for _, s := range r.Subjects {
		ratios.Rows = append(ratios.Rows, s.Versus...)
	}
	if len(ratios.Rows) == 0 {
		return nil
	}
	slices.SortStableFunc(ratios.Rows, func(a, b chart.Ratio) int { return cmp.Compare(b.Times, a.Times) })
	return &Figure{Ratios: &ratios}
}

// drawn is the subject's figures, and one of its distributions.
func (s subjectRecord) drawn() []Figure {
	if len(s.Distributions) == 0 {
		return s.Figures
	}
	lines := chart.Lines{
		Head: chart.Head{
			Name: s.Name + "-waits", Title: "How long a lock was waited for",
			About: "A line for each lock: which part of all waits was not longer than this. Lower is better.",
		},
		X: chart.Axis{Label: "part of all waits that took no longer; each nine has the same room", Scale: chart.Quantile},
		Y: chart.Axis{Label: "wait", Unit: chart.Nanoseconds, Scale: chart.Log},
	}
	for _, d := range s.Distributions {
		lines.Series = append(lines.Series, chart.Line{Name: d.Name, Kind: d.Kind, Points: d.Points})
	}
	return append(slices.Clip(s.Figures), Figure{Lines: &lines})
}
