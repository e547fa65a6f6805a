package model

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/takes"
)

// namesWithin has a replication backlog that outlives Grace.
func namesWithin(promotions, restarts, renames uint8) *Naming {
	return &Naming{Promotions: promotions, Restarts: restarts, Renames: renames, Grants: 3, Ticks: 5, T: 2, Q: 3, TTL: 3}
}

func TestNames(t *testing.T) {
	takes.Seconds(t)
	exploreNames(t, map[string]*Naming{
		"promotions and backlogs": namesWithin(2, 0, 2),
		"restarts and backlogs":   namesWithin(0, 1, 1),
	})
}

func TestDeepNames(t *testing.T) {
	needsDeep(t)
	exploreNames(t, map[string]*Naming{
		"promotions and backlogs":             namesWithin(2, 0, 4),
		"restarts and backlogs":               namesWithin(0, 2, 2),
		"a promotion, a restart and backlogs": namesWithin(1, 1, 2),
	})
}

func exploreNames(t *testing.T, all map[string]*Naming) {
	t.Helper()
	for name, m := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if explain(t, m) != "" {
				t.Error("an invariant does not hold")
			}
		})
	}
}

// TestNameGuards takes each guard away, and expects that the key is granted twice, or a token comes
// out of order.
func TestNameGuards(t *testing.T) {
	for _, c := range []struct {
		name string
		off  NameGuard
		in   *Naming
		want Invariant
	}{
		{"SameProcess", SameProcess, namesWithin(0, 1, 2), I1},
		{"NoSuccessor", NoSuccessor, namesWithin(2, 0, 2), I1},
		{"RenameAdvance", RenameAdvance, namesWithin(2, 0, 2), I2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.in.Without, c.in.Check = c.off, c.want
			if explain(t, c.in) == "" {
				t.Error("it is not needed, as it seems")
			}
		})
	}
}

// TestNamesAreForgottenTooSoon has a backlog that does not outlive Grace: a limit, which DESIGN.md
// names.
func TestNamesAreForgottenTooSoon(t *testing.T) {
	m := namesWithin(2, 0, 3)
	m.TTL = 1
	if explain(t, m) == "" {
		t.Error("it is no limit, as it seems")
	}
}
