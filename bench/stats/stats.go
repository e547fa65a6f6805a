// Package stats has what figures are made of: samples and their spread, histograms, and what a way
// to lock did in rounds.
package stats

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/internal/figures"
)

// Quantile returns the value that a part q (0 to 1) of the sample does not exceed, NaN of an empty
// one. It sorts the sample.
func Quantile[T ~int64 | ~float64](sample []T, q float64) float64 {
	if len(sample) == 0 {
		return math.NaN()
	}
	slices.Sort(sample)
	return float64(sample[min(int(q*float64(len(sample))), len(sample)-1)])
}

func Median[T ~int64 | ~float64](sample []T) float64 {
	if len(sample) == 0 {
		return math.NaN()
	}
	s := slices.Clone(sample)
	slices.Sort(s)
	n := len(s)
	return (float64(s[(n-1)/2]) + float64(s[n/2])) / 2
}

// Ratio is NaN, with which nothing holds, where there is none.
func Ratio(a, b float64) float64 {
	if b == 0 {
		return math.NaN()
	}
	return a / b
}

func Sum[T ~int64 | ~float64](parts []T) (total T) {
	for _, n := range parts {
		total += n
	}
	return total
}

// SmallestShare is the smallest part, with an equal share as 1.
func SmallestShare(parts []int64) float64 {
	return Ratio(float64(slices.Min(parts))*float64(len(parts)), float64(Sum(parts)))
}

// Jain is Jain's fairness index: 1 if all parts are equal, 1/n if one of n has everything.
func Jain(parts []int64) float64 {
	var total, squares float64
	for _, n := range parts {
		total += float64(n)
		squares += float64(n) * float64(n)
	}
	return Ratio(total*total, squares*float64(len(parts)))
}

// Spread is a sample in a few words: its median, and between which values all of it is.
type Spread struct{ Median, Least, Most float64 }

func SpreadOf(sample []float64) Spread {
	if len(sample) == 0 {
		return Spread{math.NaN(), math.NaN(), math.NaN()}
	}
	return Spread{Median(sample), slices.Min(sample), slices.Max(sample)}
}

// String writes the median, and the limits in brackets.
func (s Spread) String() string {
	return Number(s.Median) + " (" + Number(s.Least) + ".." + Number(s.Most) + ")"
}

// Cells are the two cells of a table that have it: the median, and the limits.
func (s Spread) Cells() []string {
	return []string{Number(s.Median), Number(s.Least) + ".." + Number(s.Most)}
}

// IntervalOf is the median of a sample, with an interval for the median of what it is a sample of, at 95 %: the ranks are those of the
// binomial distribution, so nothing is assumed of the values but that each is drawn by itself.
func IntervalOf(sample []float64) Spread {
	if len(sample) == 0 {
		return SpreadOf(nil)
	}
	sorted := slices.Sorted(slices.Values(sample))
	n := float64(len(sorted))
	low := max(0, int(math.Floor(n/2-1.96*math.Sqrt(n)/2))-1)
	return Spread{Median(sample), sorted[low], sorted[len(sorted)-1-low]}
}

// Number writes three digits or, of large numbers, all, in groups.
func Number(x float64) string {
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

// Micros writes a duration given in nanoseconds, in microseconds.
func Micros(ns float64) string {
	if math.IsNaN(ns) {
		return "-"
	}
	return strconv.FormatFloat(ns/float64(time.Microsecond), 'f', 1, 64)
}

// PerRound divides a by b, round by round.
func PerRound(a, b []float64) []float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = Ratio(a[i], b[i])
	}
	return ratios
}

func Percent(x float64) string { return Number(100*x) + " %" }

func Millis(d time.Duration) string { return Number(float64(d) / float64(time.Millisecond)) }

// Latency sums up a sample of durations, in nanoseconds.
type Latency struct {
	N                   int
	P50, P99, P999, Max float64
}

func LatencyOf(sample []float64) Latency {
	return Latency{len(sample), Quantile(sample, 0.5), Quantile(sample, 0.99), Quantile(sample, 0.999), Quantile(sample, 1)}
}
