package chart

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Units of what is drawn. Others are written behind the number.
const (
	Nanoseconds = "ns" // written in the unit that fits
	Number      = ""
)

// Format writes a value with its unit, in three digits.
func Format(v float64, unit string) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case unit == Nanoseconds && v != 0:
		for _, u := range []struct {
			size float64
			name string
		}{{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}} {
			if math.Abs(v) >= 0.9995*u.size {
				return digits(v/u.size) + " " + u.name
			}
		}
		return digits(v) + " ns"
	case unit == Nanoseconds:
		return "0 ns"
	}
	return digits(v) + unit
}

// digits writes three of them; thousands and millions by letter where that is short, else in
// groups.
func digits(v float64) string {
	a := math.Abs(v)
	switch {
	case v == 0:
		return "0"
	case a >= 1e6:
		return trim(v/1e6, a/1e6) + " M"
	case a >= 1e4:
		return trim(v/1e3, a/1e3) + " k"
	case a >= 1000:
		n := strconv.FormatFloat(v, 'f', 0, 64)
		return n[:len(n)-3] + "," + n[len(n)-3:]
	case a < 0.001:
		return fmt.Sprintf("%.0e", v)
	}
	return trim(v, a)
}

func trim(v, a float64) string {
	places := 2
	switch {
	case a >= 99.95:
		places = 0
	case a >= 9.995:
		places = 1
	case a < 0.0995:
		places = 4
	}
	s := strconv.FormatFloat(v, 'f', places, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}
