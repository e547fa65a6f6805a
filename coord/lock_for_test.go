package coord_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

func TestLockFor(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		one, two := start(t, a, nil), start(t, a, nil)
		for _, next := range []*coord.Coordinator{one, two} {
			began := time.Now()
			l, err := one.LockFor(t.Context(), "k", time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			later := lock(t, next, "k") // waits until the time is over
			if took := time.Since(began); took < time.Minute || took > time.Minute+5*time.Second {
				t.Errorf("the key was free after %v", took)
			}
			loss, _ := errors.AsType[*coord.LossError](context.Cause(l.Context()))
			if loss == nil || loss.Cause != coord.TimeOver || loss.Cause.String() != "time over" || loss.Fence != l.Fence() {
				t.Error(context.Cause(l.Context()))
			}
			if err := l.Unlock(); !errors.Is(err, coord.ErrLost) {
				t.Error(err)
			}
			unlock(t, later)
		}
		// Unlocked in time, it is over, and the next lock of the key is not ended.
		l, err := one.LockFor(t.Context(), "k", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		unlock(t, l)
		again := lock(t, one, "k")
		time.Sleep(2 * time.Minute)
		unlock(t, again)
		if _, err := one.LockFor(t.Context(), "k", 0); err == nil {
			t.Error("a lock for no time")
		}
		free(t, one, "k")
	})
}

// The same of keys of this node's own and of another's.
func TestLockFor_InACluster(t *testing.T) {
	t.Parallel()
	a := fallback.NewMemory()
	one, two := join(t, a, unhurried()), join(t, a, unhurried())
	settled(t, 61, one, two)
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		l, err := one.LockFor(t.Context(), key, 20*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		other := lock(t, two, key)
		if other.Fence() <= l.Fence() {
			t.Errorf("%s: token %d after %d (I2)", key, other.Fence(), l.Fence())
		}
		unlock(t, other)
		if err := l.Unlock(); !errors.Is(err, coord.ErrLost) {
			t.Error(err)
		}
	}
}
