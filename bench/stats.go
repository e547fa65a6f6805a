package main

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/internal/figures"
)

// quantile returns the value that a part q (0 to 1) of the sample does not exceed, NaN of an empty one. It sorts the
// sample.
func quantile[T ~int64 | ~float64](sample []T, q float64) float64 {
	if len(sample) == 0 {
		return math.NaN()
	}
	slices.Sort(sample)
	return float64(sample[min(int(q*float64(len(sample))), len(sample)-1)])
}

func median[T ~int64 | ~float64](sample []T) float64 {
	if len(sample) == 0 {
		return math.NaN()
	}
	s := slices.Clone(sample)
	slices.Sort(s)
	n := len(s)
	return (float64(s[(n-1)/2]) + float64(s[n/2])) / 2
}

// ratio is NaN, with which nothing holds, where there is none.
func ratio(a, b float64) float64 {
	if b == 0 {
		return math.NaN()
	}
	return a / b
}

func sum[T ~int64 | ~float64](parts []T) (total T) {
	for _, n := range parts {
		total += n
	}
	return total
}

// smallestShare is the smallest part, with an equal share as 1.
func smallestShare(parts []int64) float64 {
	return ratio(float64(slices.Min(parts))*float64(len(parts)), float64(sum(parts)))
}

// jain is Jain's fairness index: 1 if all parts are equal, 1/n if one of n has everything.
func jain(parts []int64) float64 {
	var total, squares float64
	for _, n := range parts {
		total += float64(n)
		squares += float64(n) * float64(n)
	}
	return ratio(total*total, squares*float64(len(parts)))
}

// spread is a sample in a few words: its median, and between which values all of it is.
type spread struct{ median, least, most float64 }

func spreadOf(sample []float64) spread {
	if len(sample) == 0 {
		return spread{math.NaN(), math.NaN(), math.NaN()}
	}
	return spread{median(sample), slices.Min(sample), slices.Max(sample)}
}

// String writes the median, and the limits in brackets.
func (s spread) String() string {
	return number(s.median) + " (" + number(s.least) + ".." + number(s.most) + ")"
}

// number writes three digits or, of large numbers, all, in groups.
func number(x float64) string {
	switch a := math.Abs(x); {
	case math.IsNaN(x):
		return "-"
	case math.IsInf(x, 0):
		return strconv.FormatFloat(x, 'g', -1, 64)
	case a >= 1000:
		return figures.Thousands(int64(math.Round(x)))
	case a >= 100 || x == math.Trunc(x):
		return strconv.FormatFloat(x, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case a >= 0.1:
		return strconv.FormatFloat(x, 'f', 2, 64)
	default:
		return strconv.FormatFloat(x, 'g', 2, 64)
	}
}

// micros writes a duration given in nanoseconds, in microseconds.
func micros(ns float64) string {
	if math.IsNaN(ns) {
		return "-"
	}
	return strconv.FormatFloat(ns/float64(time.Microsecond), 'f', 1, 64)
}
