package coord_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// A taker takes a lock of some kind. The inner context carries it.
type taker func(ctx context.Context) (inner context.Context, release func() error, err error)

func locks(c *coord.Coordinator, key string) taker {
	return func(ctx context.Context) (context.Context, func() error, error) {
		l, err := c.Lock(ctx, key)
		return l.Context(), l.Unlock, err
	}
}

func reads(c *coord.Coordinator, key string) taker {
	return func(ctx context.Context) (context.Context, func() error, error) {
		l, err := c.RLock(ctx, key)
		return l.Context(), l.Unlock, err
	}
}

func acquires(c *coord.Coordinator, key string, n, of int) taker {
	return func(ctx context.Context) (context.Context, func() error, error) {
		p, err := c.Semaphore(key, of).Acquire(ctx, n)
		return p.Context(), p.Release, err
	}
}

// plainly takes the lock without a context of its own: with that of the task.
func plainly(take taker) taker {
	return func(ctx context.Context) (context.Context, func() error, error) {
		_, release, err := take(ctx)
		return ctx, release, err
	}
}

func downgrades1(c *coord.Coordinator, key string) taker {
	return func(ctx context.Context) (context.Context, func() error, error) {
		l, err := c.Lock(ctx, key)
		if err != nil {
			return nil, nil, err
		}
		r, err := l.Downgrade(ctx)
		return r.Context(), r.Unlock, err
	}
}

// looking starts a coordinator that looks for circles.
func looking(t *testing.T, a *fallback.Memory) *coord.Coordinator {
	t.Helper()
	return start(t, a, &coord.Options{DeadlockAfter: time.Second})
}

// entangle has callers that take a lock each, and then another one, each a moment after the one
// before. It returns the errors of the second ones, and how long it took. Callers give back their
// locks when they get the second one, or an error. It is for bubbles.
func entangle(t *testing.T, ctx context.Context, callers ...[2]taker) (errs []error, took time.Duration) {
	t.Helper()
	return entangleSo(t, ctx, func(int) { time.Sleep(5 * time.Millisecond) }, callers...)
}

