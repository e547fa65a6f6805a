package coord_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
)

// free checks that no key is locked.
func free(t *testing.T, c *coord.Coordinator, keys ...string) {
	t.Helper()
	for _, key := range keys {
		l, err := c.TryLock(t.Context(), key)
		if err != nil {
			t.Errorf("%s: %v", key, err)
			continue
		}
		unlock(t, l)
	}
}

func TestLockAll_EachKeyOnce(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		locks, err := c.LockAll(t.Context(), "b", "a", "b", "c")
		if err != nil || len(locks) != 3 {
			t.Fatal(locks, err)
		}
		for _, key := range []string{"a", "b", "c"} {
			if locks.Of(key).Fence() == 0 {
				t.Errorf("no token for %s", key)
			}
			if _, err := c.TryLock(t.Context(), key); !errors.Is(err, coord.ErrLocked) {
				t.Errorf("%s: %v", key, err)
			}
		}
		if locks.Of("d") != (coord.Lock{}) {
			t.Error("a lock of a key that was not asked for")
		}
		if err := locks.Unlock(); err != nil {
			t.Error(err)
		}
		if err := locks.Unlock(); !errors.Is(err, coord.ErrUnlocked) {
			t.Error(err)
		}
		free(t, c, "a", "b", "c")
		if none, err := c.LockAll(t.Context()); err != nil || len(none) != 0 {
			t.Error(none, err)
		}
		if _, err := c.LockAll(t.Context(), "a", ""); !errors.Is(err, coord.ErrInvalidKey) {
			t.Error(err)
		}
		free(t, c, "a")
	})
}

// A caller that does not get all keys keeps none of them, however the wait ends.
func TestLockAll_AllOrNothing(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		keys := []string{"a", "b", "c", "d", "e"}
		for _, busy := range keys {
			l := lock(t, c, busy)
			rest := slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return k == busy })
			_, err := c.TryLockAll(t.Context(), keys...)
			if w, ok := errors.AsType[*coord.WaitError](err); !ok || w.Key != busy || !errors.Is(err, coord.ErrLocked) {
				t.Errorf("%s is locked: %v", busy, err)
			}
			free(t, c, rest...)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if _, err := c.LockAll(ctx, keys...); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, coord.ErrLocked) {
				t.Error(err)
			}
			cancel()
			free(t, c, rest...)
			unlock(t, l)
		}
		free(t, c, keys...)
	})
}

// A caller that waits for a key holds none that come later: so callers do not wait for each other
// in a circle, in one process and in several. over is a context whose time is up once it was asked.
type over struct {
	context.Context
	asked atomic.Bool
}

func (o *over) Err() error {
	if o.asked.Swap(true) {
		return context.DeadlineExceeded
	}
	return nil
}

// A caller whose time is up before it waits gets an error with the busy key.
func TestLockAll_TimeIsUpWithTheTry(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		l := lock(t, c, "a")
		_, err := c.LockAll(&over{Context: t.Context()}, "a")
		e, ok := errors.AsType[*coord.WaitError](err)
		if !ok || e.Key != "a" || !errors.Is(err, coord.ErrLocked) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		unlock(t, l)
		free(t, c, "a")
	})
}

