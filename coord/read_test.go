package coord_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/takes"
)

func rlock(t *testing.T, c *coord.Coordinator, key string) coord.ReadLock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	l, err := c.RLock(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func runlock(t *testing.T, l coord.ReadLock) {
	t.Helper()
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
}

// Readers of all processes have a key together. A writer waits for all of them, and readers that
// come later wait behind it.
func TestRLock_BesideReadersOnly(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		one, two := start(t, a, nil), start(t, a, nil)
		x, y, z := rlock(t, one, "k"), rlock(t, one, "k"), rlock(t, two, "k")
		for _, c := range []*coord.Coordinator{one, two} {
			if _, err := c.TryLock(t.Context(), "k"); !errors.Is(err, coord.ErrLocked) {
				t.Errorf("a writer beside readers: %v", err)
			}
		}
		var order []string
		var mu sync.Mutex
		did := func(what string) {
			mu.Lock()
			order = append(order, what)
			mu.Unlock()
		}
		var all sync.WaitGroup
		all.Go(func() {
			l := lock(t, two, "k")
			did("writes")
			if _, err := one.TryRLock(t.Context(), "k"); !errors.Is(err, coord.ErrLocked) {
				t.Errorf("a reader beside a writer: %v", err)
			}
			time.Sleep(time.Second)
			did("has written")
			unlock(t, l)
		})
		time.Sleep(time.Second)
		var inside atomic.Int32
		for _, c := range []*coord.Coordinator{one, two, two} {
			all.Go(func() {
				l := rlock(t, c, "k")
				did("reads")
				inside.Add(1)
				for inside.Load() < 3 { // they are let in together
					time.Sleep(time.Millisecond)
				}
				if l.Fence() <= z.Fence() {
					t.Errorf("token %v after %v", l.Fence(), z.Fence())
				}
				runlock(t, l)
			})
		}
		time.Sleep(time.Second)
		if len(order) > 0 {
			t.Errorf("beside readers: %v", order)
		}
		<-x.Wanted()
		for _, l := range []coord.ReadLock{x, y, z} {
			runlock(t, l)
			if err := l.Unlock(); !errors.Is(err, coord.ErrUnlocked) {
				t.Errorf("twice: %v", err)
			}
		}
		all.Wait()
		if len(order) != 5 || order[0] != "writes" || order[1] != "has written" {
			t.Error(order)
		}
	})
}

// A caller of the same process that will not wait for the readers keeps no other reader out.
func TestRLock_ATryKeepsNoReaderOut(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		testATryKeepsNoReaderOut(t, start(t, a, nil), synctest.Wait)
	})
}

func TestRLock_ATryKeepsNoReaderOutAtTheOwner(t *testing.T) {
	t.Parallel()
	store := fallback.NewMemory()
	one := join(t, store, unhurried())
	settled(t, 61, one)
	testATryKeepsNoReaderOut(t, one, func() {})
}

func testATryKeepsNoReaderOut(t *testing.T, c *coord.Coordinator, rest func()) {
	l := rlock(t, c, "k")
	if _, err := c.TryLock(t.Context(), "k"); !errors.Is(err, coord.ErrLocked) {
		t.Errorf("a writer beside a reader: %v", err)
	}
	if _, err := c.Lock(l.Context(), "k"); !errors.Is(err, coord.ErrHeld) {
		t.Errorf("a reader that would write: %v", err)
	}
	rest()
	select {
	case <-l.Wanted():
		t.Error("no caller waits to write")
	default:
	}
	second, err := c.TryRLock(t.Context(), "k")
	if err != nil {
		t.Fatalf("a second reader: %v", err)
	}
	runlock(t, second)
	runlock(t, l)
	unlock(t, lock(t, c, "k"))
}

// A caller that gives up leaves nothing behind, whether others wait with it or not.
func TestRLock_GivingUp(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		l := lock(t, c, "k")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				var wait *coord.WaitError
				if _, err := c.RLock(ctx, "k"); !errors.Is(err, coord.ErrLocked) || !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &wait) || wait.Key != "k" {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Millisecond)
		all.Go(func() { runlock(t, rlock(t, c, "k")) }) // it waits with them, and has time
		time.Sleep(2 * time.Second)
		unlock(t, l)
		all.Wait()
		unlock(t, lock(t, c, "k"))
	})
}