// entangleSo calls begun with the number of each caller that has begun to take its second lock.
func entangleSo(t *testing.T, ctx context.Context, begun func(i int), callers ...[2]taker) (errs []error, took time.Duration) {
	t.Helper()
	errs = make([]error, len(callers))
	inner, releases := make([]context.Context, len(callers)), make([]func() error, len(callers))
	for i, x := range callers {
		var err error
		if inner[i], releases[i], err = x[0](coord.WithLabel(coord.WithLocker(ctx), fmt.Sprint("caller ", i))); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	var work sync.WaitGroup
	for i, x := range callers {
		work.Go(func() {
			var release func() error
			waits, cancel := context.WithTimeout(inner[i], time.Minute) // it does not end with ctx
			defer cancel()
			if _, release, errs[i] = x[1](waits); errs[i] == nil {
				if err := release(); err != nil {
					t.Error(err)
				}
			}
			if err := releases[i](); err != nil {
				t.Error(err)
			}
		})
		begun(i)
	}
	work.Wait()
	return errs, time.Since(began)
}

// onlyOne checks that one of the callers was sent away, and no other one, and that it was the
// youngest.
func onlyOne(t *testing.T, errs []error) *coord.DeadlockError {
	t.Helper()
	i := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if i < 0 || slices.ContainsFunc(errs[i+1:], func(err error) bool { return err != nil }) {
		t.Fatalf("%v", errs)
	}
	last := errs[i]
	d, ok := errors.AsType[*coord.DeadlockError](last)
	if !ok || !errors.Is(last, coord.ErrDeadlock) || !errors.Is(last, coord.ErrLocked) || errors.Is(last, context.Canceled) {
		t.Fatalf("the youngest got %v", last)
	}
	if _, ok := errors.AsType[*coord.WaitError](last); !ok {
		t.Errorf("%T", last)
	}
	for _, w := range d.Cycle {
		if w.Since.After(d.Cycle[0].Since) {
			t.Errorf("one is younger: %v", d)
		}
	}
	return d
}

func TestDeadlock_IsFound(t *testing.T) {
	for _, x := range []struct {
		name    string
		callers func(t *testing.T, c *coord.Coordinator) [][2]taker
		cycle   string
	}{
		{"two", func(t *testing.T, c *coord.Coordinator) [][2]taker {
			return [][2]taker{{locks(c, "a"), locks(c, "b")}, {locks(c, "b"), locks(c, "a")}}
		}, `"caller 1" of "one" has "b" and waits for "a"; "caller 0" of "one" has "a" and waits for "b"`},
		{"three", func(t *testing.T, c *coord.Coordinator) [][2]taker {
			return [][2]taker{{locks(c, "a"), locks(c, "b")}, {locks(c, "b"), locks(c, "c")}, {locks(c, "c"), locks(c, "a")}}
		}, `"caller 2" of "one" has "c" and waits for "a"; "caller 0" of "one" has "a" and waits for "b"; ` +
			`"caller 1" of "one" has "b" and waits for "c"`},
		{"plain locks of lockers", func(t *testing.T, c *coord.Coordinator) [][2]taker {
			return [][2]taker{{plainly(locks(c, "a")), locks(c, "b")}, {plainly(reads(c, "b")), locks(c, "a")}}
		}, `"caller 1" of "one" has "b" (read) and waits for "a"; "caller 0" of "one" has "a" and waits for "b"`},
		{"a reader and a writer", func(t *testing.T, c *coord.Coordinator) [][2]taker {
			return [][2]taker{{reads(c, "a"), reads(c, "b")}, {locks(c, "b"), locks(c, "a")}}
		}, `"caller 1" of "one" has "b" and waits for "a"; "caller 0" of "one" has "a" (read) and waits for "b" (read)`},
		{"readers, and a writer between", func(t *testing.T, c *coord.Coordinator) [][2]taker {
			return [][2]taker{{reads(c, "a"), locks(c, "b")}, {none, locks(c, "a")}, {locks(c, "b"), reads(c, "a")}}
		}, `"caller 2" of "one" has "b" and waits for "a" (read); "caller 0" of "one" has "a" (read) and waits for "b"`},
		{"a writer that reads now", func(t *testing.T, c *coord.Coordinator) [][2]taker {
			return [][2]taker{{downgrades1(c, "a"), locks(c, "b")}, {locks(c, "b"), locks(c, "a")}}
		}, `"caller 1" of "one" has "b" and waits for "a"; "caller 0" of "one" has "a" (read) and waits for "b"`},
		{"several keys, and one by one", func(t *testing.T, c *coord.Coordinator) [][2]taker {
			all := func(ctx context.Context) (context.Context, func() error, error) {
				l, err := c.LockAll(ctx, "a", "b", "c")
				return ctx, l.Unlock, err
			}
			keys := inOrder(t, c, "a", "b", "c")
			return [][2]taker{{none, all}, {locks(c, keys[2]), locks(c, keys[0])}}
		}, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				h := newRecords()
				o := named("one", h)
				o.DeadlockAfter = 500 * time.Millisecond
				c := start(t, a, o)
				errs, took := entangle(t, t.Context(), x.callers(t, c)...)
				if d := onlyOne(t, errs); x.cycle != "" && !strings.HasSuffix(d.Error(), ": "+x.cycle) {
					t.Errorf("got %v", d)
				}
				if took > time.Second {
					t.Errorf("it took %v", took)
				}
				if n := c.Stats().Deadlocks; n != 1 {
					t.Errorf("%d are counted", n)
				}
				if all := h.about("holdfast: callers wait for each other in a circle: one is sent away"); len(all) != 1 || all[0].level != slog.LevelWarn {
					t.Errorf("%v", all)
				}
				for _, key := range []string{"a", "b", "c"} {
					unlock(t, lock(t, c, key))
				}
			})
		})
	}
}

// inOrder returns keys in the order in which LockAll waits for them: a caller that has the second
// makes it wait, with the first.
func inOrder(t *testing.T, c *coord.Coordinator, keys ...string) []string {
	t.Helper()
	locks, err := c.LockAll(t.Context(), keys...)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, l := range locks {
		order = append(order, l.Key())
	}
	if err := locks.Unlock(); err != nil {
		t.Fatal(err)
	}
	return order
}

// Callers that wait for long are left alone if they are no circle, or one that ends by itself. So
// they are if looking for circles is off, or permits are part of it.
func TestDeadlock_IsNone(t *testing.T) {
	for _, x := range []struct {
		name    string
		after   time.Duration
		callers func(c *coord.Coordinator) [][2]taker
		ends    bool
	}{
		{"off", 0, func(c *coord.Coordinator) [][2]taker {
			return [][2]taker{{locks(c, "a"), locks(c, "b")}, {locks(c, "b"), locks(c, "a")}}
		}, false},
		{"permits that suffice", time.Second, func(c *coord.Coordinator) [][2]taker {
			return [][2]taker{{acquires(c, "s", 1, 3), locks(c, "b")}, {locks(c, "b"), acquires(c, "s", 2, 3)}}
		}, true},
		{"readers", time.Second, func(c *coord.Coordinator) [][2]taker {
			return [][2]taker{{reads(c, "a"), reads(c, "b")}, {reads(c, "b"), reads(c, "a")}}
		}, true},
		{"a line", time.Second, func(c *coord.Coordinator) [][2]taker {
			slowly := func(ctx context.Context) (context.Context, func() error, error) {
				time.Sleep(20 * time.Second)
				return ctx, func() error { return nil }, nil
			}
			return [][2]taker{{locks(c, "a"), locks(c, "b")}, {locks(c, "b"), locks(c, "c")}, {locks(c, "c"), slowly}}
		}, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				c := start(t, a, &coord.Options{DeadlockAfter: x.after})
				errs, _ := entangle(t, t.Context(), x.callers(c)...)
				for _, err := range errs {
					if errors.Is(err, coord.ErrDeadlock) || x.ends && err != nil {
						t.Error(err)
					}
				}
				if n := c.Stats().Deadlocks; n != 0 {
					t.Errorf("%d are counted", n)
				}
			})
		})
	}
}

