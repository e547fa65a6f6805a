package model

import (
	"bytes"
	"hash/maphash"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

var seed = maphash.MakeSeed()

// Result is the outcome of an exploration.
type Result struct {
	States   int
	Depth    int           // of the state that is farthest from the beginning
	Complete bool          // all states were seen; not: Limit was reached
	Bounded  bool          // a request was left out somewhere, because all numbers were in use
	Took     time.Duration //
	Broken   string        // the invariant that does not hold, empty if all do
	Story    []string      // how it comes to that, or to Stuck
	Stuck    int           // states where nothing can be granted any more (I8)
}

// explorer searches breadth-first, so the first violation has a shortest story.
type explorer struct {
	*Model
	perms  [][maxNodes + 1]uint8
	buf    [2][]byte
	index  map[uint64]uint32
	parent []uint32
	prints []uint64
}

// print makes a state canonical and returns its fingerprint, which is the same for all states that
// differ by the numbers of the nodes only.
func (x *explorer) print(s *state) uint64 {
	x.canonical(s)
	x.buf[0] = s.encode(x.buf[0][:0], x.Nodes)
	for _, perm := range x.perms {
		p := s.permute(perm)
		p.reorder()
		x.buf[1] = p.encode(x.buf[1][:0], x.Nodes)
		if bytes.Compare(x.buf[1], x.buf[0]) < 0 {
			x.buf[0], x.buf[1] = x.buf[1], x.buf[0]
		}
	}
	return maphash.Bytes(seed, x.buf[0])
}

// Explore sees every state within the bounds, or stops at the first violation.
func (m *Model) Explore() Result {
	begin := time.Now()
	m.rows, m.members = make(map[string]fallback.Row), make(map[string]fallback.Member)
	x := &explorer{Model: m, index: make(map[uint64]uint32)}
	x.perms = permutations(m.Nodes)
	r := x.search()
	r.Took = time.Since(begin)
	r.Bounded = m.bounded
	return r
}

func permutations(n uint8) (all [][maxNodes + 1]uint8) {
	switch n {
	case 2:
		return [][maxNodes + 1]uint8{{0, 2, 1, 3}}
	case 3:
		return [][maxNodes + 1]uint8{{0, 2, 1, 3}, {0, 1, 3, 2}, {0, 3, 2, 1}, {0, 2, 3, 1}, {0, 3, 1, 2}}
	}
	return nil
}

func (x *explorer) search() (r Result) {
	first := *x.initial()
	fp := x.print(&first)
	x.index[fp], x.parent, x.prints = 0, []uint32{0}, []uint64{fp}
	now, from := []state{first}, 0
	var edges progress
	for r.Depth = 0; len(now) > 0; r.Depth++ {
		var then []state
		for k := range now {
			s, id := &now[k], uint32(from+k)
			held := s.maxTok
			if x.Live && !s.anybody(x.Nodes) {
				edges.good = append(edges.good, id) // it takes a process more than there are
			}
			x.next(s, func(n *state, e event) {
				if r.Broken != "" {
					return
				}
				x.check(n)
				if x.Specified && x.broken == "" {
					x.refines(s, n)
				}
				n.noted = nil
				r.Broken = x.broken
				granted := n.maxTok > held && !e.fault
				fp := x.print(n)
				to, old := x.index[fp]
				if !old {
					to = uint32(len(x.parent))
					x.index[fp] = to
					x.parent, x.prints = append(x.parent, id), append(x.prints, fp)
					then = append(then, *n)
				}
				if x.Live && !e.fault {
					edges.add(id, to, granted)
				}
			})
			if r.Broken != "" {
				r.States = len(x.parent)
				r.Story = x.story(id, true)
				if x.broken != "" {
					r.Broken = x.broken
				}
				return r
			}
		}
		from += len(now)
		now = then
		if x.Limit > 0 && len(x.parent) > x.Limit {
			r.States = len(x.parent)
			return r
		}
	}
	r.States, r.Complete = len(x.parent), true
	if x.Live {
		var example uint32
		if r.Stuck, example = edges.stuck(len(x.parent)); r.Stuck > 0 {
			r.Story = x.story(example, false)
		}
	}
	return r
}

// story tells a shortest way to a state, without the names that canonical gives, which change on
// the way. andOn adds the step that violates something, and leaves the violation in broken.
func (x *explorer) story(id uint32, andOn bool) (lines []string) {
	var way []uint32
	for ; id != 0; id = x.parent[id] {
		way = append(way, id)
	}
	s := *x.initial()
	for k := len(way) - 1; k >= 0; k-- {
		found := false
		var next state
		x.next(&s, func(n *state, e event) {
			if found {
				return
			}
			c := *n
			if found = x.print(&c) == x.prints[way[k]]; found {
				next = *n
				next.noted = nil
				x.forget(&next)
				lines = append(lines, e.String())
			}
		})
		if !found {
			return append(lines, "(the story is lost)")
		}
		s = next
	}
	if andOn {
		broken := ""
		x.next(&s, func(n *state, e event) {
			if x.check(n); x.Specified && x.broken == "" {
				x.refines(&s, n)
			}
			if x.broken != "" && broken == "" {
				broken = x.broken
				lines = append(lines, e.String())
			}
		})
		x.broken = broken
	}
	return lines
}

// progress is the graph of the actions without faults.
type progress struct {
	from, to []uint32
	good     []uint32 // states in which the key can be granted at once
}

func (p *progress) add(from, to uint32, granted bool) {
	p.from, p.to = append(p.from, from), append(p.to, to)
	if granted {
		p.good = append(p.good, from)
	}
}

// stuck counts the states that can reach no grant, and returns the first.
func (p *progress) stuck(states int) (n int, example uint32) {
	start := make([]uint32, states+1)
	for _, t := range p.to {
		start[t+1]++
	}
	for i := range states {
		start[i+1] += start[i]
	}
	before := make([]uint32, len(p.to))
	at := append([]uint32(nil), start...)
	for i, t := range p.to {
		before[at[t]] = p.from[i]
		at[t]++
	}
	ok := make([]bool, states)
	work := p.good
	for len(work) > 0 {
		s := work[len(work)-1]
		work = work[:len(work)-1]
		if ok[s] {
			continue
		}
		ok[s] = true
		work = append(work, before[start[s]:start[s+1]]...)
	}
	for s := range states {
		if !ok[s] {
			if n == 0 {
				example = uint32(s)
			}
			n++
		}
	}
	return n, example
}
