package coord_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/crash"
)

// downgrades lets callers of several processes write, downgrade and read, and checks that no writer
// comes in between.
func downgrades(t *testing.T, rounds int, all ...*coord.Coordinator) {
	t.Helper()
	var readers, writers, together atomic.Int32
	var written atomic.Int64 // by writers
	var work sync.WaitGroup
	for i, c := range all {
		for j := range 4 {
			work.Go(func() {
				for n := range rounds {
					if (n+i+j)%3 == 0 {
						l := rlock(t, c, "k")
						if readers.Add(1) > 1 {
							together.Add(1)
						}
						if writers.Load() != 0 {
							t.Error("a reader beside a writer")
						}
						time.Sleep(200 * time.Microsecond)
						readers.Add(-1)
						runlock(t, l)
						continue
					}
					l := lock(t, c, "k")
					if writers.Add(1) != 1 || readers.Load() != 0 {
						t.Error("a writer is not alone")
					}
					mine := written.Add(1)
					readers.Add(1)
					writers.Add(-1)
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					r, err := l.Downgrade(ctx)
					cancel()
					if err != nil {
						t.Error(err)
						return
					}
					if r.Fence() <= l.Fence() {
						t.Errorf("token %v after %v", r.Fence(), l.Fence())
					}
					if err := l.Unlock(); !errors.Is(err, coord.ErrUnlocked) {
						t.Errorf("the write lock: %v", err)
					}
					time.Sleep(200 * time.Microsecond)
					if written.Load() != mine {
						t.Error("a writer came in between")
					}
					readers.Add(-1)
					runlock(t, r)
				}
			})
		}
	}
	work.Wait()
	if together.Load() == 0 {
		t.Error("no reader beside another")
	}
	for _, c := range all {
		unlock(t, lock(t, c, "k"))
	}
}

func TestDowngrade_AtTheArbiter(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		downgrades(t, 40, start(t, a, nil), start(t, a, nil), start(t, a, nil))
	})
}

func TestDowngrade_InACluster(t *testing.T) {
	t.Parallel()
	store := fallback.NewMemory()
	var nodes []*coord.Coordinator
	for range 3 {
		nodes = append(nodes, join(t, store, unhurried()))
	}
	downgrades(t, 20, nodes...)
}

// Readers of all processes are let in beside the one that was a writer, and a writer waits for it.
func TestDowngrade_LetsReadersIn(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		one, two := start(t, a, nil), start(t, a, nil)
		l := lock(t, one, "k")
		ctx := l.Context()
		var all sync.WaitGroup
		var inside [2]coord.ReadLock
		for i, c := range []*coord.Coordinator{one, two} {
			all.Go(func() { inside[i] = rlock(t, c, "k") })
		}
		synctest.Wait()
		r, err := l.Downgrade(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if !errors.Is(context.Cause(ctx), coord.ErrUnlocked) || r.Key() != "k" {
			t.Errorf("%v, key %q", context.Cause(ctx), r.Key())
		}
		for _, c := range []*coord.Coordinator{one, two} {
			if _, err := c.TryLock(t.Context(), "k"); !errors.Is(err, coord.ErrLocked) {
				t.Errorf("a writer beside readers: %v", err)
			}
		}
		runlock(t, inside[0])
		runlock(t, inside[1])
		all.Go(func() { unlock(t, lock(t, two, "k")) })
		<-r.Wanted()
		runlock(t, r)
		all.Wait()
	})
}

// A lock that has ended is not made one for reading, and one that cannot be stays exclusive.
func TestDowngrade_Refused(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		f := &faulty{Arbiter: a}
		one, two := start(t, f, nil), start(t, a, nil)
		if _, err := (coord.Lock{}).Downgrade(t.Context()); !errors.Is(err, coord.ErrUnlocked) {
			t.Error(err)
		}
		l := lock(t, one, "k")
		unlock(t, l)
		if _, err := l.Downgrade(t.Context()); !errors.Is(err, coord.ErrUnlocked) {
			t.Errorf("unlocked: %v", err)
		}
		l = lock(t, one, "k")
		f.set(func(string) fault { return fault{lost: true} })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Downgrade(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without an arbiter: %v", err)
		}
		if _, err := two.TryLock(t.Context(), "k"); !errors.Is(err, coord.ErrLocked) {
			t.Errorf("beside it: %v", err)
		}
		<-l.Context().Done()
		f.set(nil)
		if _, err := l.Downgrade(t.Context()); !errors.Is(err, coord.ErrLost) {
			t.Errorf("lost: %v", err)
		}
		unlock(t, lock(t, two, "k"))
		runlock(t, rlock(t, one, "k"))
	})
}

// A lock that has ended is not made one for reading: Downgrade says so at once, and does not wait
// for the next holder, which may be the caller.
func TestDowngrade_OfALockThatHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c, other := start(t, a, nil), start(t, a, nil)
		says := func(name string, l coord.Lock, want error) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			r, err := l.Downgrade(ctx)
			if d := time.Since(began); !errors.Is(err, want) || d > time.Second {
				t.Errorf("%s: after %v: %v", name, d, err)
			}
			if err == nil {
				_ = r.Unlock()
			}
		}
		l := lock(t, c, "k")
		r, err := l.Downgrade(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		says("a lock for reading has its place", l, coord.ErrUnlocked)
		if err := r.Unlock(); err != nil {
			t.Error(err)
		}
		l = lock(t, c, "k")
		unlock(t, l)
		next := lock(t, other, "k")
		says("another process has the key", l, coord.ErrUnlocked)
		unlock(t, next)
		l, err = c.LockFor(t.Context(), "k", time.Second)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		next = lock(t, other, "k")
		says("it was lost", l, coord.ErrLost)
		unlock(t, next)
	})
}

// It waits for the arbiter only: that is no circle, however long it takes.
func TestDowngrade_IsNoCircle(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		cut := &crash.Arbiter{Memory: a}
		c := start(t, cut, &coord.Options{DeadlockAfter: 500 * time.Millisecond})
		err := c.Do(t.Context(), "k", func(ctx context.Context, l coord.Lock) error {
			cut.Cut()
			time.AfterFunc(6*time.Second, cut.Mend)
			r, err := l.Downgrade(ctx)
			if err != nil {
				return err
			}
			return r.Unlock()
		})
		if err != nil {
			t.Error(err)
		}
	})
}
