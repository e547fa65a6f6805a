package coord_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
)

// On a machine that is too busy each answer takes longer than CallTimeout, 1 s. It counts all the
// same: no session and no lock is lost, also while an empty server takes the place of the one that
// had the rows.
func TestLate_AnswersCount(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		c := startDefault(t, net, nil)
		held := make(map[string]coord.Lock)
		for i := range 300 {
			key := fmt.Sprint("key ", i)
			held[key] = lock(t, c, key)
		}
		net.set(func(op string) fault {
			switch op {
			case "renew", "verify", "adopt", "reclaim":
				return fault{request: 900 * time.Millisecond, answer: 900 * time.Millisecond}
			}
			return fault{}
		})
		time.Sleep(30 * time.Second)
		a.Restore(nil)
		time.Sleep(30 * time.Second)
		for key, l := range held {
			if err := context.Cause(l.Context()); err != nil {
				t.Fatalf("%s: %v", key, err)
			}
			unlock(t, l)
		}
		if n := c.Stats().Sessions; n != 1 {
			t.Errorf("%d sessions", n)
		}
		net.mend()
		time.Sleep(5 * time.Second) // for the calls that are under way
	})
}

// An owner of many partitions reclaims them in a few calls, not by one for each.
func TestReclaim_OneCallForManyPartitions(t *testing.T) {
	const partitions = 509
	a := fallback.NewMemory()
	net := &rowCount{Arbiter: a}
	o := quick()
	o.Partitions = partitions
	c, err := coord.New(t.Context(), net, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Close(over) // in Grace nothing can be given back
	})
	settle(t, partitions, c)
	a.Restore(nil)
	await.Until(t, "all partitions are reclaimed", func() bool { return net.partitions.Load() >= partitions })
	if n := net.reclaimed.Load(); n > 4*(partitions+255)/256 { // some may have been asked for twice
		t.Errorf("%d calls for %d partitions", n, partitions)
	}
	if n := c.Stats().Owned; n != partitions {
		t.Errorf("it owns %d of %d partitions", n, partitions)
	}
}

// A server that is too busy to answer in time gets each release once, and few at a time. Else
// releases queue there ahead of the renewals: of 1,000,000 locks in a cluster all were lost, after
// one node had been killed.
func TestLate_ReleasesDoNotOverwhelmTheServer(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		const keys = 5000
		net := &faulty{Arbiter: a}
		c := startDefault(t, net, nil)
		var locks []coord.Lock
		for i := range keys {
			locks = append(locks, lock(t, c, fmt.Sprint("key ", i)))
		}
		var calls, first atomic.Int64 // in all, and before any was answered
		begun := time.Now()
		net.set(func(op string) fault {
			if op != "unlock" {
				return fault{}
			}
			if calls.Add(1); time.Since(begun) < 2*time.Second {
				first.Add(1)
			}
			return fault{request: 2 * time.Second} // CallTimeout is 1 s
		})
		for _, l := range locks {
			unlock(t, l)
		}
		time.Sleep(time.Minute)
		s := c.Stats()
		if s.Calls[coord.OpUnlock] != keys || s.Failed[coord.OpUnlock] != 0 || first.Load() > 4 {
			t.Errorf("%d locks took %d releases, %d failed; %d calls, %d of them before an answer",
				keys, s.Calls[coord.OpUnlock], s.Failed[coord.OpUnlock], calls.Load(), first.Load())
		}
		net.mend()
		time.Sleep(5 * time.Second) // for the calls that are under way
	})
}
