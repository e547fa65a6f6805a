// Package figures writes numbers and tables for terminals.
package figures

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Align writes a table with the first column flush left and the others flush right.
func Align(w io.Writer, table [][]string) {
	widths := make([]int, len(table[0]))
	for _, row := range table {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range table {
		var line strings.Builder
		for i, cell := range row {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				line.WriteString(cell + space)
			} else {
				line.WriteString("  " + space + cell)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// Thousands writes an integer in groups of three digits.
func Thousands(n int64) string {
	if n < 0 {
		return "-" + Thousands(-n)
	}
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Duration writes a duration with three digits.
func Duration(d time.Duration) string {
	value, unit := float64(d.Microseconds()), "µs"
	switch {
	case d >= time.Second:
		value, unit = d.Seconds(), "s "
	case d >= time.Millisecond:
		value, unit = value/1000, "ms"
	}
	decimals := 0
	switch {
	case unit == "µs" || value >= 100:
	case value >= 10:
		decimals = 1
	default:
		decimals = 2
	}
	return strconv.FormatFloat(value, 'f', decimals, 64) + " " + unit
}
