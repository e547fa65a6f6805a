package chart

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Scale says how an axis is divided.
type Scale string

const (
	Linear   Scale = "linear" // from zero
	Log      Scale = "log"
	Quantile Scale = "quantile" // of values from 0 to 1: each nine takes the same room
)

// Units of what is drawn. Others are written behind the number.
const (
	Nanoseconds = "ns" // written in the unit that fits
	Seconds     = "s"
	Number      = ""
)

// axis maps values to coordinates.
type axis struct {
	scale    Scale
	unit     string
	min, max float64 // by the scale
	from, to float64 // coordinates
}

// newAxis makes an axis on which all values have a place.
func newAxis(scale Scale, unit string, values []float64, from, to float64) axis {
	a := axis{scale: scale, unit: unit, from: from, to: to, min: math.Inf(1), max: math.Inf(-1)}
	for _, v := range values {
		if a.drawable(v) {
			a.min, a.max = min(a.min, a.raw(v)), max(a.max, a.raw(v))
		}
	}
	if a.min > a.max {
		a.min, a.max = 0, 1
	}
	switch scale {
	case Log:
		a.min, a.max = math.Floor(a.min+1e-9), math.Ceil(a.max-1e-9)
		if a.min == a.max {
			a.max++
		}
	case Linear:
		a.min = min(a.min, 0)
		step := a.step()
		a.max = math.Ceil(a.max/step-1e-9) * step
	case Quantile:
		a.min = 0
	}
	if a.max <= a.min {
		a.max = a.min + 1
	}
	return a
}

// drawable is false for what has no place on the axis, as zero has none on a logarithmic one.
func (a axis) drawable(v float64) bool {
	return finite(v) && (a.scale != Log || v > 0) && (a.scale != Quantile || v >= 0 && v < 1)
}

func (a axis) raw(v float64) float64 {
	switch a.scale {
	case Log:
		return math.Log10(v)
	case Quantile:
		return -math.Log10(1 - v)
	}
	return v
}

// at returns the coordinate. What is beyond an end is put on it.
func (a axis) at(v float64) float64 {
	if !a.drawable(v) {
		return a.from
	}
	part := (a.raw(v) - a.min) / (a.max - a.min)
	return a.from + min(max(part, 0), 1)*(a.to-a.from)
}

// step is a round distance of some ticks.
func (a axis) step() float64 {
	span := a.max - a.min
	if span <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(span/4)))
	for _, n := range []float64{1, 2, 5, 10} {
		if span/(n*unit) <= 5 {
			return n * unit
		}
	}
	return 10 * unit
}

// among makes an axis that begins and ends with the values, and has its ticks where they are if there is room.
func among(scale Scale, unit string, values []float64, from, to float64) (axis, []tick) {
	a := newAxis(scale, unit, values, from, to)
	if scale != Log {
		return a, a.ticks()
	}
	var seen []float64
	for _, v := range values {
		if a.drawable(v) {
			seen = append(seen, v)
		}
	}
	slices.Sort(seen)
	seen = slices.Compact(seen)
	if len(seen) < 2 {
		return a, a.ticks()
	}
	a.min, a.max = a.raw(seen[0]), a.raw(seen[len(seen)-1])
	var ticks []tick
	apart := true
	for i, v := range seen {
		apart = apart && (i == 0 || a.at(v)-a.at(seen[i-1]) > 44)
		ticks = append(ticks, tick{v, Format(v, unit)})
	}
	if apart {
		return a, ticks
	}
	ticks = nil
	for e := math.Ceil(a.min); e <= a.max; e++ {
		v := math.Pow(10, e)
		ticks = append(ticks, tick{v, Format(v, unit)})
	}
	return a, ticks
}

type tick struct {
	value float64
	text  string
}

func (a axis) ticks() (ticks []tick) {
	switch a.scale {
	case Log:
		room := 64.0 // for a text beside the next, or
		if a.to < a.from {
			room = 20 // above it
		}
		// One is among them, as what is compared meets there.
		every := max(math.Ceil((a.max-a.min)*room/math.Abs(a.to-a.from)), 1)
		for e := math.Ceil(a.min/every) * every; e <= a.max; e += every {
			v := math.Pow(10, e)
			ticks = append(ticks, tick{v, Format(v, a.unit)})
		}
	case Quantile:
		for _, q := range []float64{0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999} {
			if a.raw(q) <= a.max+1e-9 {
				ticks = append(ticks, tick{q, strconv.FormatFloat(100*q, 'g', 7, 64) + " %"})
			}
		}
	default:
		step := a.step()
		for i := math.Ceil(a.min / step); i*step <= a.max+step/1e6; i++ {
			ticks = append(ticks, tick{i * step, Format(i*step, a.unit)})
		}
	}
	return ticks
}

// Format writes a value with its unit, in three digits.
func Format(v float64, unit string) string {
	switch {
	case !finite(v):
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
	case unit == "" || unit == "×":
		return digits(v) + unit
	case strings.HasPrefix(unit, "/"):
		return digits(v) + unit
	}
	return digits(v) + " " + unit
}

// digits writes three of them; thousands and millions by letter where that is short, else in groups.
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
