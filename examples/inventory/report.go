package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/figures"
)

// progress shows how a sale goes: on a terminal as one line that changes, elsewhere as a line per
// second.
type progress struct {
	w        io.Writer
	terminal bool
	title    string
	done     string // the counted thing
	duration time.Duration
	next     time.Duration // without a terminal: when the next line is due
}

func newProgress(w io.Writer, title string, duration time.Duration) *progress {
	p := &progress{w: w, title: title, done: "sold", duration: duration, next: time.Second}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// show prints the progress; processes has the units that each has sold so far.
func (p *progress) show(elapsed time.Duration, processes []int64) {
	if !p.terminal && elapsed < p.next {
		return
	}
	for p.next <= elapsed {
		p.next += time.Second
	}
	sold := sum(processes)
	line := fmt.Sprintf("%s: %.1f of %v, %s %s, %s/s, smallest share %.0f %%",
		p.title, min(elapsed, p.duration).Seconds(), p.duration, figures.Thousands(sold), p.done,
		figures.Thousands(int64(float64(sold)/elapsed.Seconds())), 100*smallestShare(processes))
	if p.terminal {
		fmt.Fprintf(p.w, "\r%s\x1b[K", line)
	} else {
		fmt.Fprintln(p.w, line)
	}
}

// end removes the changing line; the table says all that it said.
func (p *progress) end() {
	if p.terminal {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// writeTable writes one row per outcome, and the meaning of the columns.
func writeTable(w io.Writer, outcomes []outcome) {
	table := [][]string{{
		"lock", "sold", "oversold", "sales/s", "ratio",
		"wait p50", "p99", "max", "Redis/sale", "Jain", "smallest",
	}}
	for _, o := range outcomes {
		table = append(table, []string{
			o.rung.title,
			figures.Thousands(o.tally.sold()),
			figures.Thousands(o.oversold),
			figures.Thousands(int64(o.rate())),
			fmt.Sprintf("%.2f", ratio(o.rate(), outcomes[0].rate())),
			figures.Duration(o.tally.Waits.Quantile(0.5)),
			figures.Duration(o.tally.Waits.Quantile(0.99)),
			figures.Duration(o.tally.Waits.Longest),
			fmt.Sprintf("%.2f", ratio(float64(o.commands), float64(o.tally.sold()))),
			fmt.Sprintf("%.3f", jain(o.processes)),
			fmt.Sprintf("%.0f %%", 100*smallestShare(o.processes)),
		})
	}
	figures.Align(w, table)
	for _, o := range outcomes {
		if o.tally.sold() == o.stock*int64(len(o.tally.Sold)) {
			fmt.Fprintf(w, "%s: sold out after %.1f s\n", o.rung.title, o.elapsed.Seconds())
		}
	}
	for _, o := range outcomes {
		if o.killed > 0 {
			fmt.Fprintf(w, "%s: %d processes were killed, and as many started\n", o.rung.title, o.killed)
		}
	}
	fmt.Fprint(w, `
sold        units, by all processes together; oversold: those of them that were not there (must be 0)
ratio       of the sales per second to those of the first line
wait        for the lock, per sale; a wait that the end of the sale cut off counts as long as it was
Redis/sale  commands that the lock sent to Redis, per unit sold; a script is one command
Jain        fairness between the processes: 1 if all sold as much, 1/n if one of n sold everything
smallest    what the slowest process sold, in percent of an equal share
`)
}

func (o outcome) rate() float64 { return ratio(float64(o.tally.sold()), o.elapsed.Seconds()) }

// verdict is nil if all sales were as they must be.
func verdict(outcomes []outcome) error {
	var errs []error
	for _, o := range outcomes {
		wrong := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s: %s", o.rung.title, fmt.Sprintf(format, args...)))
		}
		if o.oversold != 0 {
			wrong("%d units oversold", o.oversold)
		}
		for i, n := range o.tally.Sold {
			if n > o.stock {
				wrong("sold %d of the %d units of %s", n, o.stock, skuName(i))
			}
		}
		if o.tally.Rejected != 0 {
			wrong("%d fencing tokens were not above the one before", o.tally.Rejected)
		}
		if o.tally.Failed != 0 {
			wrong("%d calls failed, one with: %s", o.tally.Failed, o.tally.Failure)
		}
		if o.tally.sold() == 0 {
			wrong("nothing was sold")
		}
	}
	return errors.Join(errs...)
}

// jain is Jain's fairness index.
func jain(parts []int64) float64 {
	var sum, squares float64
	for _, n := range parts {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	return ratio(sum*sum, squares*float64(len(parts)))
}

// smallestShare is the smallest part, with an equal share as 1.
func smallestShare(parts []int64) float64 {
	return ratio(float64(slices.Min(parts))*float64(len(parts)), float64(sum(parts)))
}

func sum(parts []int64) int64 {
	var total int64
	for _, n := range parts {
		total += n
	}
	return total
}

// ratio is zero where there is none.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
