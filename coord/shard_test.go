package coord_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// Several servers have the partitions' data. All come back without their data, and then one dies:
// the holds that the others lost are reclaimed in time.
func TestADeadServerHoldsUpNoClaims(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		o := &coord.Options{Partitions: 61}
		here := start(t, net, o)
		held := make(map[string]coord.Lock)
		for i := range 4000 {
			key := fmt.Sprint("key-", i)
			held[key] = lock(t, here, key)
		}
		net.stop(func(p uint32, op string) bool { return p%2 == 0 && op == "reclaim" })
		a.Restore(nil)
		time.Sleep(10 * time.Second) // T; a hold that is not known by then was lost
		for _, key := range nothingLost(t, held, 61) {
			if held[key].Context().Err() == nil {
				t.Fatalf("%s is held, although nobody knows of it", key)
			}
		}
		net.stop(nil)
		for _, l := range held {
			_ = l.Unlock()
		}
	})
}

// nothingLost fails the test if a lock of an odd partition was lost, and returns the keys of the
// others, whose server does not answer.
func nothingLost(t *testing.T, held map[string]coord.Lock, partitions uint64) (dead []string) {
	t.Helper()
	n, lost := 0, 0
	for key, l := range held {
		if xxhash.Sum64String(key)%partitions%2 == 0 {
			dead = append(dead, key)
			continue
		}
		n++
		if l.Context().Err() != nil {
			lost++
		}
	}
	if lost > 0 || n < 1000 {
		t.Errorf("%d of %d were lost whose server is well", lost, n)
	}
	return dead
}

// The holds of a process are verified in calls for many partitions each, and each of them waits for
// a dead server. They do not wait for one another.
func TestADeadServerHoldsUpNoVerify(t *testing.T) {
	takes.Seconds(t)
	const partitions = 24_000
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		here := start(t, net, &coord.Options{Partitions: partitions})
		held := make(map[string]coord.Lock)
		for i := range 40_000 { // in four of five partitions
			key := fmt.Sprint("key-", i)
			held[key] = lock(t, here, key)
		}
		net.stop(func(p uint32, op string) bool { return p%2 == 0 && op == "verify" })
		time.Sleep(12 * time.Second) // T is 10 s: a hold that was not verified would be lost
		nothingLost(t, held, partitions)
		net.stop(nil)
		for _, l := range held {
			_ = l.Unlock()
		}
	})
}

// A key that is given back at a server that answers is free for others at once.
func TestADeadServerHoldsUpNoReleases(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		o := &coord.Options{Partitions: 61} // a call takes 1 s at most
		here, other := start(t, net, o), start(t, a, o)
		dead := func(p uint32, _ string) bool { return p%3 == 0 }
		keys := map[bool][]string{}
		for i := range 8000 {
			key := fmt.Sprint(i)
			of := dead(uint32(xxhash.Sum64String(key)%61), "")
			keys[of] = append(keys[of], key)
		}
		net.stop(dead)
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		for i := range 8 { // callers that want keys of the server that does not answer, and give up
			work.Go(func() {
				for n := i; ctx.Err() == nil; n += 8 {
					short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
					if _, err := here.Lock(short, keys[true][n%len(keys[true])]); err == nil {
						t.Error("a server that does not answer has granted")
					}
					cancel()
				}
			})
		}
		for i := range 8 { // and callers that use others, 800 a second altogether
			work.Go(func() {
				for n := 10 + i; ctx.Err() == nil; n += 8 {
					if l, err := here.Lock(ctx, keys[false][n%len(keys[false])]); err == nil {
						_ = l.Unlock()
					}
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		for i := range 10 {
			time.Sleep(500 * time.Millisecond)
			key := keys[false][i]
			unlock(t, lock(t, here, key))
			begin := time.Now()
			unlock(t, lock(t, other, key))
			if took := time.Since(begin); took > 100*time.Millisecond {
				t.Errorf("somebody else had a key of a server that is well after %v", took)
			}
		}
		cancel()
		work.Wait()
		net.stop(nil)
	})
}

// A caller that waits for a free key is not told that another one has it (rule 10).
func TestADeadServerIsNotSaidToBeLocked(t *testing.T) {
	takes.Seconds(t)
	net := &faulty{Arbiter: fallback.NewMemory()}
	net.stop(func(p uint32, op string) bool { return p%2 == 0 && op == "acquire" })
	defer net.stop(nil)
	c := join(t, net, quick())
	settle(t, 30, c) // of 61
	key := "a"
	for xxhash.Sum64String(key)%61%2 != 0 {
		key += "a"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := c.Lock(ctx, key); errors.Is(err, coord.ErrLocked) || !errors.Is(err, coord.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}

// After its ctx has ended, Close does not ask a server that does not answer for one partition after
// the other.
func TestADeadServerHoldsUpCloseForAFewCalls(t *testing.T) {
	t.Parallel()
	const partitions = 509
	net := &faulty{Arbiter: fallback.NewMemory()}
	o := quick()
	o.Partitions, o.SessionTTL, o.Grace, o.CallTimeout = partitions, time.Minute, 0, 300*time.Millisecond
	o.RenewEvery = 15 * time.Second
	c, err := coord.New(context.Background(), net, o)
	if err != nil {
		t.Fatal(err)
	}
	settle(t, partitions, c)
	var asked atomic.Int64
	net.stop(func(p uint32, op string) bool {
		if p%2 == 0 && op == "demote" {
			asked.Add(1)
		}
		return p%2 == 0
	})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Close(ended); !errors.Is(err, coord.ErrUnavailable) {
		t.Errorf("Close: %v", err)
	}
	if n := asked.Load(); n > partitions/4 { // 16 at a time, for two to three calls' time
		t.Errorf("%d calls that were not answered", n)
	}
}

// A node joins while the server of every other partition does not answer. It gets the rest at once.
func TestADeadServerHoldsUpNoPartitions(t *testing.T) {
	if testing.Short() {
		t.Skip("real sockets, and some seconds")
	}
	const partitions = 509 // each node gives more than balancers of those that no server answers for
	opts := func() *coord.Options {
		o := quick()
		o.Partitions, o.SessionTTL, o.RenewEvery, o.Grace = partitions, time.Minute, 15*time.Second, 0 // for so long a node asks to give one back
		return o
	}
	net := &faulty{Arbiter: fallback.NewMemory()}
	nodes := []*coord.Coordinator{join(t, net, opts()), join(t, net, opts())}
	settled(t, partitions, nodes...)
	net.stop(func(p uint32, op string) bool { return p%2 == 0 })
	defer net.stop(nil)
	third := join(t, net, opts())
	keys := make(map[uint32]string)
	for i := 0; len(keys) < partitions; i++ {
		key := fmt.Sprint(i)
		keys[uint32(xxhash.Sum64String(key)%partitions)] = key
	}
	await.Until(t, "it owns what it should own", func() bool {
		owned, want := third.Stats().Owned, 0
		for p, key := range keys {
			if n, ok := third.Owner(key); ok && n.Self && p%2 != 0 && len(third.Nodes()) == 3 {
				want++
			}
		}
		if want >= partitions*2/5 { // not all are there yet
			want = 0
		}
		return want > 0 && owned >= want
	})
}
