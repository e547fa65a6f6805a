//go:build linux

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// memory is how much a node needed in calm times: medians of the first quarter of the run, and of
// the last one.
type memory struct {
	Node       string
	Heap       [2]uint64
	RSS        [2]uint64
	Goroutines [2]int
}

// closed finds nodes that ended in order, but with an error or with goroutines left.
func (rep *report) closed() {
	for _, e := range rep.history.closed {
		// A node that leaves when Redis is away can give nothing back, and says so.
		excused := strings.Contains(e.Text, "arbiter unavailable") && moment(e.At) < rep.end
		if e.State.Goroutines > 0 || e.Text != "" && !excused {
			rep.Violations = append(rep.Violations, fmt.Sprintf("%s/%d: closed with %q, %d goroutines are left", e.Node, e.Life, e.Text, e.State.Goroutines))
		}
	}
}

// remember fills in the memory of the nodes.
func (rep *report) remember(calms []calm) {
	for _, node := range slices.Sorted(maps.Keys(rep.history.states)) {
		var quiet []*state
		for _, e := range rep.history.states[node] {
			if slices.ContainsFunc(calms, func(c calm) bool { return c.from <= moment(e.At) && moment(e.At) <= c.to }) {
				quiet = append(quiet, e.State)
			}
		}
		m := memory{Node: node}
		quarter := len(quiet) / 4
		for i, of := range [][]*state{quiet[:quarter], quiet[len(quiet)-quarter:]} {
			m.Heap[i] = median(of, func(s *state) uint64 { return s.Heap })
			m.RSS[i] = median(of, func(s *state) uint64 { return s.RSS })
			m.Goroutines[i] = median(of, func(s *state) int { return s.Goroutines })
		}
		rep.Memory = append(rep.Memory, m)
	}
}

func median[N cmp.Ordered](of []*state, get func(*state) N) (n N) {
	if len(of) == 0 {
		return n
	}
	var all []N
	for _, s := range of {
		all = append(all, get(s))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// grown finds figures that have grown from the first quarter to the last one by more than noise
// explains.
func (rep *report) grown() (bad []string) {
	for _, m := range rep.Memory {
		if m.Heap[1] > m.Heap[0]*3/2+2<<20 || m.RSS[1] > m.RSS[0]*5/4+8<<20 || m.Goroutines[1] > m.Goroutines[0]*5/4+5 {
			bad = append(bad, fmt.Sprintf("not flat: %+v", m))
		}
	}
	if quarter := len(rep.Counts) / 4; quarter > 0 {
		first, last := rep.Counts[:quarter], rep.Counts[len(rep.Counts)-quarter:]
		most := func(all []census) (c census) {
			for _, x := range all {
				c.Keys, c.Sessions, c.Rows = max(c.Keys, x.Keys), max(c.Sessions, x.Sessions), max(c.Rows, x.Rows)
			}
			return c
		}
		if a, b := most(first), most(last); b.Keys > a.Keys+20 || b.Sessions > a.Sessions+5 || b.Rows > a.Rows+20 {
			bad = append(bad, fmt.Sprintf("not flat: at most %+v at Redis in the first quarter, %+v in the last one", a, b))
		}
	}
	return bad
}
