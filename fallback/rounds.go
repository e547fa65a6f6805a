package fallback

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/holdfast-go/holdfast/internal/guard"
)

// A Rounder is a [Namespace] with rounds of its table of sessions, which may end Grace early. It is
// for stores that keep the table and the partitions on servers that fail over each by itself.
// docs/protocol.md has the rules, and docs/adr/0023 the reasons.
//
// Renewals begin a round, tell of it, and say that a session has spoken for it: see RoundCall.
type Rounder interface {
	// Graces returns the names of the Graces that partitions are in, as far as they were looked at
	// (Load, Verify), in their order. A partition has no name if it is in no Grace, or in one that
	// did not begin with another server.
	Graces(ctx context.Context, partitions []uint32) []NamedGrace

	// EndGraces ends Graces by their names: a partition that is not in the Grace of that name stays
	// as it is. Each is atomic by itself, and has an answer of its own, in their order.
	EndGraces(ctx context.Context, graces []NamedGrace) []EndedGrace

	// Openings reports whether a session counts, when it is opened, once all replicas of the
	// table's server have it, and its own disk. Then the table of another server that takes over
	// lacks none, and a round counts in Grace of the table, too.
	Openings() bool

	// TellRound sends a message of kind [Changes] to all sessions: there is another round, or
	// Graces have ended. It is a hint.
	TellRound(ctx context.Context) error
}

// A NamedGrace is the Grace of a partition.
type NamedGrace struct {
	Partition uint32
	Name      string // empty: it has none
	Err       error  // why that is not known
}

// An EndedGrace is the answer of EndGraces to one NamedGrace.
type EndedGrace struct {
	Ended bool // the partition was in the Grace of that name
	Err   error
}

// A RoundCall is a session's part in the round of the table, which it sends with a renewal.
type RoundCall struct {
	Spoke string // the round that this session speaks for: it has reclaimed all that it has

	Begin string // begins a round of that name, which was never used before, without blanks
	After string // if the present one has this name, "" for none

	Ask bool // tell whether it is complete
}

// A Round is the round of the table in the answer to a renewal.
type Round struct {
	Name     string // empty: there is none
	Complete bool   // it was asked for, the table has all sessions, and each of them has spoken or is dead
}

// A SpokenRound is the round of a table. It belongs to the server that it was begun at.
type SpokenRound struct {
	Name   string
	Server string // that server's name
	Began  int64  // by its clock; a round that is older than two Graces is forgotten
	Spoken []string
}

// Turn takes part in the round (E1, E4). It belongs to an Open or Renew that answered Alive.
func (s *Sessions) Turn(m Moment, id string, c RoundCall) (r Round) {
	x := s.Round
	if x.Server != s.Name || m.Now >= x.Began+2*s.length(m) {
		x = SpokenRound{}
	}
	if c.Begin != "" && c.After == x.Name && c.Begin != x.Name {
		x = SpokenRound{Name: c.Begin, Server: s.Name, Began: m.Now}
	}
	if c.Spoke != "" && c.Spoke == x.Name && !slices.Contains(x.Spoken, id) {
		x.Spoken = append(slices.Clone(x.Spoken), id)
	}
	s.Round = x
	if r.Name = x.Name; c.Ask && x.Name != "" && (s.complete() || !guard.TableGrace) {
		r.Complete = true
		for id, member := range s.Members {
			lives := m.Now < member.Expiry
			if s.GraceEnd != 0 && s.opened() && guard.Unexpired { // by the clock of another server, and with a renewal that this one may lack
				lives = member.TTL > 0
			}
			if lives && !slices.Contains(x.Spoken, id) && guard.Spoken {
				r.Complete = false
			}
		}
	}
	return r
}

// GraceName names the Grace that the partition is in (E2); "": it is in none, or in one that began
// for another reason than that the server is another one. It keeps its name when the server takes
// another one.
func (p *Partition) GraceName() string {
	if p.GraceEnd == 0 || p.GraceEnd != p.Changed {
		return ""
	}
	return cmp.Or(p.Process, p.Server) + " " + strconv.FormatInt(p.GraceEnd, 10)
}

// EndGrace is [Rounder.EndGraces] of one partition (E5), and reports whether it has ended. Its next
// epoch is half a Grace ahead of the clock: above those that this failover has lost. The next
// failover may lose the epochs that follow. It is below the clock at the end of that one's Grace,
// or below that one's early end, as sessions speak apart (E3).
func (p *Partition) EndGrace(m Moment, name string) bool {
	p.enter(m)
	if p.GraceEnd == 0 || name == "" || p.GraceName() != name && guard.GraceNamed {
		return false
	}
	p.GraceEnd, p.Changed = 0, m.Now+m.Grace/2
	if p.Owner == "" {
		p.advance(m, "")
	}
	return true
}

// Graces implements [Rounder].
func (n *memory) Graces(ctx context.Context, partitions []uint32) []NamedGrace {
	all := make([]NamedGrace, len(partitions))
	err := n.do(ctx, func(Moment) {
		for i, p := range partitions {
			all[i] = NamedGrace{Partition: p, Name: n.space.parts[p].GraceName()}
		}
	})
	for i := range all {
		all[i].Err = err
	}
	return all
}

// EndGraces implements [Rounder].
func (n *memory) EndGraces(ctx context.Context, graces []NamedGrace) []EndedGrace {
	all := make([]EndedGrace, len(graces))
	err := n.do(ctx, func(m Moment) {
		for i, g := range graces {
			x := &all[i]
			x.Err = n.attempt(m, g.Partition, func(m Moment, p *Partition) { x.Ended = p.EndGrace(m, g.Name) })
		}
	})
	if err != nil {
		return slices.Repeat([]EndedGrace{{Err: err}}, len(graces))
	}
	return all
}

// Openings implements [Rounder].
func (n *memory) Openings() bool { return n.arbiter.openings }

// TellRound implements [Rounder].
func (n *memory) TellRound(ctx context.Context) error { return n.tellAll(ctx, Message{Kind: Changes}) }
