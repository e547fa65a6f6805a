// Package stats has the parts of figures: samples and their spread, histograms, and the rounds of a
// way to lock.
package stats

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/internal/figures"
	"github.com/holdfast-go/holdfast/internal/histogram"
)

// quantile returns the value that a part q (0 to 1) of the sample does not exceed, NaN of an empty
// one. It sorts the sample.
func quantile(sample []float64, q float64) float64 {
	if len(sample) == 0 {
		return math.NaN()
	}
	slices.Sort(sample)
	return sample[min(int(q*float64(len(sample))), len(sample)-1)]
}

func Median(sample []float64) float64 {
	if len(sample) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(sample))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// Ratio returns a/b, or NaN for a zero b. No claim holds for NaN.
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

// IntervalOf returns the median of a sample, with an interval at 95 % for the median of the
// population. The ranks are those of the binomial distribution, so nothing is assumed of the values
// but that each is drawn by itself.
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
func Micros(ns float64) string { return Number(ns / float64(time.Microsecond)) }

// Nanoseconds is the unit of durations, which are written in the unit that fits.
const Nanoseconds = "ns"

// Format writes a number with its unit.
func Format(x float64, unit string) string {
	if unit != Nanoseconds || math.IsNaN(x) {
		return Number(x) + unit
	}
	for _, u := range []struct {
		size float64
		name string
	}{{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}} {
		if math.Abs(x) >= 0.9995*u.size {
			return Number(x/u.size) + " " + u.name
		}
	}
	return Number(x) + " ns"
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
	return Latency{len(sample), quantile(sample, 0.5), quantile(sample, 0.99), quantile(sample, 0.999), quantile(sample, 1)}
}

// Effort is the work of a process in a round, and its usage for it.
type Effort struct {
	Sections int64         `json:"sections"` // or calls: the divisor of the figures
	Commands int64         `json:"commands"` // to Redis
	Trips    int64         `json:"trips"`
	Sent     int64         `json:"sent"` // bytes, on connections to servers of locks
	Received int64         `json:"received"`
	Allocs   uint64        `json:"allocs"`
	CPU      time.Duration `json:"cpu"` // of the whole process
}

func (e *Effort) add(x Effort) {
	e.Sections += x.Sections
	e.Commands += x.Commands
	e.Trips += x.Trips
	e.Sent += x.Sent
	e.Received += x.Received
	e.Allocs += x.Allocs
	e.CPU += x.CPU
}

// Bytes are those of both ways.
func (e Effort) Bytes() int64 { return e.Sent + e.Received }

// UsedHead are the columns that usedPer fills.
var UsedHead = []string{"CPU", "allocations", "commands", "bytes"}

// UsedPer returns an operation's CPU time (nanoseconds), allocations, commands and bytes: medians
// of the rounds.
func UsedPer(rounds []Round) []string {
	per := func(of func(Round) float64) string {
		var list []float64
		for _, e := range rounds {
			list = append(list, e.per(of(e)))
		}
		return Number(Median(list))
	}
	return []string{
		per(func(e Round) float64 { return float64(e.CPU) }), per(func(e Round) float64 { return float64(e.Allocs) }),
		per(func(e Round) float64 { return float64(e.Commands) }), per(func(e Round) float64 { return float64(e.Bytes()) }),
	}
}

// Cells returns the cells of a measurement with another one beside it: its median and limits, its
// ratio to the other one, block by block, and the usage of an operation.
func Cells(name string, sample, base []float64, number func(float64) string, rounds []Round) []string {
	s := SpreadOf(sample)
	cells := append([]string{name, number(s.Median), number(s.Least) + ".." + number(s.Most)}, SpreadOf(PerRound(sample, base)).Cells()...)
	return append(cells, UsedPer(rounds)...)
}

// Round is the work of all processes together in a round.
type Round struct {
	Effort
	Took                time.Duration
	Server              time.Duration // CPU
	P50, P99, P999, Max float64       // of the waits, nanoseconds
	Rate                float64       // operations per second; 0: Sections in the time that it took

	Parts []int64 // sections by process
}

