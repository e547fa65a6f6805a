package sim

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/virtual"
)

// Where Grace may end early a node that leaves waits for one that does not answer, until its
// announced deadlines have passed. If its context ends before, it says so, and its session stays.
func TestClose_WaitsForANodeThatDoesNotAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		rounds bool
		within time.Duration
		waits  bool
	}{
		"it waits":                  {true, time.Minute, true},
		"its context ends":          {true, 3 * time.Second, false},
		"an arbiter without rounds": {false, time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			virtual.Test(t, func(t *testing.T) {
				net := newNetwork(1)
				net.bad = t.Errorf
				a := fallback.NewMemory()
				if tt.rounds {
					a.OpenOnReplicas()
				}
				nodes, hosts, stop := settledAt(t, net, a, 2, &coord.Options{Cluster: &coord.Cluster{Takeover: -1}})
				defer stop()
				time.Sleep(time.Minute)
				hosts[1].die()
				ctx, cancel := context.WithTimeout(t.Context(), tt.within)
				defer cancel()
				begin := time.Now()
				err := nodes[0].Close(ctx)
				took := time.Since(begin)
				switch {
				case tt.waits && (err != nil || took < 5*time.Second || took > 10*time.Second): // SessionTTL
					t.Errorf("it closed after %v: %v", took, err)
				case !tt.waits && !tt.rounds && (err != nil || took > 3*time.Second):
					t.Errorf("it closed after %v: %v", took, err)
				case !tt.waits && tt.rounds && !errors.Is(err, context.DeadlineExceeded):
					t.Errorf("it closed after %v: %v", took, err)
				}
			})
		})
	}
}
