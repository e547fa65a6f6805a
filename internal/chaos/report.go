//go:build linux

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// A report is the result of a run.
type report struct {
	Date     string
	Command  string
	Topology string
	Seed     uint64
	Length   time.Duration
	Nodes    int
	Hosts    int // that they shared; 0: each had one of its own
	TTL      time.Duration

	Faults   map[string]int           // how often each was committed
	Stalls   map[string]time.Duration // by fault: the longest time without a grant of some key, of the rounds with this fault alone
	Together time.Duration            // the same of rounds with several faults
	Calm     time.Duration            // the same when there was no fault
	Recovery time.Duration            // the longest time from healing until every node had locked every key
	Rounds   int
	Bands    []*band

	Locks      int // calls of Lock
	Granted    int
	Failed     int // waits that were given up
	Lost       int
	Modes      map[mode]int // of Granted
	Downgraded int          // of those for reading
	Buried     [2]int       // sessions that others ended: of silent processes, of those that they saw end
	Unknown    int          // of processes that were killed
	Resource   *tally
	Machine    time.Duration // time in which the machine did not let this process run

	Before, Left census // at Redis: at the end of the run, and when all nodes have left
	Memory       []memory
	Counts       []census // at Redis, in the calm after each round
	Violations   []string
	Expected     []string // two holders, or their consequences, with settings that allow for them
	Kept         string   // the directory with everything, if it was not removed

	defaults bool // the reason for Expected: settings that allow for two holders

	events  []event
	history *history
	run     *running
	end     moment
}

// judge makes the report of a run after its nodes have left.
func judge(r *running, events []event, end moment) *report {
	h := read(events)
	rep := &report{
		Topology: r.cfg.Topology, Seed: r.cfg.Seed, Length: end.sub(r.begun), Nodes: r.cfg.Nodes, Hosts: r.cfg.Hosts, TTL: r.cfg.Times.TTL,
		Faults: make(map[string]int), Stalls: make(map[string]time.Duration), Rounds: len(r.rounds), Bands: r.bands,
		Granted: len(h.holds), Failed: len(h.failed), Unknown: h.unknown + h.orphaned, Machine: r.watch.Sum(),
		events: events, history: h, run: r, end: end, Modes: make(map[mode]int),
	}
	rep.Locks = rep.Granted + rep.Failed + h.unknown
	for _, x := range h.holds {
		rep.Modes[x.Mode]++
		if x.From != 0 {
			rep.Downgraded++
		}
		if x.Lost != "" {
			rep.Lost++
		}
	}
	for _, b := range r.bands {
		rep.Faults[b.Fault]++
	}
	rep.Violations, rep.Counts = h.violations(), r.counts
	keys := h.byKey()
	var calms []calm
	last := r.begun
	for _, x := range r.rounds {
		calms = append(calms, calm{last, x.Begin})
		key, stall := longestStall(keys, x.Begin, x.End)
		if len(x.Faults) == 1 {
			rep.Stalls[x.Faults[0]] = max(rep.Stalls[x.Faults[0]], stall)
		} else {
			rep.Together = max(rep.Together, stall)
		}
		r.tell("round %s, begun at %s: nobody got %s for %v", strings.Join(x.Faults, " + "), x.Begin.since(r.begun), key,
			stall.Round(time.Millisecond))
		if last = end; x.Recovered != 0 {
			rep.Recovery = max(rep.Recovery, x.Recovered.sub(x.Healed))
			last = x.Recovered
		}
	}
	calms = append(calms, calm{last, end})
	for _, c := range calms {
		_, stall := longestStall(keys, c.from, c.to)
		rep.Calm = max(rep.Calm, stall)
	}
	if rep.Machine < time.Second { // else it is no wonder
		rep.Violations = append(rep.Violations, h.unexcused(calms, 2*time.Second)...)
		rep.Violations = append(rep.Violations, h.wasted(r.rounds)...)
	}
	rep.closed()
	rep.remember(calms)
	if r.cfg.Soak {
		rep.Violations = append(rep.Violations, rep.grown()...)
	}
	return rep
}

