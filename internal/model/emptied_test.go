package model

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/takes"
)

func emptiedWithin() *Emptied { return &Emptied{T: 2, Q: 3, Wipes: 2, Ticks: 6} }

func TestEmptied(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	if explain(t, emptiedWithin()) != "" {
		t.Error("a key has two holders")
	}
}

// TestEmptiedGuards takes guards away, and expects that a key has two holders.
func TestEmptiedGuards(t *testing.T) {
	for name, off := range map[string]EmptiedGuard{"NewGrace": NewGrace, "AbsentGrace": AbsentGrace, "NewGraceAnew": NewGraceAnew,
		"MadeGrace": MadeGrace, "MadeAnew": MadeAnew, "MadeFirst": MadeFirst} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := emptiedWithin()
			m.Without = off
			if explain(t, m) == "" {
				t.Error("it is not needed, as it seems")
			}
		})
	}
}

// TestEmptiedGrants shows that the search is not empty: once the holder is gone, the key is
// granted.
func TestEmptiedGrants(t *testing.T) {
	t.Parallel()
	m := emptiedWithin()
	m.Q = 1 // shorter than the lease
	if explain(t, m) == "" {
		t.Error("the key is never granted")
	}
}
