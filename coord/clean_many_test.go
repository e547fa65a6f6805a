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

// The permits of a crashed process are free as soon as its session is over and a caller has looked.
// The number of other holders does not matter.
func TestAcquire_ADeadSessionAmongMany(t *testing.T) {
	t.Parallel()
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

// Rows of other keys in the partition are no reason to list all sessions: the few of the key
// that is wanted are asked about one by one.
func TestAcquire_ADeadSessionBesideOtherKeys(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		of := func(a fallback.Arbiter) *coord.Coordinator {
			o := &coord.Options{Partitions: 1, LongWait: time.Hour} // the record of a long wait lists, too
			return coordtest.StartDefault(t, a, o)
		}
		cut := &crash.Arbiter{Memory: a}
		var others []coord.Lock
		for i := range 20 {
			others = append(others, lock(t, of(a), fmt.Sprint("other", i)))
		}
		p := acquire(t, of(a).Semaphore("k", 10), 5)
		acquire(t, of(cut).Semaphore("k", 10), 5)
		cut.Cut()
		wants := of(a)
		began := time.Now()
		q := acquire(t, wants.Semaphore("k", 10), 5)
		if d := time.Since(began); d > 20*time.Second {
			t.Errorf("after %v", d)
		}
		if n := wants.Stats().Calls[coord.OpList]; n != 0 {
			t.Errorf("it has listed the sessions %d times", n)
		}
		release(t, p, q)
		for _, l := range others {
			unlock(t, l)
		}
		cut.Mend()
	})
}
