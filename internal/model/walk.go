package model

import (
	"math/rand/v2"

	"github.com/holdfast-go/holdfast/fallback"
)

// A Step is one action of a walk.
type Step struct {
	Text   string // as a story tells it
	Holder uint8  // the node that holds the key afterwards, 0: none does
}

// Walk makes so many actions, each chosen at random from those that the model allows, and returns
// them. It ends early where an invariant is violated, and then returns which.
func (m *Model) Walk(r *rand.Rand, steps int) (all []Step, broken string) {
	m.rows, m.members = make(map[string]fallback.Row), make(map[string]fallback.Member)
	s := *m.initial()
	for len(all) < steps {
		var next state
		var did event
		n := 0
		m.next(&s, func(x *state, e event) {
			if n++; r.IntN(n) == 0 { // each with the same probability
				next, did = *x, e
			}
		})
		if n == 0 {
			break
		}
		m.forget(&next)
		s = next
		m.broken = ""
		m.check(&s)
		step := Step{Text: did.String()}
		for i := uint8(1); i <= m.Nodes; i++ {
			if s.node[i].holds() {
				step.Holder = i
			}
		}
		all = append(all, step)
		if m.broken != "" {
			return all, m.broken
		}
	}
	return all, ""
}
