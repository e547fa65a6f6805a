package coord_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/coordtest"
	"github.com/holdfast-go/holdfast/internal/crash"
)

// The permits of a crashed process are free as soon as its session is over and a caller has looked, however many other processes have some.
func TestAcquire_ADeadSessionAmongMany(t *testing.T) {
	for _, n := range []int{10, 100} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				cut := &crash.Arbiter{Memory: a}
				var has []coord.Permits
				for range n {
					has = append(has, acquire(t, coordtest.StartDefault(t, a, nil).Semaphore("k", n+1), 1))
				}
				acquire(t, coordtest.StartDefault(t, cut, nil).Semaphore("k", n+1), 1)
				wants := coordtest.StartDefault(t, a, nil)
				cut.Cut()
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
				defer cancel()
				p, err := wants.Semaphore("k", n+1).Acquire(ctx, 1)
				if d := time.Since(began); err != nil || d > 20*time.Second {
					t.Fatalf("after %v: %v", d, err)
				}
				release(t, append(has, p)...)
				cut.Mend()
			})
		})
	}
}
