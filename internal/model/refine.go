package model

import (
	"fmt"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/model/spec"
)

// A noted event is one that package spec sees, of those that an action consists of; the last one
// first.
type noted struct {
	spec.Event
	before *noted
}

// note adds an event to those that have led to s.
func (m *Model) note(s *state, e spec.Event) {
	if m.Specified {
		s.noted = &noted{e, s.noted}
	}
}

// of is an event that concerns a node.
func of(kind spec.Kind, i uint8, epoch uint16) spec.Event {
	return spec.Event{Kind: kind, Session: names[i], Epoch: uint32(epoch)}
}

// about is an event that concerns a hold, which has the name for reading or not.
func about(kind spec.Kind, r row, shared bool) spec.Event {
	return spec.Event{Kind: kind, Hold: spec.Hold{Key: key, Shared: shared, Row: theirs(r)}}
}

func listed(t rowset) (rows []fallback.Row) {
	t.each(func(_ string, r fallback.Row) { rows = append(rows, r) })
	return rows
}

// seenHold reports whether package spec sees the node's hold: not one that the node, as the owner,
// has granted itself.
func (x *node) seenHold() bool { return x.holds() && (x.from != fromSelf || x.rowed) }

// project returns package spec's view of a state.
func (m *Model) project(s *state) *spec.State {
	p := spec.New()
	p.Top = uint32(s.maxEpoch)
	p.Last[key] = spec.Tokens{Any: tokenOf(s.maxTok), Exclusive: tokenOf(s.maxExcl)}
	for i := uint8(1); i <= m.Nodes; i++ {
		x := &s.node[i]
		if x.life != alive {
			p.Dead[names[i]] = true
			continue
		}
		if x.own != 0 {
			p.Serving = append(p.Serving, spec.Service{Session: names[i], Epoch: uint32(x.own), Seq: uint32(x.seq)})
			p.Had[uint32(x.own)] = names[i]
		}
		if r := (row{i, x.req, x.tok}); x.seenHold() {
			p.Holds = append(p.Holds, about(0, r, x.shared).Hold)
			p.Accepted[identity(i, x.req)] = tokenOf(x.tok)
		}
		for j := range s.streams {
			q := &s.streams[j][i]
			for _, f := range q.f[:q.n] {
				if f.kind == frameGrant && x.want != wantNothing && x.wreq == f.req && f.left > 0 {
					p.Offers[identity(i, f.req)] = tokenOf(f.tok)
				}
			}
		}
	}
	for _, r := range []*record{&s.p, &s.replica, &s.backup.p} {
		if r.owner != none {
			p.Takers[uint32(r.epoch)] = names[r.owner]
		}
	}
	s.rows(func(r *row) {
		if x := &s.node[r.who]; r.who != none && r.tok != 0 && x.life == alive && x.want != wantNothing && x.wreq == r.req {
			p.Offers[identity(r.who, r.req)] = tokenOf(r.tok)
		}
	})
	for _, x := range s.late[:s.lates] {
		if x.kind == answer+lateAcquire && s.node[x.node].life == alive && x.epoch > s.node[x.node].never {
			p.Given[uint32(x.epoch)] = names[x.node]
		}
		if x.kind == lateReclaimOwner {
			p.Takers[uint32(x.epoch)] = names[x.node]
		}
	}
	return p
}

func tokenOf(t token) fallback.Token {
	return fallback.MakeToken(uint32(t.epoch()), uint32(t.seq()))
}

// refines checks that package spec allows an action. Its events can happen in spec's view of the
// state before. They lead to a spec.State that allows all of spec's view of the state after.
func (m *Model) refines(before, after *state) {
	var events []*spec.Event
	for x := after.noted; x != nil; x = x.before {
		events = append(events, &x.Event)
	}
	s, want := m.project(before), m.project(after)
	for k := len(events) - 1; k >= 0; k-- {
		if err := s.Step(events[k]); err != nil {
			m.broken = fmt.Sprintf("not specified: %v: %v", events[k], err)
			return
		}
	}
	if missing := lacks(s, want); missing != "" {
		m.broken = "not specified: " + missing
	}
}

// lacks returns the entries that want allows and s does not, or a difference in entries that are in
// force.
func lacks(s, want *spec.State) string {
	if len(s.Serving) != len(want.Serving) || len(s.Holds) != len(want.Holds) || len(s.Dead) != len(want.Dead) {
		return fmt.Sprintf("%+v, %+v, %v, and in the model %+v, %+v, %v", s.Serving, s.Holds, s.Dead, want.Serving, want.Holds, want.Dead)
	}
	for _, x := range want.Serving {
		found := false
		for _, y := range s.Serving {
			found = found || y.Session == x.Session && y.Epoch == x.Epoch && y.Seq <= x.Seq
		}
		if !found {
			return fmt.Sprintf("%+v serves in the model, not in %+v", x, s.Serving)
		}
	}
	for _, h := range want.Holds {
		found := false
		for _, o := range s.Holds {
			found = found || o == h
		}
		if !found {
			return fmt.Sprintf("%v is in the model, not in %+v", &h, s.Holds)
		}
	}
	if more := missing(s.Takers, want.Takers) + missing(s.Given, want.Given) + missing(s.Had, want.Had) + missing(s.Offers, want.Offers) + missing(s.Accepted, want.Accepted) +
		missing(s.Dead, want.Dead); more != "" {
		return "the model has" + more
	}
	if a, b := s.Last[key], want.Last[key]; s.Top > want.Top || a.Any > b.Any || a.Exclusive > b.Exclusive {
		return fmt.Sprintf("epoch %d and tokens %v, and in the model %d and %v", s.Top, a, want.Top, b)
	}
	return ""
}

func missing[K, V comparable](in, want map[K]V) (text string) {
	for k, v := range want {
		if in[k] != v {
			text += fmt.Sprintf(" %v: %v", k, v)
		}
	}
	return text
}