// With the context of a lock a caller would wait for itself.
func TestRLock_Held(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		l, r := lock(t, c, "w"), rlock(t, c, "r")
		if _, err := c.RLock(l.Context(), "w"); !errors.Is(err, coord.ErrHeld) {
			t.Errorf("reading under a write lock: %v", err)
		}
		if _, err := c.Lock(r.Context(), "r"); !errors.Is(err, coord.ErrHeld) {
			t.Errorf("writing under a read lock: %v", err)
		}
		if _, err := c.TryLock(r.Context(), "r"); !errors.Is(err, coord.ErrHeld) {
			t.Errorf("trying to write under a read lock: %v", err)
		}
		ctx := r.Context()
		runlock(t, r)
		if context.Cause(ctx) != coord.ErrUnlocked {
			t.Error(context.Cause(ctx))
		}
		unlock(t, lock(t, c, "r"))
		unlock(t, l)
		err := c.RDo(t.Context(), "r", func(ctx context.Context, l coord.ReadLock) error {
			if _, err := c.Lock(ctx, "r"); !errors.Is(err, coord.ErrHeld) || l.Key() != "r" {
				t.Errorf("writing in RDo: %v", err)
			}
			return c.RDo(ctx, "other", func(context.Context, coord.ReadLock) error { return nil })
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// Readers are told that their lock is lost, each once, and another process can write.
func TestRLock_Lost(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		f := &faulty{Arbiter: a}
		one, two := start(t, f, nil), start(t, a, nil)
		x, y := rlock(t, one, "k"), rlock(t, one, "k")
		ctx := x.Context()
		f.set(func(string) fault { return fault{lost: true} })
		<-ctx.Done()
		var loss *coord.LossError
		if !errors.As(context.Cause(ctx), &loss) || loss.Key != "k" {
			t.Error(context.Cause(ctx))
		}
		for _, l := range []coord.ReadLock{x, y} {
			if err := l.Unlock(); !errors.Is(err, coord.ErrLost) {
				t.Errorf("%v", err)
			}
		}
		unlock(t, lock(t, two, "k"))
		f.set(nil)
		runlock(t, rlock(t, one, "k"))
	})
}

// Names of holds are no keys.
func TestRLock_InvalidKeys(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		name := fallback.SharedName("k", "somebody")
		if _, err := c.Lock(t.Context(), name); !errors.Is(err, coord.ErrInvalidKey) {
			t.Error(err)
		}
		if _, err := c.RLock(t.Context(), name); !errors.Is(err, coord.ErrInvalidKey) {
			t.Error(err)
		}
		if _, err := c.RLock(t.Context(), ""); !errors.Is(err, coord.ErrInvalidKey) {
			t.Error(err)
		}
		runlock(t, rlock(t, c, strings.Repeat("\xff", coord.MaxKey)))
	})
}

// scramble lets callers of several processes read, write and use permits at random, and checks that
// they keep to the rules.
func scramble(t *testing.T, rounds int, all ...*coord.Coordinator) {
	t.Helper()
	var readers, writers, permits, together atomic.Int32
	var work sync.WaitGroup
	for i, c := range all {
		for j := range 6 {
			work.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), uint64(j)))
				sem := c.Semaphore("k", 3)
				for range rounds {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+r.IntN(30_000))*time.Millisecond)
					switch k := r.IntN(6); {
					case k == 0:
						if l, err := c.Lock(ctx, "k"); err == nil {
							if writers.Add(1) != 1 || readers.Load() != 0 {
								t.Error("a writer is not alone")
							}
							time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
							writers.Add(-1)
							unlock(t, l)
						}
					case k <= 3:
						if l, err := c.RLock(ctx, "k"); err == nil {
							if readers.Add(1) > 1 {
								together.Add(1)
							}
							if writers.Load() != 0 {
								t.Error("a reader beside a writer")
							}
							time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
							readers.Add(-1)
							runlock(t, l)
						}
					default:
						n := 1 + r.IntN(3)
						if p, err := sem.Acquire(ctx, n); err == nil {
							if permits.Add(int32(n)) > 3 {
								t.Error("more permits than there are")
							}
							time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
							permits.Add(-int32(n))
							if err := p.Release(); err != nil {
								t.Error(err)
							}
						}
					}
					cancel()
				}
			})
		}
	}
	work.Wait()
	if together.Load() == 0 {
		t.Error("no two readers at the same time")
	}
}

func TestModes_AtTheArbiter(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		scramble(t, 60, start(t, a, nil), start(t, a, nil), start(t, a, nil))
	})
}

func TestModes_InACluster(t *testing.T) {
	t.Parallel()
	store := fallback.NewMemory()
	one, two, three := join(t, store, unhurried()), join(t, store, unhurried()), join(t, store, unhurried())
	var away sync.WaitGroup
	away.Go(func() { // partitions move meanwhile
		time.Sleep(200 * time.Millisecond)
		four := join(t, store, unhurried())
		runlock(t, rlock(t, four, "k"))
	})
	scramble(t, 60, one, two, three)
	away.Wait()
}

