package coord_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/coordtest"
)

// On a store without results an observer is listed as a session. It takes a longer Grace over as
// nodes do, so that a process starts that needs one, and its own calls begin no shorter one.
func TestObserve_ALongerGraceWithoutResults(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fallback.Memory) {
		store := new(coordtest.Store)
		a := fallback.NewRecords(store, &fallback.RecordsOptions{ColdStart: true})
		start(t, a, &coord.Options{Name: "anna"})
		op := start(t, a, &coord.Options{Name: "op", Observe: true})
		time.Sleep(time.Minute) // it renews
		start(t, a, &coord.Options{Name: "berta", SessionTTL: 20 * time.Second})
		if n := sessions(t, a); n != 3 {
			t.Errorf("%d sessions, want those of two nodes and the observer", n)
		}
		store.FailOver()
		beginsGraceOf(t, op, 24*time.Second) // that of berta
	})
}

// An observer that starts while others take a longer Grace over waits for them, as nodes do.
func TestObserve_StartsWhileGraceIsMadeLonger(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fallback.Memory) {
		a := fallback.NewRecords(new(coordtest.Store), &fallback.RecordsOptions{ColdStart: true})
		start(t, a, &coord.Options{Name: "anna"})
		begun := make(chan *coord.Coordinator, 1)
		go func() {
			c, err := coord.New(context.Background(), a, withFew(&coord.Options{Name: "berta", SessionTTL: 20 * time.Second}))
			if err != nil {
				t.Error(err)
			}
			begun <- c
		}()
		time.Sleep(time.Millisecond) // berta has said what it needs
		start(t, a, &coord.Options{Name: "op", Observe: true})
		if berta := <-begun; berta != nil {
			if err := berta.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}

// sessions returns how many the arbiter lists.
func sessions(t *testing.T, a fallback.Arbiter) int {
	t.Helper()
	found, err := a.(fallback.Describer).Describe(t.Context(), "holdfast")
	if err != nil {
		t.Fatal(err)
	}
	ns, err := a.Attach(t.Context(), found)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	all, err := ns.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
