//go:build unix

package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
)

const (
	judgedKeys = 3
	advance    = 50 // locks between two injuries
)

// NoTwoHolders has coordinators lock keys, each on an arbiter that start makes, while injuries are
// done to the store, one after another. Tokens have to rise, and none may be given out of a key
// that is held. After each injury there must be locks again.
func NoTwoHolders(t *testing.T, start func() fallback.Arbiter, injuries ...func()) {
	t.Helper()
	var tokens [judgedKeys]atomic.Uint64
	var locks, lost atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var work sync.WaitGroup
	for i := range 3 {
		c, err := Join(t, start(), &coord.Options{Namespace: "judged", Partitions: 8, SessionTTL: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			end, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			_ = c.Close(end) // a hold that was lost is an error there
		}()
		for range 4 {
			work.Go(func() {
				for ctx.Err() == nil {
					k := rand.IntN(judgedKeys)
					l, err := c.Lock(ctx, fmt.Sprint("key ", k))
					if err != nil {
						time.Sleep(10 * time.Millisecond)
						continue
					}
					fence := uint64(l.Fence())
					early := tokens[k].Swap(fence)
					select {
					case <-l.Context().Done():
					case <-time.After(rand.N(20 * time.Millisecond)):
					}
					late := tokens[k].Load()
					locks.Add(1)
					switch {
					case l.Unlock() != nil: // it was lost before, and others may have come
						lost.Add(1)
					case early >= fence:
						t.Errorf("coordinator %d: token %d of key %d after %d", i, fence, k, early)
					case late > fence:
						t.Errorf("coordinator %d: token %d of key %d was given out while %d was held", i, late, k, fence)
					}
				}
			})
		}
	}
	more := func(what string) {
		t.Helper()
		want := locks.Load() + advance
		await.Within(t, patience, what, func() bool { return locks.Load() >= want })
	}
	more("locks at first")
	for i, injure := range injuries {
		injure()
		more(fmt.Sprintf("locks after injury %d of %d", i+1, len(injuries)))
	}
	stop()
	work.Wait()
	t.Logf("%d injuries, %d locks, %d lost", len(injuries), locks.Load(), lost.Load())
}

// TokensRise checks that tokens rise over a restore of older data while no process runs. marked is what tells that the data are others
// than before: without it no process would know of the tokens that were given out since the copy.
func TokensRise(t *testing.T, start func() fallback.Arbiter, copied func() (back func()), marked func()) {
	t.Helper()
	var last uint64
	locks := func(n int, between func()) {
		t.Helper()
		c, err := Join(t, start(), &coord.Options{Namespace: "judged", Partitions: 1, SessionTTL: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if i == n/2 {
				between()
			}
			l, err := c.Lock(t.Context(), "key")
			if err != nil {
				t.Fatal(err)
			}
			if fence := uint64(l.Fence()); fence <= last {
				t.Errorf("token %d after %d", fence, last)
			} else {
				last = fence
			}
			_ = l.Unlock() // it may have been lost while the store was away
		}
		end, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_ = c.Close(end) // the same
	}
	var back func()
	locks(20, func() { back = copied() })
	back()
	marked()
	locks(2, func() {})
}

// Counted counts the calls of a store.
type Counted struct {
	fallback.Records
	Loads, Swaps, Keys, Changes atomic.Int64
}

// Load implements [fallback.Records].
func (c *Counted) Load(ctx context.Context, keys []string) (fallback.Look, error) {
	c.Loads.Add(1)
	c.Keys.Add(int64(len(keys)))
	return c.Records.Load(ctx, keys)
}

// Swap implements [fallback.Records].
func (c *Counted) Swap(ctx context.Context, server string, changes []fallback.Change) ([]bool, error) {
	c.Swaps.Add(1)
	c.Changes.Add(int64(len(changes)))
	return c.Records.Swap(ctx, server, changes)
}

// AtRest logs what processes cost at rest, each of which holds a lock.
func AtRest(t *testing.T, store fallback.Records, opts *fallback.RecordsOptions) {
	t.Helper()
	AtRestWith(t, store, opts, 0)
}

// AtRestWith is AtRest with a SessionTTL; 0 is the default.
func AtRestWith(t *testing.T, store fallback.Records, opts *fallback.RecordsOptions, ttl time.Duration) {
	t.Helper()
	for _, nodes := range []int{1, 10} {
		counted := &Counted{Records: store}
		o := coord.Options{Namespace: fmt.Sprint("rest-", nodes), SessionTTL: ttl}
		hour := Rest(t, nodes, o, func() fallback.Arbiter { return fallback.NewRecords(counted, opts) }, func() map[string]int64 {
			return map[string]int64{
				"reads": counted.Loads.Load(), "read": counted.Keys.Load(), "writes": counted.Swaps.Load(), "written": counted.Changes.Load(),
			}
		})
		t.Logf("%d nodes, for each and hour: %d reads of %d records, %d writes of %d records", nodes, hour["reads"], hour["read"],
			hour["writes"], hour["written"])
	}
}

// Rest starts nodes without a cluster, each of which holds a lock, and returns by how much what look counts rises at rest, for each
// node and hour.
func Rest(t *testing.T, nodes int, o coord.Options, start func() fallback.Arbiter, look func() map[string]int64) (hour map[string]int64) {
	t.Helper()
	for i := range nodes {
		c, err := Join(t, start(), &o)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			if err := c.Close(ctx); err != nil {
				t.Error(err)
			}
		}()
		l, err := c.Lock(t.Context(), fmt.Sprint("key ", i))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Unlock()
	}
	const while = 25 * time.Second
	time.Sleep(5 * time.Second) // what the start costs is not at rest
	from := look()
	time.Sleep(while)
	hour = look()
	for name := range hour {
		hour[name] = (hour[name] - from[name]) * int64(time.Hour/while) / int64(nodes)
	}
	return hour
}

// Crowd has many nodes, each of which holds a lock for the time given, and logs how many of those were lost, and what the nodes
// ask of the store.
func Crowd(t *testing.T, nodes int, while time.Duration, store fallback.Records, opts *fallback.RecordsOptions) {
	t.Helper()
	counted := &Counted{Records: store}
	all, errs := make([]*coord.Coordinator, nodes), make([]error, nodes)
	join := func(i int) {
		all[i], errs[i] = Join(t, fallback.NewRecords(counted, opts), &coord.Options{Namespace: "crowd"})
	}
	join(0) // it makes the namespace
	var starts sync.WaitGroup
	for i := range all[1:] {
		starts.Go(func() { join(i + 1) })
	}
	starts.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	var held []coord.Lock
	for i, c := range all {
		l, err := c.Lock(t.Context(), fmt.Sprint("key ", i))
		if err != nil {
			t.Error(err)
			continue
		}
		held = append(held, l)
	}
	time.Sleep(5 * time.Second)
	loads, swaps, began := counted.Loads.Load(), counted.Swaps.Load(), time.Now()
	time.Sleep(while)
	hours := time.Since(began).Hours() * float64(nodes)
	t.Logf("%d nodes, for each and hour: %.0f reads, %.0f writes", nodes, float64(counted.Loads.Load()-loads)/hours, float64(counted.Swaps.Load()-swaps)/hours)
	lost := 0
	for _, l := range held {
		if err := l.Unlock(); err != nil {
			if lost++; lost == 1 {
				t.Log("the first of them:", err)
			}
		}
	}
	t.Logf("%d of %d locks were lost in %v", lost, len(held), while)
	for _, c := range all {
		starts.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := c.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	starts.Wait()
	if lost > 0 {
		t.Error("locks were lost")
	}
}