// An owner serves other nodes' readers and permits over the streams. The names of their holds are
// in the keys' partitions; as other names, which were in any partition, they were a protocol error,
// and the streams ended.
func TestModes_ByTheOwner(t *testing.T) {
	t.Parallel()
	store := fallback.NewMemory()
	one, two := join(t, store, unhurried()), join(t, store, unhurried())
	settled(t, 61, one, two)
	before := one.Stats()
	for i := range 40 {
		key := fmt.Sprint("k", i)
		runlock(t, rlock(t, one, key))
		p, err := one.Semaphore(key, 3).Acquire(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Release(); err != nil {
			t.Error(err)
		}
	}
	now := one.Stats()
	if n := now.Granted[coord.PathArbiter] - before.Granted[coord.PathArbiter]; n > 0 {
		t.Errorf("%d of 80 by the arbiter", n)
	}
	if n := now.Granted[coord.PathForwarded] - before.Granted[coord.PathForwarded]; n == 0 {
		t.Error("none by the other node")
	}
}

// Two processes that say different numbers of permits are told both, as long as there are some in
// use.
func differentSizes(t *testing.T, one, two *coord.Coordinator) {
	t.Helper()
	p, err := one.Semaphore("k", 3).Acquire(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	want := func(what string, err error) {
		t.Helper()
		e, ok := errors.AsType[*coord.SizeError](err)
		if !ok || *e != (coord.SizeError{Key: "k", Size: 5, InUse: 3}) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, c := range map[string]*coord.Coordinator{"this process": one, "another one": two} {
		sem := c.Semaphore("k", 5)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, err := sem.Acquire(ctx, 2)
		want(what, err)
		_, err = sem.TryAcquire(ctx, 2)
		want(what+", trying", err)
		cancel()
	}
	if err := p.Release(); err != nil {
		t.Error(err)
	}
	q, err := two.Semaphore("k", 5).Acquire(t.Context(), 5)
	if err != nil { // they are only kept, for the next caller of the process
		t.Fatal(err)
	}
	if err := q.Release(); err != nil {
		t.Error(err)
	}
}

func TestSemaphore_AnotherSize(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) { differentSizes(t, start(t, a, nil), start(t, a, nil)) })
}

// Kept permits are in the way of no caller that tries with another number of permits.
func TestSemaphore_AnotherSizeTried(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		keeps := &coord.Options{Handoff: coord.Handoff{Linger: time.Minute}}
		one, two := start(t, a, keeps), start(t, a, keeps)
		for i, c := range []*coord.Coordinator{one, two, two, one} {
			p, err := c.Semaphore("k", 3+i).TryAcquire(t.Context(), 2)
			if err != nil {
				t.Fatalf("%d: %v", i, err)
			}
			if err := p.Release(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestSemaphore_KeyThatLooksLikeAName(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		if _, err := start(t, a, nil).Semaphore("s1\x00\xff", 3).Acquire(t.Context(), 1); !errors.Is(err, coord.ErrInvalidKey) {
			t.Error(err)
		}
	})
}

func TestSemaphore_AnotherSizeInACluster(t *testing.T) {
	takes.Seconds(t)
	store := fallback.NewMemory()
	one, two := join(t, store, unhurried()), join(t, store, unhurried())
	differentSizes(t, one, two)
	differentSizes(t, two, one)
}

// A large request is not starved, and permits in use are not given out.
func TestSemaphore(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		one, two := start(t, a, nil), start(t, a, nil)
		acquire := func(c *coord.Coordinator, n int) coord.Permits {
			t.Helper()
			p, err := c.Semaphore("k", 3).Acquire(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		release := func(p coord.Permits) {
			t.Helper()
			if err := p.Release(); err != nil {
				t.Error(err)
			}
		}
		unlock(t, lock(t, one, "k")) // another thing
		x, y := acquire(one, 1), acquire(two, 2)
		if _, err := two.Semaphore("k", 3).TryAcquire(t.Context(), 1); !errors.Is(err, coord.ErrLocked) {
			t.Error(err)
		}
		var all sync.WaitGroup
		large := false
		all.Go(func() {
			p := acquire(two, 3)
			large = true
			release(p)
		})
		time.Sleep(time.Second)
		release(x)
		if _, err := one.Semaphore("k", 3).TryAcquire(t.Context(), 1); !errors.Is(err, coord.ErrLocked) {
			t.Errorf("before a larger request: %v", err)
		}
		all.Go(func() {
			p := acquire(one, 1)
			if !large {
				t.Error("a small request was served first")
			}
			release(p)
		})
		time.Sleep(time.Second)
		<-y.Wanted()
		release(y)
		all.Wait()
		if err := y.Release(); !errors.Is(err, coord.ErrUnlocked) || y.N() != 2 {
			t.Error(err)
		}
		p := acquire(one, 1)
		for _, n := range []int{0, -1, 4} {
			if _, err := one.Semaphore("k", 3).Acquire(t.Context(), n); err == nil {
				t.Errorf("%d permits of 3", n)
			}
		}
		for _, n := range []int{0, 2} {
			if _, err := one.Semaphore("k", n).Acquire(t.Context(), 1); err == nil {
				t.Errorf("a permit of %d, beside one of 3", n)
			}
		}
		release(p)
		err := one.Semaphore("k", 2).Do(t.Context(), 2, func(ctx context.Context) error { return ctx.Err() })
		if err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
}
