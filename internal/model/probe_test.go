package model

import (
	"fmt"
	"github.com/holdfast-go/holdfast/fallback"
	"sort"
	"testing"
)

type fb = fallback.Row
type fm = fallback.Member

func TestProbe(t *testing.T) {
	m := &Model{Nodes: 2, T: 3, M: 1, Q: 5, Faults: 0}
	m.rows, m.members = make(map[string]fb), make(map[string]fm)
	x := &explorer{Model: m, index: make(map[uint64]uint32)}
	x.perms = permutations(m.Nodes)
	first := *x.initial()
	x.print(&first)
	seen := map[uint64]bool{}
	now := []state{first}
	vals := map[string]map[string]int{}
	note := func(k, v string) {
		if vals[k] == nil {
			vals[k] = map[string]int{}
		}
		vals[k][v]++
	}
	for d := 0; len(now) > 0 && len(seen) < 200000; d++ {
		var then []state
		for k := range now {
			x.next(&now[k], func(n *state, e event) {
				fp := x.print(n)
				if !seen[fp] {
					seen[fp] = true
					then = append(then, *n)
					s := n
					note("p", fmt.Sprintf("%+v", s.p))
					note("tok", fmt.Sprint(s.maxTok, s.maxEpoch))
					note("exp", fmt.Sprint(s.expiry))
					note("sg", fmt.Sprint(s.sGrace, s.sServer, s.lates, s.down, s.budget))
					for i := 1; i < 3; i++ {
						y := s.node[i]
						note("own", fmt.Sprint(y.own, y.seq, y.slot))
						note("table", fmt.Sprint(y.table))
						note("qn", fmt.Sprint(y.quiet, y.never))
						note("want", fmt.Sprint(y.want, y.wreq))
						note("from", fmt.Sprint(y.from, y.req, y.tok))
						note("dl", fmt.Sprint(y.conf, y.ann, y.frozen, y.session))
						note("relA", fmt.Sprint(y.relA))
						note("relO", fmt.Sprint(y.relO))
						note("life", fmt.Sprint(y.life, y.cutS, y.cutP, y.look))
					}
					note("st", fmt.Sprintf("%v %v", s.streams[1][2], s.streams[2][1]))
				}
			})
		}
		fmt.Println(d, len(then))
		now = then
	}
	for k, v := range vals {
		fmt.Println(k, len(v))
		type kv struct {
			s string
			n int
		}
		var l []kv
		for s, n := range v {
			l = append(l, kv{s, n})
		}
		sort.Slice(l, func(i, j int) bool { return l[i].n > l[j].n })
		for i := 0; i < 6 && i < len(l); i++ {
			fmt.Println("   ", l[i])
		}
	}
}
