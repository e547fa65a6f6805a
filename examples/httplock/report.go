package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/figures"
)

// progress shows how a trial goes: on a terminal as one line that changes, elsewhere as a line per
// second.
type progress struct {
	w        io.Writer
	terminal bool
	title    string
	duration time.Duration
	next     time.Duration // without a terminal: when the next line is due
}

func newProgress(w io.Writer, title string, duration time.Duration) *progress {
	p := &progress{w: w, title: title, duration: duration, next: time.Second}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// show prints the progress so far.
func (p *progress) show(elapsed time.Duration, confirmed, failed int64, seen findings) {
	if !p.terminal && elapsed < p.next {
		return
	}
	for p.next <= elapsed {
		p.next += time.Second
	}
	line := fmt.Sprintf("%s: %.1f of %v, %s requests, %s/s, %s failed, %s updates lost",
		p.title, min(elapsed, p.duration).Seconds(), p.duration, figures.Thousands(confirmed),
		figures.Thousands(int64(float64(confirmed)/elapsed.Seconds())), figures.Thousands(failed), figures.Thousands(seen.lost()))
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
		"lock", "requests/s", "p50", "p99", "max", "lost", "overlapped", "late tokens", "Redis/request", "failed",
	}}
	for _, o := range outcomes {
		late := "-"
		if o.rung.fenced {
			late = figures.Thousands(o.findings.late)
		}
		table = append(table, []string{
			o.rung.title,
			figures.Thousands(int64(ratio(float64(o.tally.confirmed), o.elapsed.Seconds()))),
			figures.Duration(o.tally.quantile(0.5)),
			figures.Duration(o.tally.quantile(0.99)),
			figures.Duration(o.tally.quantile(1)),
			figures.Thousands(o.findings.lost()),
			figures.Thousands(o.findings.overlaps),
			late,
			fmt.Sprintf("%.2f", ratio(float64(o.commands), float64(o.tally.confirmed))),
			figures.Thousands(o.tally.failed),
		})
	}
	figures.Align(w, table)
	for _, o := range outcomes {
		if o.tally.failed > 0 {
			fmt.Fprintf(w, "%s: %s requests failed, one with: %s\n", o.rung.title, figures.Thousands(o.tally.failed), o.tally.failure)
		}
	}
	fmt.Fprint(w, `
requests/s     that added an item, by all clients together, until the last one was answered
p50, p99, max  of the time that a client waited for an answer, whatever the answer was
lost           updates that were stored and overwritten: they are not in the order at the end (must be 0 with a lock)
overlapped     requests that read an order while another one was between its read and its write (likewise)
late tokens    writes whose fencing token was not above the one before; - where the lock has none (likewise)
Redis/request  commands that the processes sent to Redis, per item added; a script is one command
`)
}

// verdict is nil if all locks did their duty.
func verdict(outcomes []outcome) error {
	var errs []error
	for _, o := range outcomes {
		wrong := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s: %s", o.rung.title, fmt.Sprintf(format, args...)))
		}
		if o.tally.confirmed == 0 {
			wrong("no request was answered with success; one failed with: %s", o.tally.failure)
		}
		if o.tally.confirmed > o.findings.writes {
			wrong("%d updates were confirmed, but only %d stored", o.tally.confirmed, o.findings.writes)
		}
		if !o.rung.locked {
			continue
		}
		if o.findings.lost() != 0 || o.findings.broken != 0 {
			wrong("%d updates were lost, %d writes did not go on from the one before", o.findings.lost(), o.findings.broken)
		}
		if o.findings.overlaps != 0 {
			wrong("%d requests overlapped with another one for the same order", o.findings.overlaps)
		}
		if o.findings.late != 0 {
			wrong("%d fencing tokens were not above the one before", o.findings.late)
		}
	}
	return errors.Join(errs...)
}

// summary returns the result of a run with a good verdict, in a sentence or two.
func summary(outcomes []outcome) string {
	var sentences []string
	locked, fenced := false, false
	for _, o := range outcomes {
		locked = locked || o.rung.locked
		fenced = fenced || o.rung.fenced
		if !o.rung.locked {
			sentences = append(sentences, fmt.Sprintf("Without a lock %s of %s updates were lost.",
				figures.Thousands(o.findings.lost()), figures.Thousands(o.findings.writes)))
		}
	}
	switch {
	case fenced:
		sentences = append(sentences, "With one none was, and every fencing token was above the one before it.")
	case locked:
		sentences = append(sentences, "With one none was.")
	}
	return strings.Join(sentences, " ")
}

// ratio is zero where there is none.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
