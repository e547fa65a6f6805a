package main

import (
	"math"
	"runtime"
	"time"

	"github.com/holdfast-go/holdfast/bench/chart"
)

// effort is what a process did in a round, and what it used for it.
type effort struct {
	Sections int64         `json:"sections"` // or sales, or calls: what the figures are per
	Commands int64         `json:"commands"` // to Redis
	Trips    int64         `json:"trips"`
	Bytes    int64         `json:"bytes"` // both ways, on connections to servers of locks
	Allocs   uint64        `json:"allocs"`
	CPU      time.Duration `json:"cpu"` // of the whole process
}

func (e *effort) add(x effort) {
	e.Sections += x.Sections
	e.Commands += x.Commands
	e.Trips += x.Trips
	e.Bytes += x.Bytes
	e.Allocs += x.Allocs
	e.CPU += x.CPU
}

// usedHead are the columns that usedPer fills.
var usedHead = []string{"CPU", "allocations", "commands", "bytes"}

// usedPer is what an operation took in CPU time (nanoseconds), allocations, commands and bytes: medians of the rounds.
func usedPer(rounds []effort) []string {
	per := func(of func(effort) float64) string {
		var list []float64
		for _, e := range rounds {
			list = append(list, ratio(of(e), float64(e.Sections)))
		}
		return number(median(list))
	}
	return []string{
		per(func(e effort) float64 { return float64(e.CPU) }), per(func(e effort) float64 { return float64(e.Allocs) }),
		per(func(e effort) float64 { return float64(e.Commands) }), per(func(e effort) float64 { return float64(e.Bytes) }),
	}
}

// meter is where the counters of a process were when a round began.
type meter struct {
	counters []*counter
	was      effort
}

// newMeter begins to measure. Counters of clients that are not there are nil.
func newMeter(counters ...*counter) meter {
	m := meter{counters: counters}
	m.was = m.now()
	return m
}

func (m meter) now() effort {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	e := effort{Allocs: mem.Mallocs, CPU: selfCPU()}
	for _, c := range m.counters {
		if c != nil {
			e.Commands += c.commands.Load()
			e.Trips += c.trips.Load()
			e.Bytes += c.bytes()
		}
	}
	return e
}

// read is what was used since the meter began.
func (m meter) read(sections int64) effort {
	e := m.now()
	return effort{
		Sections: sections, Commands: e.Commands - m.was.Commands, Trips: e.Trips - m.was.Trips, Bytes: e.Bytes - m.was.Bytes,
		Allocs: e.Allocs - m.was.Allocs, CPU: e.CPU - m.was.CPU,
	}
}

// round is what all processes did together.
type round struct {
	effort
	Took                time.Duration
	Server              time.Duration // CPU
	P50, P99, P999, Max float64       // of the waits, nanoseconds
	Rate                float64       // operations per second; 0: Sections in the time that it took

	parts []int64 // sections by process
}

// newRound puts together what the processes did.
func newRound(took, server time.Duration, parts []effort, waits *histogram) round {
	r := round{
		Took: took, Server: server, Max: float64(waits.Longest),
		P50: float64(waits.quantile(0.5)), P99: float64(waits.quantile(0.99)), P999: float64(waits.quantile(0.999)),
	}
	for _, p := range parts {
		r.add(p)
		r.parts = append(r.parts, p.Sections)
	}
	return r
}

func (r round) per(total float64) float64 { return ratio(total, float64(r.Sections)) }

// metric is a figure that each way to lock has, one for each round.
type metric struct {
	name, head, unit string // head: in a narrow table
	more             bool   // is better, else less
	of               func(round) float64
}

var metrics = []metric{
	{"operations per second", "per second", "/s", true, func(r round) float64 {
		if r.Rate > 0 {
			return r.Rate
		}
		return ratio(float64(r.Sections), r.Took.Seconds())
	}},
	{"p50", "p50", chart.Nanoseconds, false, func(r round) float64 { return r.P50 }},
	{"p99", "p99", chart.Nanoseconds, false, func(r round) float64 { return r.P99 }},
	{"p99.9", "p99.9", chart.Nanoseconds, false, func(r round) float64 { return r.P999 }},
	{"max", "max", chart.Nanoseconds, false, func(r round) float64 { return r.Max }},
	{measureCommands, "commands", chart.Number, false, func(r round) float64 { return r.per(float64(r.Commands)) }},
	{measureBytes, "bytes", chart.Number, false, func(r round) float64 { return r.per(float64(r.Bytes)) }},
	{"CPU s per million, callers", "CPU, callers", chart.Number, false, func(r round) float64 { return r.per(r.CPU.Seconds() * 1e6) }},
	{measureServer, "CPU, servers", chart.Number, false, func(r round) float64 { return r.per(r.Server.Seconds() * 1e6) }},
	{"allocations per operation", "allocations", chart.Number, false, func(r round) float64 { return r.per(float64(r.Allocs)) }},
	{"fairness (Jain, processes)", "Jain", chart.Number, true, func(r round) float64 {
		if len(r.parts) < 2 {
			return math.NaN()
		}
		return jain(r.parts)
	}},
}

// Those that are not known of everybody.
const (
	measureCommands = "commands to Redis per operation"
	measureBytes    = "bytes per operation"
	measureServer   = "CPU s per million, servers"
)

// tally is what a way to lock did in all rounds.
type tally struct {
	rounds  []round
	rates   []float64 // operations per second, by round
	all     effort
	serving time.Duration // CPU of the servers
	parts   []int64       // operations by process
	waits   histogram
	untold  []string // names of measures
}

func (t *tally) add(r round) {
	t.rounds = append(t.rounds, r)
	t.rates = append(t.rates, metrics[0].of(r))
	t.all.add(r.effort)
	t.serving += r.Server
	for i, n := range r.parts {
		if i == len(t.parts) {
			t.parts = append(t.parts, 0)
		}
		t.parts[i] += n
	}
}

// per divides by the operations of all rounds.
func (t *tally) per(total float64) float64 { return ratio(total, float64(t.all.Sections)) }

// sample is a measure in each round.
func (t *tally) sample(m metric) (list []float64) {
	for _, r := range t.rounds {
		x := m.of(r)
		for _, name := range t.untold {
			if name == m.name {
				x = math.NaN()
			}
		}
		list = append(list, x)
	}
	return list
}