// NewRound puts the work of the processes together.
func NewRound(took, server time.Duration, parts []Effort, waits *histogram.Histogram) Round {
	r := Round{
		Took: took, Server: server, Max: float64(waits.Longest),
		P50: float64(waits.Quantile(0.5)), P99: float64(waits.Quantile(0.99)), P999: float64(waits.Quantile(0.999)),
	}
	for _, p := range parts {
		r.add(p)
		r.Parts = append(r.Parts, p.Sections)
	}
	return r
}

func (r Round) per(total float64) float64 { return Ratio(total, float64(r.Sections)) }

// Metric is a figure that each way to lock has, one for each round.
type Metric struct {
	Name, Head, Unit string // head: in a narrow table
	More             bool   // is better, else less
	of               func(Round) float64
}

var Metrics = []Metric{
	{"operations per second", "per second", "/s", true, func(r Round) float64 {
		if r.Rate > 0 {
			return r.Rate
		}
		return Ratio(float64(r.Sections), r.Took.Seconds())
	}},
	{"p50", "p50", Nanoseconds, false, func(r Round) float64 { return r.P50 }},
	{"p99", "p99", Nanoseconds, false, func(r Round) float64 { return r.P99 }},
	{"p99.9", "p99.9", Nanoseconds, false, func(r Round) float64 { return r.P999 }},
	{"max", "max", Nanoseconds, false, func(r Round) float64 { return r.Max }},
	{MeasureCommands, "commands", "", false, func(r Round) float64 { return r.per(float64(r.Commands)) }},
	{MeasureBytes, "bytes", "", false, func(r Round) float64 { return r.per(float64(r.Bytes())) }},
	{"CPU s per million, callers", "CPU, callers", "", false, func(r Round) float64 { return r.per(r.CPU.Seconds() * 1e6) }},
	{MeasureServer, "CPU, servers", "", false, func(r Round) float64 { return r.per(r.Server.Seconds() * 1e6) }},
	{"allocations per operation", "allocations", "", false, func(r Round) float64 { return r.per(float64(r.Allocs)) }},
	{"fairness (Jain, processes)", "Jain", "", true, func(r Round) float64 {
		if len(r.Parts) < 2 {
			return math.NaN()
		}
		return Jain(r.Parts)
	}},
}

// Metrics that are not known of every way to lock.
const (
	MeasureCommands = "commands to Redis per operation"
	MeasureBytes    = "bytes per operation"
	MeasureServer   = "CPU s per million, servers"
)

// Tally is all rounds of a way to lock.
type Tally struct {
	Rounds  []Round
	Rates   []float64 // operations per second, by round
	All     Effort
	Took    time.Duration // all rounds
	Serving time.Duration // CPU of the servers
	Parts   []int64       // operations by process
	Waits   histogram.Histogram
	Untold  []string // names of measures
}

func (t *Tally) Add(r Round) {
	t.Rounds = append(t.Rounds, r)
	t.Rates = append(t.Rates, Metrics[0].of(r))
	t.All.add(r.Effort)
	t.Took += r.Took
	t.Serving += r.Server
	for i, n := range r.Parts {
		if i == len(t.Parts) {
			t.Parts = append(t.Parts, 0)
		}
		t.Parts[i] += n
	}
}

// Per divides by the operations of all rounds.
func (t *Tally) Per(total float64) float64 { return Ratio(total, float64(t.All.Sections)) }

// Times is how many times the rate of another way to lock this one reaches, round by round.
func (t *Tally) Times(other *Tally) Spread { return SpreadOf(PerRound(t.Rates, other.Rates)) }

// WaitCells are three quantiles of the waits, and the longest, in milliseconds.
func (t *Tally) WaitCells() []string {
	return []string{Millis(t.Waits.Quantile(0.5)), Millis(t.Waits.Quantile(0.99)), Millis(t.Waits.Quantile(0.999)), Millis(t.Waits.Longest)}
}

// Worst is the least of a figure of the processes in any round.
func (t *Tally) Worst(of func(parts []int64) float64) float64 {
	least := 1.0
	for _, r := range t.Rounds {
		least = min(least, of(r.Parts))
	}
	return least
}

// Sample is a measure in each round.
func (t *Tally) Sample(m Metric) (list []float64) {
	for _, r := range t.Rounds {
		x := m.of(r)
		for _, name := range t.Untold {
			if name == m.Name {
				x = math.NaN()
			}
		}
		list = append(list, x)
	}
	return list
}
