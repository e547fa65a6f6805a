package fallback

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/internal/guardians"
)

// Check refuses guardians that cannot be encoded.
func (g Guardians) Check() error {
	switch {
	case len(g.Set) > guardians.Max:
		return fmt.Errorf("%w: Guardians.Set has %d sessions, must have %d at most", ErrRefused, len(g.Set), guardians.Max)
	case g.Version == 0 && len(g.Set) > 0:
		return fmt.Errorf("%w: Guardians.Version is 0, must be positive where there is a Set", ErrRefused)
	}
	for i, id := range g.Set {
		if slices.Contains(g.Set[:i], id) {
			return fmt.Errorf("%w: Guardians.Set has %q twice", ErrRefused, id)
		}
	}
	return CheckNames("Guardians.Set", g.Set)
}

// CheckNames refuses names that have blanks or commas, or are empty.
func CheckNames(what string, ids []string) error {
	for _, id := range ids {
		if id == "" || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r == ',' || r == 0x7f }) {
			return fmt.Errorf("%w: %s has %q, must have names without blanks and commas", ErrRefused, what, id)
		}
	}
	return nil
}

// Encode returns the version, and the sessions, each after a comma. None are "".
func (g Guardians) Encode() string {
	if g.Version == 0 {
		return ""
	}
	return strings.Join(append([]string{strconv.FormatUint(uint64(g.Version), 10)}, g.Set...), ",")
}

// Guard records the guardians of a session, unless it has those of a later version, and returns the
// recorded version (G1). It belongs to an Open or Renew that answered Alive.
func (s *Sessions) Guard(id string, g Guardians) uint32 {
	x := s.Members[id]
	if g.Version > x.Guardians.Version || !guard.Rising {
		x.Guardians = Guardians{g.Version, slices.Clone(g.Set)}
		s.Members[id] = x
	}
	return x.Guardians.Version
}

// Bury is [Burier.Bury] (G6).
func (s *Sessions) Bury(m Moment, id string, version uint32, voters []string) Burial {
	l := s.Dead(m, id)
	b := Burial{Dead: l.Dead, Left: l.Left, Grace: l.Grace}
	if l.Dead || l.Grace != 0 && guard.NoneBuried {
		return b
	}
	g := s.Members[id].Guardians
	b.Version = g.Version
	votes := 0
	for _, guardian := range g.Set {
		if slices.Contains(voters, guardian) {
			votes++
		}
	}
	if _, enough := guardians.Quorum(len(g.Set)); (g.Version == version || !guard.Compares) && votes >= enough || !guard.Votes {
		// TTL 0: buried, which the entry says in a Grace to come.
		s.put(id, Member{Expiry: m.Now, TTL: 0, Terms: s.Members[id].Terms})
		return Burial{Dead: true}
	}
	return b
}
