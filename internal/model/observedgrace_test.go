package model

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/takes"
)

func graceWithin() *ObservedGrace {
	return &ObservedGrace{T: 2, Q: 3, Deposed: 1, Renewals: 2, Late: 1, Failovers: 1, Ticks: 4}
}

func TestObservedGrace(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	if explain(t, graceWithin()) != "" {
		t.Error("a living session is declared dead")
	}
}

// TestObservedGraceGuards takes guards away, and expects that a living session is declared dead.
func TestObservedGraceGuards(t *testing.T) {
	for name, off := range map[string]GraceGuard{
		"GraceRefuses": GraceRefuses, "GraceLook": GraceLook, "GraceCompare": GraceCompare, "GraceAnew": GraceAnew, "BeatUnique": BeatUnique,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if off == GraceCompare || off == GraceAnew || off == BeatUnique {
				takes.Seconds(t)
			}
			m := graceWithin()
			m.Without, m.Deposed, m.Q = off, 0, 2
			if off == GraceCompare || off == GraceAnew {
				m.Failovers = 2
			}
			if explain(t, m) == "" {
				t.Error("it is not needed, as it seems")
			}
		})
	}
}
