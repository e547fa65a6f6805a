package report

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/stats"
)

// Outputs are the files that a run is written to, besides the terminal; empty: not.
type Outputs struct {
	JSON   string
	SVG    string // directory
	Charts string // names of those that are written there; empty: all
	Readme string // file whose part with figures is written anew
}

func (o Outputs) Write(r *Record) error {
	var errs []error
	if o.JSON != "" {
		errs = append(errs, r.write(o.JSON))
	}
	if o.SVG != "" {
		errs = append(errs, writeCharts(o.SVG, o.Charts, r))
	}
	if o.Readme != "" {
		errs = append(errs, writeReadme(o.Readme, r))
	}
	return errors.Join(errs...)
}

// writeCharts writes each chart, or those that are named, to a file of its own.
func writeCharts(dir, names string, r *Record) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	charts := make(map[string]chart.Bars)
	var all []string
	for _, c := range r.charts() {
		charts[c.Name] = c
		all = append(all, c.Name)
	}
	wanted := all
	if names != "" {
		wanted = strings.Split(names, ",")
	}
	for _, name := range wanted {
		c, ok := charts[name]
		if !ok {
			return fmt.Errorf("no chart %q, only %s", name, strings.Join(all, ","))
		}
		if err := os.WriteFile(filepath.Join(dir, name+".svg"), []byte(c.SVG()+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// charts returns the charts of the subjects and the ladder: the cost of a lock on each rung of all
// subjects.
func (r *Record) charts() (list []chart.Bars) {
	ladder := chart.Bars{
		Name: "ladder", Title: "What a lock costs, rung by rung", Unit: stats.Nanoseconds,
		About: "A bar for each way to lock, from the cheapest to the dearest, on a logarithmic scale.",
	}
	for _, s := range r.Subjects {
		for _, rung := range s.Rungs {
			// Several subjects measure the same for their own comparison.
			if !slices.ContainsFunc(ladder.Rows, func(b chart.Bar) bool { return b.Name == rung.Name }) {
				ladder.Rows = append(ladder.Rows, rung)
			}
		}
		for _, f := range s.Figures {
			if f.Bars != nil {
				list = append(list, *f.Bars)
			}
		}
	}
	if len(ladder.Rows) == 0 {
		return list
	}
	slices.SortStableFunc(ladder.Rows, func(a, b chart.Bar) int { return cmp.Compare(a.Value, b.Value) })
	return append([]chart.Bars{ladder}, list...)
}
