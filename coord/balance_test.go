package coord_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// attach returns the namespace of coordinators with the options quick.
func attach(t *testing.T, a fallback.Arbiter) fallback.Namespace {
	t.Helper()
	ns, err := a.Attach(t.Context(), fallback.Settings{Namespace: "holdfast", Partitions: 61, Grace: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

// A key that a dead process has is freed also while the cluster does not come to rest. An example
// is a cut: others go on asking for partitions for its length.
func TestTheDeadAreFoundWhilePartitionsChangeHands(t *testing.T) {
	takes.Seconds(t)
	a := fallback.NewMemory()
	ns := attach(t, a)
	const key, ghost = "key", "ghost"
	its := uint32(xxhash.Sum64String(key) % 61)
	if _, err := ns.Open(t.Context(), ghost, fallback.Registration{TTL: 2 * time.Second}); err != nil {
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

// As long as the arbiter says that this node owns a partition, and the node does not, no caller
// gets its keys. One that only tries must not ask again and again meanwhile.
func TestTryLockDoesNotAskWithoutEnd(t *testing.T) {
	t.Parallel()
	a := fallback.NewMemory()
	ns := attach(t, a)
	c := join(t, a, quick())
	settle(t, 61, c)
	const key = "key"
	p := uint32(xxhash.Sum64String(key) % 61)
	r, err := ns.Load(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Revoke(t.Context(), p, r.Epoch, "somebody"); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the partition is given back", func() bool {
		if r, err = ns.Load(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		return r.Owner == ""
	})
	// As if the node had asked for it, and the answer were lost.
	got, err := ns.Acquire(t.Context(), p, c.Stats().Session, fallback.Expect{Epoch: r.Epoch})
	if err != nil || got.Verdict != fallback.Granted {
		t.Fatal(got, err)
	}
	before := c.Stats().Calls[coord.OpLock]
	if _, err := c.TryLock(t.Context(), key); !errors.Is(err, coord.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	if n := c.Stats().Calls[coord.OpLock] - before; n > 10 {
		t.Errorf("one TryLock made %d calls", n)
	}
}

// So it is while the arbiter does not take partitions back, as a part of it may be down: the
// balance waits for that.
func TestTheDeadAreFoundWhileAPartitionCannotBeGivenBack(t *testing.T) {
	takes.Seconds(t)
	a := fallback.NewMemory()
	ns := attach(t, a)
	const ghost = "ghost"
	if _, err := ns.Open(t.Context(), ghost, fallback.Registration{TTL: 2 * time.Second}); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for i := range 20 {
		keys = append(keys, fmt.Sprint("key", i))
		had, err := ns.Lock(t.Context(), fallback.LockRequest{
			Partition: uint32(xxhash.Sum64String(keys[i]) % 61), Key: keys[i], Me: fallback.Identity{Session: ghost, Request: uint64(i + 1)}, Block: 1,
		})
		if err != nil || had.Verdict != fallback.Granted {
			t.Fatal(had, err)
		}
	}
	net := &faulty{Arbiter: a}
	c := join(t, net, quick())
	defer net.mend()
	settle(t, 61, c)
	net.cut("demote")
	join(t, a, quick())
	await.Within(t, 10*time.Second, "it gives a partition back", func() bool { return c.Stats().Owned < 61 })
	await.Until(t, "the ghost is dead", func() bool {
		l, err := ns.Dead(t.Context(), ghost, fallback.Stamp{})
		if err != nil {
			t.Fatal(err)
		}
		return l.Dead
	})
	for _, key := range keys {
		if n, ok := c.Owner(key); !ok || !n.Self {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		l, err := c.Lock(ctx, key)
		if err != nil {
			t.Fatalf("after 8 s: %v", err)
		}
		unlock(t, l)
		return
	}
	t.Fatal("the node owns none of the keys")
}

// An owner that does not answer is asked once to give a partition back, and not for as long as
// callers wait: it may be dead.
func TestRevoke_OncePerEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := fallback.NewMemory()
		ns := attach(t, a)
		if _, err := ns.Open(t.Context(), "owner", fallback.Registration{TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		var asked atomic.Int32
		stop := must(ns.Listen(t.Context(), "owner", func(m fallback.Message) {
			if m.Kind == fallback.Revoked {
				asked.Add(1)
			}
		}))
		defer stop()
		p := uint32(xxhash.Sum64String("key") % 61)
		r := must(ns.Load(t.Context(), p))
		if got := must(ns.Acquire(t.Context(), p, "owner", fallback.Expect{Epoch: r.Epoch})); got.Verdict != fallback.Granted {
			t.Fatal(got)
		}
		c := must(coord.New(t.Context(), a, &coord.Options{Partitions: 61, SessionTTL: 3 * time.Second, Grace: 4 * time.Second}))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if l, err := c.Lock(ctx, "key"); err == nil {
			t.Errorf("granted: %v", l.Fence())
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("the owner was asked %d times", n)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
