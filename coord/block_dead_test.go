package coord_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/coordtest"
	"github.com/holdfast-go/holdfast/internal/crash"
)

// The permits of a crashed process are free soon after its session is dead. This holds also where
// the arbiter names another process's block as the one in the way: it names the oldest.
func TestBlock_OfADeadSessionBesideOneInUse(t *testing.T) {
	type acquirer = func(context.Context, *coord.Semaphore) (coord.Permits, error)
	waits := func(ctx context.Context, s *coord.Semaphore) (coord.Permits, error) { return s.Acquire(ctx, 5) }
	tries := func(ctx context.Context, s *coord.Semaphore) (p coord.Permits, err error) {
		for {
			if p, err = s.TryAcquire(ctx, 5); !errors.Is(err, coord.ErrLocked) || ctx.Err() != nil {
				return p, err
			}
			time.Sleep(500 * time.Millisecond)
		}
	}
	for _, x := range []struct {
		name    string
		order   []int
		acquire acquirer
	}{
		{"it is older", []int{0, 1}, waits},
		{"it is younger", []int{1, 0}, waits},
		{"it is older, for a caller that tries", []int{0, 1}, tries},
		{"it is younger, for a caller that tries", []int{1, 0}, tries},
	} {
		t.Run(x.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				cut := &crash.Arbiter{Memory: a}
				of := func(a fallback.Arbiter) *coord.Semaphore { return coordtest.StartDefault(t, a, nil).Semaphore("k", 10) }
				processes := []*coord.Semaphore{of(cut), of(a)}
				var held [2]coord.Permits
				for _, i := range x.order {
					held[i] = acquire(t, processes[i], 5)
				}
				cut.Cut()
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				p, err := x.acquire(ctx, of(a))
				if d := time.Since(began); err != nil || d < 9*time.Second || d > 20*time.Second {
					t.Errorf("after %v: %v", d, err)
				}
				release(t, p, held[1])
				cut.Mend()
			})
		})
	}
}

// They are found soon also where callers wait for a great many keys: that one is looked at does not
// forget when the others are to be.
func TestBlock_OfADeadSession_ManyKeys(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		const n = 600
		cut := &crash.Arbiter{Memory: a}
		crashes, uses, wants := coordtest.StartDefault(t, cut, nil), coordtest.StartDefault(t, a, nil), coordtest.StartDefault(t, a, nil)
		var has []coord.Permits
		for i := range n {
			has = append(has, acquire(t, uses.Semaphore(fmt.Sprint(i), 10), 5))
			acquire(t, crashes.Semaphore(fmt.Sprint(i), 10), 5)
		}
		cut.Cut()
		began := time.Now()
		var work sync.WaitGroup
		for i := range n {
			work.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				p, err := wants.Semaphore(fmt.Sprint(i), 10).Acquire(ctx, 5)
				if d := time.Since(began); err != nil || d > 20*time.Second {
					t.Errorf("after %v: %v", d, err)
				}
				release(t, p)
			})
		}
		work.Wait()
		release(t, has...)
		cut.Mend()
	})
}
