package coord_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
)

// A wall clock that steps forward ends its node's session. Keys that had no holder are free while
// the arbiter takes that session for alive; the locks of other nodes stay in force.
func TestSession_ClockStepFreesTheShare(t *testing.T) {
	t.Parallel()
	a := fallback.NewMemory()
	o := func() *coord.Options {
		o := quick()
		o.SessionTTL, o.RenewEvery, o.RetryEvery, o.Grace = 4*time.Minute, 2*time.Second, 50*time.Millisecond, 5*time.Minute
		o.Cluster.Takeover = -1 // a process that waits long for a processor would lose its session in another way
		return o
	}
	stepped, err := coord.New(t.Context(), a, o())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := stepped.Close(ctx); err != nil { // on a busy machine a partition may still be the old session's
			t.Logf("Close: %v", err)
		}
	})
	other, third := join(t, a, o()), join(t, a, o())
	settled(t, 61, stepped, other, third)
	ns, err := a.Attach(t.Context(), fallback.Settings{Namespace: "holdfast", Partitions: 61, Grace: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	session := ""
	for _, n := range stepped.Nodes() {
		if n.Self {
			session = n.Session
		}
	}
	var keys []string // of as many partitions
	for i, seen := 0, map[uint64]bool{}; len(keys) < 9; i++ {
		key := fmt.Sprint("key ", i)
		if n, ok := stepped.Owner(key); ok && n.Self && !seen[xxhash.Sum64String(key)%61] {
			seen[xxhash.Sum64String(key)%61] = true
			keys = append(keys, key)
		}
	}
	theirs, mine, free := keys[:3], keys[3:6], keys[6:]
	var held, lost []coord.Lock
	var told []<-chan struct{} // a holder that asks for it only now is told at once, and its key is free
	for i := range 3 {
		held, lost = append(held, lock(t, other, theirs[i])), append(lost, lock(t, stepped, mine[i]))
		told = append(told, lost[i].Context().Done())
	}
	if !coord.StepClock(stepped, session, 3600) {
		t.Fatal("the session has ended before the step")
	}
	for i, l := range lost {
		select {
		case <-told[i]:
		case <-time.After(30 * time.Second):
			t.Fatal("the holder is not told")
		}
		if _, cause := awaitLoss(t, l); cause != coord.SessionExpired {
			t.Error(cause)
		}
	}
	for _, key := range free {
		await.Until(t, "a key that had no holder is free", func() bool {
			l, err := third.TryLock(t.Context(), key)
			return err == nil && l.Unlock() == nil
		})
	}
	for i, key := range theirs {
		var l coord.Lock
		await.Until(t, "its partition has arrived", func() bool {
			l, err = third.TryLock(t.Context(), key)
			return !errors.Is(err, coord.ErrUnavailable)
		})
		if err == nil {
			t.Errorf("key %d had a holder, and was locked: %v", i, l)
		}
	}
	if d, err := ns.Dead(t.Context(), session, fallback.Stamp{}); err != nil || d.Dead {
		t.Errorf("by then the arbiter takes the session for dead: %+v, %v", d, err)
	}
	stillHeld(t, other, held)
	for _, l := range held {
		unlock(t, l)
	}
}