func TestLockAll_NoCircle(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		var nodes []*coord.Coordinator
		for range 3 {
			nodes = append(nodes, start(t, a, nil))
		}
		var keys []string
		var holders [7]atomic.Int32
		for i := range holders {
			keys = append(keys, fmt.Sprint(i))
		}
		var work sync.WaitGroup
		for g := range 12 {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			work.Go(func() {
				for range 30 {
					some := slices.Clone(keys)
					r.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
					some = some[:1+r.IntN(4)]
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // a circle would last
					defer cancel()
					err := nodes[g%3].DoAll(ctx, some, func(ctx context.Context, locks coord.Locks) error {
						for _, l := range locks {
							if holders[l.Key()[0]-'0'].Add(1) != 1 {
								t.Errorf("%s has two holders (I1)", l.Key())
							}
						}
						time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond)
						for _, l := range locks {
							holders[l.Key()[0]-'0'].Add(-1)
						}
						return ctx.Err()
					})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		work.Wait()
		if err := nodes[0].DoAll(t.Context(), keys, func(context.Context, coord.Locks) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}

// Free keys of other nodes, or of the arbiter, cost one round trip together.
func TestLockAll_FreeKeysAreAskedForTogether(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		const trip = 20 * time.Millisecond
		f := &faulty{Arbiter: a}
		c := start(t, f, nil)
		f.set(func(string) fault { return fault{request: trip} })
		var keys []string
		for i := range 100 {
			keys = append(keys, fmt.Sprint("key ", i))
		}
		began := time.Now()
		locks, err := c.LockAll(t.Context(), keys...)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 8*trip {
			t.Errorf("100 keys took %v, a call takes %v", took, trip)
		}
		if err := locks.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// Keys of another node are had all, with the caller's label, or none: also if one is busy, or a
// function of Options.Trace panics.
func TestLockAll_OfAnotherNode(t *testing.T) {
	t.Parallel()
	store, o, other := fallback.NewMemory(), unhurried(), unhurried()
	o.Handoff.Linger, other.Handoff.Linger = -1, -1 // a try is not refused for a kept key
	var panics atomic.Pointer[string]               // a key
	o.Trace = &coord.Trace{Granted: func(_ context.Context, g coord.GrantInfo) {
		if key := panics.Load(); key != nil && g.Key == *key {
			panic("boom")
		}
	}}
	one, two := join(t, store, o), join(t, store, other)
	settled(t, 61, one, two)
	var keys []string
	for i := range 20 {
		keys = append(keys, fmt.Sprint("key ", i))
	}
	none := func(what string) {
		t.Helper()
		for _, key := range keys {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			l, err := two.Lock(ctx, key)
			if cancel(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			unlock(t, l)
		}
	}
	locks, err := one.LockAll(coord.WithLabel(t.Context(), "many"), keys...)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if _, err := two.TryLock(t.Context(), key); !errors.Is(err, coord.ErrLocked) {
			t.Errorf("%s: %v", key, err)
		}
		if info, err := two.Inspect(t.Context(), key); err != nil || info.Holder == nil || info.Holder.Label != "many" {
			t.Errorf("%s: %+v, %v", key, info, err)
		}
	}
	if err := locks.Unlock(); err != nil {
		t.Error(err)
	}
	none("unlocked")
	reads, err := one.LockClaims(t.Context(), coord.ForReading(keys...)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if _, err := two.TryLock(t.Context(), key); !errors.Is(err, coord.ErrLocked) {
			t.Errorf("%s is read: %v", key, err)
		}
	}
	if err := reads.Unlock(); err != nil {
		t.Error(err)
	}
	none("not read any more")
	for _, i := range []int{0, 10, 19} {
		l := lock(t, two, keys[i])
		if _, err := one.TryLockAll(t.Context(), keys...); !errors.Is(err, coord.ErrLocked) {
			t.Errorf("one is busy: %v", err)
		}
		if _, err := one.TryLockClaims(t.Context(), coord.ForReading(keys...)...); !errors.Is(err, coord.ErrLocked) {
			t.Errorf("one is busy: %v", err)
		}
		unlock(t, l)
		none("one was busy")
		panics.Store(&keys[i])
		await.Until(t, "it panics", func() (panicked bool) { // a released key may be on its way
			defer func() { panicked = recover() != nil }()
			_, _ = one.TryLockAll(t.Context(), keys...)
			return false
		})
		panics.Store(nil)
		none("a panic")
	}
}

// DoAll's context carries all of the locks, and ends with the first that is over.
func TestDoAll_Context(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		f := &faulty{Arbiter: a}
		c := start(t, f, nil)
		type mark struct{}
		outer, cancel := context.WithCancelCause(context.WithValue(t.Context(), mark{}, "value"))
		var inner context.Context
		err := c.DoAll(outer, []string{"x", "k", "y"}, func(ctx context.Context, locks coord.Locks) error {
			inner = ctx
			if ctx.Value(mark{}) != "value" {
				t.Error("the caller's values are missing")
			}
			for _, key := range []string{"x", "k", "y"} {
				if _, err := c.Lock(ctx, key); !errors.Is(err, coord.ErrHeld) {
					t.Errorf("%s: %v", key, err)
				}
			}
			if err := c.DoAll(ctx, []string{"a", "y"}, nil); !errors.Is(err, coord.ErrHeld) {
				t.Error(err)
			}
			return c.Do(ctx, "z", func(ctx context.Context, _ coord.Lock) error { every(t, ctx, c); return ctx.Err() })
		})
		if err != nil || context.Cause(inner) != coord.ErrUnlocked {
			t.Error(err, context.Cause(inner))
		}
		free(t, c, "a", "x", "k", "y", "z")

		why := errors.New("why")
		err = c.DoAll(outer, []string{"x", "k"}, func(ctx context.Context, _ coord.Locks) error {
			cancel(why)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, why) {
			t.Error(err)
		}
		err = c.DoAll(t.Context(), []string{"x", "k"}, func(ctx context.Context, _ coord.Locks) error {
			f.set(func(string) fault { return fault{lost: true} })
			<-ctx.Done()
			f.set(nil)
			return nil
		})
		if _, ok := errors.AsType[*coord.LossError](err); !ok || !errors.Is(err, coord.ErrLost) {
			t.Error(err)
		}
	})
}

// Keys that are claimed for reading are read together, and those for writing are not.
func TestLockClaims(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		one, two := start(t, a, nil), start(t, a, nil)
		claims := slices.Concat(coord.ForReading("catalogue", "both", "both"), coord.ForWriting("a", "both"))
		x, err := one.LockClaims(t.Context(), claims...)
		if err != nil || len(x.Writes) != 2 || len(x.Reads) != 1 || x.Fence("a") == 0 || x.Fence("catalogue") == 0 || x.Fence("other") != 0 {
			t.Fatalf("%+v, %v", x, err)
		}
		y, err := two.TryLockClaims(t.Context(), coord.Claim{Key: "b"}, coord.Claim{Key: "catalogue", Read: true})
		if err != nil || y.ReadOf("catalogue").Key() != "catalogue" || y.Of("b").Key() != "b" {
			t.Fatalf("beside a reader: %+v, %v", y, err)
		}
		for _, key := range []string{"a", "both", "catalogue"} {
			if _, err := two.TryLockClaims(t.Context(), coord.ForWriting("c", key)...); !errors.Is(err, coord.ErrLocked) {
				t.Errorf("%s: %v", key, err)
			}
		}
		if _, err := two.TryLockClaims(t.Context(), coord.ForReading("d", "both")...); !errors.Is(err, coord.ErrLocked) {
			t.Errorf("reading what is written: %v", err)
		}
		if err := errors.Join(x.Unlock(), y.Unlock()); err != nil {
			t.Error(err)
		}
		for _, key := range []string{"a", "b", "c", "d", "both", "catalogue"} {
			unlock(t, lock(t, one, key)) // it waits for a key that a process keeps for its next caller
		}
	})
}

// DoClaims' context carries all of the locks, and ends with the first that is over.
func TestDoClaims_Context(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		err := c.DoClaims(t.Context(), []coord.Claim{{Key: "w"}, {Key: "r", Read: true}, {Key: "s", Read: true}}, func(ctx context.Context, s coord.Claimed) error {
			for _, key := range []string{"w", "r", "s"} {
				if _, err := c.Lock(ctx, key); !errors.Is(err, coord.ErrHeld) {
					t.Errorf("%s: %v", key, err)
				}
			}
			if err := s.ReadOf("r").Unlock(); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, coord.ErrUnlocked) {
			t.Error(err)
		}
		for _, key := range []string{"w", "r", "s"} {
			unlock(t, lock(t, c, key))
		}
	})
}

// Callers that claim the same keys in several orders and modes do not wait for each other in a
// circle.
func TestLockClaims_NoCircle(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		nodes := []*coord.Coordinator{start(t, a, nil), start(t, a, nil), start(t, a, nil)}
		var readers, writers [5]atomic.Int32
		var work sync.WaitGroup
		for g := range 9 {
			r := rand.New(rand.NewPCG(2, uint64(g)))
			work.Go(func() {
				for range 25 {
					var claims []coord.Claim
					for _, i := range r.Perm(len(readers))[:1+r.IntN(4)] {
						claims = append(claims, coord.Claim{Key: fmt.Sprint(i), Read: r.IntN(2) == 0})
					}
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // a circle would last
					defer cancel()
					err := nodes[g%3].DoClaims(ctx, claims, func(context.Context, coord.Claimed) error {
						for _, x := range claims {
							i := x.Key[0] - '0'
							if x.Read && (readers[i].Add(1) < 1 || writers[i].Load() > 0) || !x.Read && (writers[i].Add(1) > 1 || readers[i].Load() > 0) {
								t.Errorf("%s has a writer and another holder (I1)", x.Key)
							}
						}
						time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
						for _, x := range claims {
							if i := x.Key[0] - '0'; x.Read {
								readers[i].Add(-1)
							} else {
								writers[i].Add(-1)
							}
						}
						return nil
					})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		work.Wait()
	})
}