// A circle is none any more when its youngest caller gives up by itself, or loses its lock.
func TestDeadlock_EndsByItself(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := looking(t, a)
		short := func(ctx context.Context) (context.Context, func() error, error) {
			ctx, cancel := context.WithTimeout(ctx, 900*time.Millisecond)
			defer cancel()
			return locks(c, "a")(ctx)
		}
		errs, _ := entangle(t, t.Context(), [2]taker{locks(c, "a"), locks(c, "b")}, [2]taker{locks(c, "b"), short})
		if errs[0] != nil || !errors.Is(errs[1], context.DeadlineExceeded) || errors.Is(errs[1], coord.ErrDeadlock) {
			t.Errorf("%v", errs)
		}
		task := coord.WithLocker(t.Context())
		l, err := c.LockFor(task, "a", 900*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		other := lock(t, c, "b")
		done := make(chan error)
		go func() {
			_, release, err := locks(c, "a")(other.Context())
			if err == nil {
				err = release()
			}
			done <- errors.Join(err, other.Unlock())
		}()
		synctest.Wait()
		last, err := c.Lock(task, "b")
		if err := errors.Join(err, <-done, last.Unlock()); err != nil {
			t.Error(err)
		}
		if err := l.Unlock(); !errors.Is(err, coord.ErrLost) {
			t.Error(err)
		}
		if n := c.Stats().Deadlocks; n != 0 {
			t.Errorf("%d are counted", n)
		}
	})
}

// A circle that ends after it was found, and before it is found again, is told to none of its
// callers.
func TestDeadlock_EndsBetweenLooks(t *testing.T) {
	const found = time.Second // DeadlockAfter; it is looked for again a quarter later
	for _, end := range []time.Duration{found + found/8, found + found/4 - time.Millisecond} {
		for name, x := range map[string]struct {
			older, younger func(c *coord.Coordinator) [2]taker
			gaveUp         bool // the older one
		}{
			"a wait ends": {
				func(c *coord.Coordinator) [2]taker { return [2]taker{locks(c, "a"), within(end, locks(c, "b"))} },
				func(c *coord.Coordinator) [2]taker { return [2]taker{locks(c, "b"), locks(c, "a")} }, true,
			},
			"a reader's wait ends": {
				func(c *coord.Coordinator) [2]taker { return [2]taker{locks(c, "a"), within(end, reads(c, "b"))} },
				func(c *coord.Coordinator) [2]taker { return [2]taker{locks(c, "b"), reads(c, "a")} }, true,
			},
			"a lock ends": {
				func(c *coord.Coordinator) [2]taker { return [2]taker{plainly(locksFor(c, "a", end)), locks(c, "b")} },
				func(c *coord.Coordinator) [2]taker { return [2]taker{locks(c, "b"), locks(c, "a")} }, false,
			},
		} {
			t.Run(fmt.Sprint(name, " after ", end), func(t *testing.T) {
				bubble(t, func(t *testing.T, a *fallback.Memory) {
					c := start(t, a, &coord.Options{DeadlockAfter: found})
					errs, _ := entangle(t, t.Context(), x.older(c), x.younger(c))
					if errs[1] != nil || (errs[0] != nil) != x.gaveUp || errors.Is(errs[0], coord.ErrDeadlock) {
						t.Errorf("%v", errs)
					}
					if n := c.Stats().Deadlocks; n != 0 {
						t.Errorf("%d are counted", n)
					}
				})
			})
		}
	}
}

// A circle that is found after another one, with the same youngest caller, has to be found again
// itself.
func TestDeadlock_AnotherCircle(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := looking(t, a)
		errs, took := entangle(t, t.Context(), [2]taker{reads(c, "a"), within(1100*time.Millisecond, locks(c, "b"))},
			[2]taker{reads(c, "a"), locks(c, "b")}, [2]taker{locks(c, "b"), locks(c, "a")})
		if !errors.Is(errs[0], context.DeadlineExceeded) || errs[1] != nil || !errors.Is(errs[2], coord.ErrDeadlock) {
			t.Errorf("%v", errs)
		}
		if took < 2*time.Second || took > 3*time.Second {
			t.Errorf("after %v", took)
		}
	})
}

