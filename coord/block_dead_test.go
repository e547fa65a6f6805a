package coord_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/coordtest"
	"github.com/holdfast-go/holdfast/internal/crash"
)

// The permits of a process that crashed are free soon after its session is dead, also where the arbiter names another process's block as
// the one in the way: it names the oldest.
func TestBlock_OfADeadSessionBesideOneInUse(t *testing.T) {
	for name, order := range map[string][]int{"the dead one is older": {0, 1}, "the dead one is younger": {1, 0}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				cut := &crash.Arbiter{Memory: a}
				of := func(a fallback.Arbiter) *coord.Semaphore { return coordtest.StartDefault(t, a, nil).Semaphore("k", 10) }
				processes := []*coord.Semaphore{of(cut), of(a)}
				var held [2]coord.Permits
				for _, i := range order {
					held[i] = acquire(t, processes[i], 5)
				}
				cut.Cut()
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				p, err := of(a).Acquire(ctx, 5)
				if d := time.Since(began); err != nil || d < 9*time.Second || d > 20*time.Second {
					t.Errorf("after %v: %v", d, err)
				}
				release(t, p, held[1])
				cut.Mend()
			})
		})
	}
}
