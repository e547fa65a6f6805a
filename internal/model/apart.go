package model

import (
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/fallback"
)

// Apart explores nodes of two arbiters that reach each other: a server, and another one that was
// started from a copy of its data or anew. One key is locked through both. The arbiter's side is
// package fallback's, as in a Model. Time does not pass: no session ends.
type Apart struct {
	// Acquires, Grants and Moves are how many there may be. A move: a node starts again and uses
	// the other arbiter.
	Acquires, Grants, Moves uint8

	Copied   bool // the second server has the first one's epoch
	Unlisted bool // the guard is taken away: nodes believe nodes that their arbiter does not list

	part fallback.Partition
}

// apartNodes is how many nodes there are: the last one uses the second arbiter.
const apartNodes = 3

// apart is a state.
type apart struct {
	rec           [2]apartRecord // of the arbiters
	node          [apartNodes]apartNode
	last          [2]token // the highest that a node of each arbiter has accepted
	acquires      uint8    // left, as the fields below
	grants, moves uint8
}

type apartRecord struct {
	owner, holder uint8 // the node, and one; 0: none
	epoch, seq    uint16
	tok           token
}

type apartNode struct {
	arbiter uint8
	serves  uint16 // epoch; 0: it owns nothing
	seq     uint16
	table   uint8 // the node that has the key, and one
	tok     token
	holds   bool
	from    uint8 // the owner that granted it, and one; 0: the arbiter
}

// Explore sees every state, or stops at the first violation and returns a shortest story of it.
func (m *Apart) Explore() (states int, broken string, story []string) {
	type origin struct {
		from int
		what string
	}
	first := apart{acquires: m.Acquires, grants: m.Grants, moves: m.Moves}
	first.node[apartNodes-1].arbiter = 1
	for i := range first.rec {
		first.rec[i].epoch = base
		if i > 0 && !m.Copied {
			first.rec[i].epoch += 7 // it was formatted later
		}
	}
	seen := map[apart]bool{first: true}
	all, origins := []apart{first}, []origin{{-1, ""}}
	for at := 0; at < len(all) && broken == ""; at++ {
		m.next(all[at], func(n apart, what, bad string) {
			if broken != "" || seen[n] && bad == "" {
				return
			}
			seen[n] = true
			all, origins = append(all, n), append(origins, origin{at, what})
			if broken = bad; bad != "" {
				for i := len(all) - 1; i > 0; i = origins[i].from {
					story = append(story, origins[i].what)
				}
				slices.Reverse(story)
			}
		})
	}
	return len(all), broken, story
}

// on runs an operation on a record.
func (m *Apart) on(r *apartRecord, f func(fallback.Moment, *fallback.Partition)) {
	now := fallback.Moment{Now: 1000 * epochZero, Server: "now", Grace: tickMillis}
	p := &m.part
	*p = fallback.Partition{Owner: number(r.owner), Epoch: uint32(r.epoch), Seq: uint32(r.seq), Server: "now"}
	if r.holder != 0 {
		p.Rows = map[string]fallback.Row{key: theirs(row{r.holder, 1, r.tok})}
	}
	f(now, p)
	*r = apartRecord{owner: nodeOf(p.Owner), epoch: uint16(p.Epoch), seq: uint16(p.Seq)}
	if there := ours(p.Rows[key]); there.who != none {
		r.holder, r.tok = there.who, there.tok
	}
}

func (m *Apart) next(was apart, emit func(n apart, what, bad string)) {
	for i := range was.node {
		me := uint8(i + 1)
		x := was.node[i]
		r := was.rec[x.arbiter]
		change := func(what string, f func(n *apart, x *apartNode, r *apartRecord) string) {
			n := was
			bad := f(&n, &n.node[i], &n.rec[x.arbiter])
			emit(n, fmt.Sprintf("node %d of arbiter %d %s", me, x.arbiter+1, what), bad)
		}
		if r.owner == none && !x.holds && was.acquires > 0 {
			change("acquires the partition", func(n *apart, x *apartNode, r *apartRecord) string {
				n.acquires--
				m.on(r, func(now fallback.Moment, p *fallback.Partition) {
					got := p.Acquire(now, number(me), fallback.Expect{Epoch: uint32(r.epoch)})
					x.serves, x.seq, x.table = uint16(got.Record.Epoch), 0, ours(got.Rows[key]).who
				})
				return ""
			})
		}
		if x.serves != 0 && !x.holds {
			change("demotes the partition", func(n *apart, x *apartNode, r *apartRecord) string {
				holds := make(map[string]fallback.Row)
				if x.table != none {
					holds[key] = theirs(row{x.table, 1, n.node[x.table-1].tok})
					n.node[x.table-1].from = 0
				}
				m.on(r, func(now fallback.Moment, p *fallback.Partition) { p.Demote(now, number(me), uint32(x.serves), holds) })
				x.serves, x.seq, x.table = 0, 0, 0
				return ""
			})
		}
		if !x.holds && x.serves == 0 && r.owner == none && r.holder == none && was.grants > 0 {
			change("locks the key at its arbiter", func(n *apart, x *apartNode, r *apartRecord) string {
				n.grants--
				var t token
				m.on(r, func(now fallback.Moment, p *fallback.Partition) {
					q := fallback.LockRequest{Key: key, Me: identity(me, 1), Block: 1}
					a := p.Lock(now, q, nil)
					t = makeToken(uint16(a.Token.Epoch()), uint16(a.Token.Seq()))
				})
				return n.accept(x, t, 0)
			})
		}
		for j := range was.node {
			y := was.node[j]
			if y.serves == 0 || y.table != none || x.holds || was.grants == 0 || i != j && x.serves != 0 || x.arbiter != y.arbiter && !m.Unlisted {
				continue
			}
			change(fmt.Sprintf("gets the key of owner %d, of arbiter %d", j+1, y.arbiter+1), func(n *apart, x *apartNode, _ *apartRecord) string {
				n.grants--
				o := &n.node[j]
				o.seq++
				o.table = me
				return n.accept(x, makeToken(o.serves, o.seq), uint8(j+1))
			})
		}
		if x.holds {
			change("gives the key back", func(n *apart, x *apartNode, r *apartRecord) string {
				for j := range n.node {
					if n.node[j].table == me {
						n.node[j].table = none
					}
				}
				m.on(r, func(now fallback.Moment, p *fallback.Partition) { p.Unlock(now, key, identity(me, 1), nil) })
				x.holds, x.tok, x.from = false, 0, 0
				return ""
			})
		}
		if !x.holds && x.serves == 0 && was.moves > 0 {
			change("starts again, and uses the other arbiter", func(n *apart, x *apartNode, _ *apartRecord) string {
				n.moves--
				x.arbiter = 1 - x.arbiter
				return ""
			})
		}
	}
}

// accept makes a node begin to hold the key. Among the nodes of its arbiter no other one has it,
// and tokens rise.
func (n *apart) accept(x *apartNode, t token, from uint8) (bad string) {
	for i := range n.node {
		if y := &n.node[i]; y != x && y.holds && y.arbiter == x.arbiter {
			bad = "I1: two nodes of an arbiter hold the key"
		}
	}
	if last := &n.last[x.arbiter]; t <= *last && bad == "" {
		bad = "I2: token " + t.String() + " is accepted after " + last.String()
	} else {
		*last = max(*last, t)
	}
	x.holds, x.tok, x.from = true, t, from
	return bad
}