// write tells the report to people.
func (rep *report) write(w io.Writer) {
	ms := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	fmt.Fprintf(w, "\n%s, seed %d, %d nodes on %d hosts, T = %v, %v, %d rounds\n", rep.Topology, rep.Seed, rep.Nodes, cmp.Or(rep.Hosts, rep.Nodes),
		rep.TTL, rep.Length.Round(time.Second), rep.Rounds)
	for _, name := range slices.Sorted(maps.Keys(rep.Faults)) {
		stall := "-"
		if d, ok := rep.Stalls[name]; ok {
			stall = ms(d).String()
		}
		fmt.Fprintf(w, "  %-42s %3d   longest stall, if alone: %s\n", name, rep.Faults[name], stall)
	}
	fmt.Fprintf(w, "locks: %d asked for, %d granted, %d given up, %d lost, %d unknown\n", rep.Locks, rep.Granted, rep.Failed, rep.Lost, rep.Unknown)
	fmt.Fprintf(w, "sessions that other nodes ended: of %d processes that were silent for too long, of %d that they saw end\n", rep.Buried[0], rep.Buried[1])
	fmt.Fprintf(w, "longest stall of a key: in calm times %v, with several faults at once %v; everybody worked again after %v at most\n",
		ms(rep.Calm), ms(rep.Together), ms(rep.Recovery))
	if t := rep.Resource; t != nil {
		fmt.Fprintf(w, "resource: %d sections, %d with a token that was refused; without the fence %d would have overlapped, and %d updates were lost\n",
			t.Sections, t.Refused, t.Overlaps, t.PlainLost)
		if t.Reads > 0 {
			fmt.Fprintf(w, "readers: %d sections at the resource, %d of which saw a lost writer's update; granted: %d to read, %d by downgrade, %d of permits\n",
				t.Reads, t.Torn, rep.Modes[reading], rep.Downgraded, rep.Modes[counted])
		}
	}
	for _, m := range rep.Memory {
		fmt.Fprintf(w, "%s, medians of the first and the last quarter: heap %d and %d kB, resident %d and %d kB, goroutines %d and %d\n", m.Node,
			m.Heap[0]>>10, m.Heap[1]>>10, m.RSS[0]>>10, m.RSS[1]>>10, m.Goroutines[0], m.Goroutines[1])
	}
	fmt.Fprintf(w, "Redis: %+v at the end, %+v when all had left; the machine stood still for %v\n", rep.Before, rep.Left, ms(rep.Machine))
	if rep.Kept != "" {
		fmt.Fprintf(w, "kept: %s\n", rep.Kept)
	}
	for i, v := range rep.Expected {
		if i == shown {
			fmt.Fprintf(w, "... and %d more\n", len(rep.Expected)-shown)
			break
		}
		fmt.Fprintf(w, "EXPECTED with these settings: %s\n", v)
	}
	if rep.defaults {
		fmt.Fprintf(w, "expected with these settings (Redis's default replication, no WAIT): %d\n", len(rep.Expected))
	}
	for _, v := range rep.Violations {
		fmt.Fprintf(w, "VIOLATION %s\n", v)
	}
	fmt.Fprintf(w, "violations: %d\n", len(rep.Violations))
}

// shown is how many of Expected are told.
const shown = 5

// excuse moves the consequences of two holders of a key from Violations to Expected, if the
// settings of the run allow for two.
func (rep *report) excuse(cfg config) {
	if rep.defaults = cfg.Defaults && cfg.Replicas <= 0; !rep.defaults {
		return
	}
	var left []string
	for _, v := range rep.Violations {
		if strings.HasPrefix(v, "I1: ") || strings.HasPrefix(v, "I2: ") || strings.Contains(v, "the resource") {
			rep.Expected = append(rep.Expected, v)
		} else {
			left = append(left, v)
		}
	}
	rep.Violations = left
}
