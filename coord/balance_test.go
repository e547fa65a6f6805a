package coord_test

import (
	"context"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/fallback"
)

// A key that a dead process has is freed also while the cluster does not come to rest, as in a cut for whose length others go on
// asking for partitions.
func TestTheDeadAreFoundWhilePartitionsChangeHands(t *testing.T) {
	a := fallback.NewMemory()
	settings := fallback.Settings{Namespace: "holdfast", Partitions: 61, Grace: 4 * time.Second}
	ns, err := a.Attach(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	const key, ghost = "key", "ghost"
	its := uint32(xxhash.Sum64String(key) % 61)
	if _, err := ns.Open(t.Context(), ghost, 2*time.Second, ""); err != nil {
		t.Fatal(err)
	}
	had, err := ns.Lock(t.Context(), fallback.LockRequest{
		Partition: its, Key: key, Me: fallback.Identity{Session: ghost, Request: 1}, Block: 1,
	})
	if err != nil || had.Verdict != fallback.Granted {
		t.Fatal(had, err)
	}
	c := join(t, a, quick())
	settle(t, 61, c)
	revoke := time.NewTicker(300 * time.Millisecond) // each is not taken again for 3 s
	defer revoke.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
	defer cancel()
	locked := make(chan error, 1)
	go func() {
		l, err := c.Lock(ctx, key)
		if err == nil {
			err = l.Unlock()
		}
		locked <- err
	}()
	for p := uint32(0); ; p = (p + 1) % 61 {
		select {
		case err := <-locked:
			if err != nil {
				t.Errorf("after 9 s: %v", err)
			}
			return
		case <-revoke.C:
		}
		if p == its {
			continue
		}
		r, err := ns.Load(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if err := ns.Revoke(t.Context(), p, r.Epoch, ghost); err != nil {
			t.Fatal(err)
		}
	}
}
