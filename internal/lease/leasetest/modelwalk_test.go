package leasetest

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/model"
)

// modelWalks is the number of replayed walks of the model for each kind of fault.
const modelWalks = 150

// modelFaults are the faults of walks, by kind.
var modelFaults = map[string]model.Model{
	"no faults":      {},
	"cuts":           {Faults: 2, Cuts: 2},
	"late messages":  {Faults: 2, Delays: 2},
	"failovers":      {Faults: 1, Failovers: 1, Lossy: true},
	"sessions' slot": {Faults: 1, SessionFailovers: 1},
}

// TestModelWalks lets the model do anything that it allows, and the core the same. The core
// violates nothing. Callers that get the key in the model get it in the core as well, as a rule:
// the core does at once some actions that are steps of their own in the model, so that they differ
// in the order.
func TestModelWalks(t *testing.T) {
	for name, m := range modelFaults {
		t.Run(name, func(t *testing.T) {
			walks := fewer(modelWalks, 5)
			same, all := 0, 0
			for seed := range uint64(walks) {
				broken, n, of := walkModel(t, m, seed)
				if broken != "" {
					t.Fatalf("seed %d: %s", seed, broken)
				}
				same, all = same+n, all+of
			}
			t.Logf("%d of %d grants are the same", same, all)
			if all < walks || same < all/2 {
				t.Errorf("%d of %d grants are the same", same, all)
			}
		})
	}
}

// walkModel replays a walk of the model. It returns a violation with its story, "" if there is
// none, and how many grants of the model were the core's as well.
func walkModel(t *testing.T, m model.Model, seed uint64) (broken string, same, all int) {
	t.Helper()
	m.Nodes, m.Requests, m.T, m.Q, m.Lag = 2, 2, 2, 3, 1
	steps, wrong := m.Walk(rand.New(rand.NewPCG(seed, 2)), 40)
	if wrong != "" {
		t.Fatal("the model:", wrong)
	}
	r := newReplay(false)
	for i, s := range steps {
		if r.step(t, s.Text); r.broken != "" {
			story := r.broken
			for _, x := range steps[:i+1] {
				story += "\n" + x.Text
			}
			return story, same, all
		}
		if strings.Contains(s.Text, "HOLDS") {
			all++
			if _, ok := r.Nodes[s.Holder-1].turns["k"]; ok {
				same++
			}
		}
	}
	return "", same, all
}
