package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast/coord"
)

// printer prints tables for people, or JSON.
type printer struct {
	w    io.Writer
	json bool
}

// encode prints a value as JSON.
func (p *printer) encode(v any) error {
	e := json.NewEncoder(p.w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// table prints rows. The first one is the head.
func (p *printer) table(rows [][]string) error {
	w := tabwriter.NewWriter(p.w, 0, 4, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			row[i] = printable(cell)
			if row[i] == "" {
				row[i] = "-"
			}
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

func (p *printer) line(format string, args ...any) {
	fmt.Fprintln(p.w, printable(fmt.Sprintf(format, args...)))
}

// printable quotes a text that could do something to a terminal: keys, labels and names come from
// anywhere.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// shellWord quotes a text so that a POSIX shell takes it as it is, and runs nothing that is in it.
func shellWord(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// since prints how long ago a time was.
func since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return lasting(time.Since(t))
}

// lasting prints a duration with two or three digits that matter.
func lasting(d time.Duration) string {
	switch {
	case d >= time.Hour:
		return d.Round(time.Minute).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(100 * time.Nanosecond).String()
}

// who names a process.
func who(p *coord.Process) string {
	switch {
	case p == nil:
		return ""
	case p.Name != "":
		return p.Name
	case p.ID != "":
		return p.ID
	}
	return "session " + p.Session
}

func where(p *coord.Process) string {
	if p == nil || p.Host == "" {
		return ""
	}
	return p.Host + ":" + strconv.Itoa(p.PID)
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func token(f coord.Fence) string {
	if f == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(f), 10)
}

// plural counts things.
func plural(n int, one, more string) string { return strconv.Itoa(n) + " " + plural1(n, one, more) }

// plural1 returns one of two words.
func plural1(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}