// A caller has a lock no more that has ended while it waits, though another one waits for the key:
// that has another caller now.
func TestDeadlock_LockThatEnded(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := looking(t, a)
		slowly := func(ctx context.Context) (context.Context, func() error, error) {
			l, err := c.Lock(ctx, "a")
			time.Sleep(5 * time.Second)
			return ctx, l.Unlock, err
		}
		errs, _ := entangle(t, t.Context(), [2]taker{plainly(locksFor(c, "a", 1100*time.Millisecond)), locks(c, "b")},
			[2]taker{none, slowly}, [2]taker{locks(c, "b"), locks(c, "a")})
		if err := errors.Join(errs...); err != nil || c.Stats().Deadlocks != 0 {
			t.Errorf("%v, %d are counted", err, c.Stats().Deadlocks)
		}
	})
}

// none takes nothing.
func none(ctx context.Context) (context.Context, func() error, error) {
	return ctx, func() error { return nil }, nil
}

// within lets a caller wait for so long only.
func within(d time.Duration, take taker) taker {
	return func(ctx context.Context) (context.Context, func() error, error) {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		return take(ctx)
	}
}

// locksFor takes a lock that ends by itself. That is no error of its caller.
func locksFor(c *coord.Coordinator, key string, d time.Duration) taker {
	return func(ctx context.Context) (context.Context, func() error, error) {
		l, err := c.LockFor(ctx, key, d)
		return l.Context(), func() error { _ = l.Unlock(); return nil }, err
	}
}

// A caller that is to be sent away, and gets its turn in the same moment, has the lock, or is sent
// away; it is counted as that then only.
func TestDeadlock_AndTurnInOneMoment(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := looking(t, a)
		own := lock(t, c, "own")
		var got, away int
		for round := range 200 {
			key := fmt.Sprint("k", round)
			l := lock(t, c, key)
			done := make(chan error)
			go func() {
				take := locks
				if round%2 == 1 {
					take = reads
				}
				_, release, err := take(c, key)(own.Context())
				if err == nil {
					got++
					err = release()
				} else if errors.Is(err, coord.ErrDeadlock) {
					away++
					err = nil
				}
				done <- err
			}()
			time.Sleep(1200 * time.Millisecond)
			if n := coord.Stuck(c); n != 1 {
				t.Fatalf("%d wait", n)
			}
			go coord.SendAway(c)
			unlock(t, l)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			unlock(t, lock(t, c, key))
			if n := coord.Stuck(c); n != 0 {
				t.Fatalf("%d wait", n)
			}
		}
		if n := c.Stats().Deadlocks; n != uint64(away) {
			t.Errorf("%d were sent away, %d are counted", away, n)
		}
		t.Logf("%d got the lock, %d were sent away", got, away)
		unlock(t, own)
	})
}

// A wait is looked at once it has lasted, and if its caller has locks; one for permits never.
func TestDeadlock_WhichWaits(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := looking(t, a)
		own, l := lock(t, c, "own"), lock(t, c, "k")
		all, err := c.Semaphore("s", 2).Acquire(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []struct {
			name  string
			ctx   context.Context
			take  taker
			stuck int
		}{
			{"of a caller without locks", t.Context(), locks(c, "k"), 0},
			{"of a reader without locks", t.Context(), reads(c, "k"), 0},
			{"of a caller with a lock", own.Context(), locks(c, "k"), 1},
			{"of a reader with a lock", own.Context(), reads(c, "k"), 1},
			{"for permits", own.Context(), acquires(c, "s", 1, 2), 0},
			{"for several permits", own.Context(), acquires(c, "s", 2, 2), 0},
		} {
			ctx, cancel := context.WithCancel(x.ctx)
			done := make(chan error)
			go func() {
				_, _, err := x.take(ctx)
				done <- err
			}()
			time.Sleep(999 * time.Millisecond)
			before := coord.Stuck(c)
			time.Sleep(2 * time.Second)
			if n := coord.Stuck(c); before != 0 || n != x.stuck {
				t.Errorf("%s: %d are looked at, then %d", x.name, before, n)
			}
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) || errors.Is(err, coord.ErrDeadlock) {
				t.Errorf("%s: %v", x.name, err)
			}
			if n := coord.Stuck(c); n != 0 {
				t.Errorf("%s: %d are still looked at", x.name, n)
			}
		}
		if err := errors.Join(all.Release(), l.Unlock(), own.Unlock()); err != nil {
			t.Error(err)
		}
	})
}
