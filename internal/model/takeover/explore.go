package takeover

import (
	"strconv"
	"strings"
	"time"
)

// event is one step. Its text is that of its kind, with the node in the place of $a and the number
// in that of $v.
type event struct {
	kind, node, n int8
}

// Result is the outcome of an exploration.
type Result struct {
	States   int
	Depth    int
	Complete bool   // all states were seen: the limit was not reached
	Broken   string // the invariant that does not hold; empty if all do
	Took     time.Duration

	events []event // a shortest way to the violation
	first  int     // from this one of the initial states
	names  []string
}

// Story returns a shortest way to a violation, as text.
func (r *Result) Story() (lines []string) {
	for _, e := range r.events {
		lines = append(lines, strings.NewReplacer("$a", string('a'+rune(e.node)), "$v", strconv.Itoa(int(e.n))).Replace(r.names[e.kind]))
	}
	return lines
}

// system is a set of states S and the steps between them.
type system[S comparable] interface {
	initial() []S
	next(s *S, to func(event, S))
	check(s *S) string // the invariant that s violates, or ""
	names() []string   // texts of the kinds of events
}

// explore sees all states breadth-first, up to limit, or stops at the first violation.
func explore[S comparable](m system[S], limit int) (r Result) {
	begin := time.Now()
	defer func() { r.Took = time.Since(begin) }()
	r.names = m.names()
	first := m.initial()
	type edge struct {
		from uint32
		by   event
	}
	var edges []edge
	seen := make(map[S]struct{})
	var now, then []S
	for _, s := range first {
		if _, old := seen[s]; !old {
			seen[s] = struct{}{}
			edges = append(edges, edge{uint32(len(edges)), event{}})
			now = append(now, s)
		}
	}
	first = now
	from := 0
	for r.Depth = 0; len(now) > 0; r.Depth++ {
		then = nil
		for k := range now {
			id := uint32(from + k)
			m.next(&now[k], func(e event, s S) {
				if _, old := seen[s]; old || r.Broken != "" {
					return
				}
				seen[s] = struct{}{}
				edges = append(edges, edge{id, e})
				then = append(then, s)
				r.Broken = m.check(&s)
			})
			if r.Broken != "" || limit > 0 && len(edges) > limit {
				break
			}
		}
		if r.Broken != "" {
			for i := uint32(len(edges) - 1); ; i = edges[i].from {
				if int(i) < len(first) {
					r.first = int(i)
					break
				}
				r.events = append([]event{edges[i].by}, r.events...)
			}
			break
		}
		if limit > 0 && len(edges) > limit {
			r.States = len(edges)
			return r
		}
		from += len(now)
		now = then
	}
	r.States, r.Complete = len(edges), r.Broken == ""
	return r
}
