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

// tokens are those of a key that callers were given.
type tokens struct {
	mu      sync.Mutex // protects the fields below
	given   map[uint64]bool
	highest uint64
}

func (x *tokens) top() uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.highest
}

// give notes one. It returns the highest of before, and whether this one was given to another
// caller.
func (x *tokens) give(token uint64) (highest uint64, twice bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	highest, twice = x.highest, x.given[token]
	if x.given == nil {
		x.given = make(map[uint64]bool)
	}
	x.given[token], x.highest = true, max(highest, token)
	return highest, twice
}

// hold locks a key, and holds it for a moment. wrong is the fault of its token, if it has one. lost
// says that the lock was lost meanwhile. hold returns an error if it does not get the key.
//
// Each token is another one, and higher than all that callers had when this one asked: its grant
// comes after theirs, whatever became of their locks, and of this one. While the lock is in force,
// no other caller may have a higher one. It is in force for as long as its context has not ended,
// and until Unlock if that has no error.
func (x *tokens) hold(ctx context.Context, c *coord.Coordinator, key string) (lost bool, wrong string, err error) {
	asked := x.top()
	l, err := c.Lock(ctx, key)
	if err != nil {
		return false, "", err
	}
	fence := uint64(l.Fence())
	early, twice := x.give(fence)
	select {
	case <-l.Context().Done():
	case <-time.After(rand.N(20 * time.Millisecond)):
	}
	late := x.top()
	inForce := l.Context().Err() == nil // it looks at the clock, so it was when late was looked at
	lost = l.Unlock() != nil
	switch {
	case twice:
		wrong = fmt.Sprintf("token %d was given out twice", fence)
	case fence <= asked:
		wrong = fmt.Sprintf("token %d was given to a caller that came when there was %d", fence, asked)
	case lost && !inForce: // others may have come
	case early > fence:
		wrong = fmt.Sprintf("token %d after %d", fence, early)
	case late > fence:
		wrong = fmt.Sprintf("token %d was given out while %d was held", late, fence)
	}
	return lost, wrong, nil
}

// NoTwoHolders has coordinators lock keys, each on an arbiter that start makes, while injuries are
// done to the store, one after another. Tokens have to rise, also those of locks that are lost, and
// none may be given out of a key that is held. After each injury there must be locks again. It
// returns how many locks were lost.
func NoTwoHolders(t *testing.T, start func() fallback.Arbiter, injuries ...func()) (lost int64) {
	t.Helper()
	return NoTwoHoldersWith(t, coord.Options{SessionTTL: 3 * time.Second}, start, injuries...)
}

// judged returns options of coordinators that the judge watches.
func judged(opts coord.Options) *coord.Options {
	opts.Namespace, opts.Partitions = "judged", 8
	return &opts
}

// NoTwoHoldersWith is NoTwoHolders of coordinators with options, but for Namespace and Partitions.
func NoTwoHoldersWith(t *testing.T, opts coord.Options, start func() fallback.Arbiter, injuries ...func()) (lost int64) {
	t.Helper()
	var given [judgedKeys]tokens
	var locks, ends atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var work sync.WaitGroup
	for i := range 3 {
		c, err := Join(t, start(), judged(opts))
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
					lost, wrong, err := given[k].hold(ctx, c, fmt.Sprint("key ", k))
					if err != nil {
						time.Sleep(10 * time.Millisecond)
						continue
					}
					locks.Add(1)
					if lost {
						ends.Add(1)
					}
					if wrong != "" {
						t.Errorf("coordinator %d, key %d, lost: %t: %s", i, k, lost, wrong)
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
	t.Logf("%d injuries, %d locks, %d lost", len(injuries), locks.Load(), ends.Load())
	return ends.Load()
}

// TokensRise checks that tokens rise over a restore of older data while no process runs. marked
// marks the data as others than before: without it no process would know of the tokens that were
// given out since the copy.
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

// AtRest logs the costs of processes at rest. Each of them holds a lock.
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

// Rest starts nodes without a cluster. Each of them holds a lock. It returns by how much the counts
// of look rise at rest, for each node and hour.
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
	time.Sleep(5 * time.Second) // the costs of the start are not at rest
	from := look()
	time.Sleep(while)
	hour = look()
	for name := range hour {
		hour[name] = (hour[name] - from[name]) * int64(time.Hour/while) / int64(nodes)
	}
	return hour
}

// Crowd has many nodes. Each of them holds a lock for the time given. It logs how many of the locks
// were lost, and the nodes' requests to the store.
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
