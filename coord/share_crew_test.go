package coord_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/held"
)

// A flight's lock is none of the task that began the flight: neither while that waits, nor when it
// has left.
func TestShare_TheFlightIsNoneOfItsTasks(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		type mark struct{}
		task := coord.WithLocker(context.WithValue(t.Context(), mark{}, 1))
		var key section
		running, proceed := make(chan struct{}), make(chan struct{})
		fn := func(ctx context.Context, _ coord.Fence) (string, error) {
			if ctx.Value(mark{}) != 1 {
				t.Error("the first caller's values are gone")
			}
			key.enter(t)
			close(running)
			<-proceed
			key.leave()
			return "v", nil
		}
		short, leave := context.WithCancel(task)
		var work sync.WaitGroup
		work.Go(func() { _, _ = coord.Share(short, c, "k", nil, fn) })
		<-running
		work.Go(func() { // the flight goes on for it
			if v, err := coord.Share(t.Context(), c, "k", nil, fn); v != "v" || err != nil {
				t.Errorf("%q, %v", v, err)
			}
		})
		synctest.Wait()
		leave()
		synctest.Wait()
		try, cancel := context.WithTimeout(task, time.Second)
		defer cancel()
		if _, err := c.Lock(try, "k"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, coord.ErrHeld) {
			t.Errorf("a task that has no lock of the key: %v", err)
		}
		work.Go(func() {
			if err := c.DoNested(task, "k", key.nests(t, time.Second)); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		close(proceed)
		work.Wait()
	})
}

// refreshing runs f while an early refresh of "k" runs fn, for three seconds, that was caused by a
// caller with ctx.
func refreshing(t *testing.T, ctx context.Context, c *coord.Coordinator, during func(context.Context), f func(opts *coord.ShareOptions[string])) {
	t.Helper()
	opts := &coord.ShareOptions[string]{TTL: 10 * time.Second, RefreshAhead: 9 * time.Second}
	var runs atomic.Int32
	fn := func(ctx context.Context, _ coord.Fence) (string, error) {
		if runs.Add(1) > 1 {
			during(ctx)
		}
		return "v", nil
	}
	for runs.Load() < 2 { // chance decides when it begins
		if v, err := coord.Share(ctx, c, "k", opts, fn); v != "v" || err != nil {
			t.Fatalf("%q, %v", v, err)
		}
		time.Sleep(time.Millisecond)
	}
	f(opts)
	synctest.Wait()
}

// So is the lock of a refresh in the background.
func TestShare_ARefreshIsNoneOfItsTasks(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		task := coord.WithLocker(t.Context())
		var key section
		refreshing(t, task, c, func(context.Context) { key.pass(t, 3*time.Second) }, func(opts *coord.ShareOptions[string]) {
			if v, err := coord.Share(task, c, "k", opts, unwanted(t)); v != "v" || err != nil {
				t.Errorf("a caller with a locker: %q, %v", v, err)
			}
			if err := c.DoNested(task, "k", key.nests(t, time.Second)); err != nil {
				t.Error(err)
			}
		})
	})
}

// No caller waits for a refresh, so it has the locks of none.
func TestShare_ARefreshHasNoLocksOfCallers(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		var account section
		nests := func(ctx context.Context) {
			if err := c.DoNested(ctx, "account", account.nests(t, time.Second)); err != nil {
				t.Error(err)
			}
		}
		for _, ctx := range []context.Context{t.Context(), coord.WithLocker(t.Context())} {
			l, err := c.Lock(ctx, "account")
			if err != nil {
				t.Fatal(err)
			}
			if ctx == t.Context() {
				ctx = l.Context()
			}
			refreshing(t, ctx, c, nests, func(*coord.ShareOptions[string]) { account.pass(t, 10*time.Second) })
			unlock(t, l)
			time.Sleep(time.Minute)
		}
	})
}

// A flight has the locks of the callers that wait: of the one that began it until that leaves.
func TestShare_HasTheLocksOfThoseThatWait(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		var account section
		running, left := make(chan struct{}), make(chan struct{})
		fn := func(ctx context.Context, _ coord.Fence) (string, error) {
			every(t, ctx, c) // also the flight's own lock, which is that of "k"
			nested := false
			if _, err := c.Lock(ctx, "account"); !errors.Is(err, coord.ErrHeld) {
				t.Errorf("a caller that waits has it: %v", err)
			}
			if err := c.DoNested(ctx, "account", func(ctx context.Context, _ coord.Lock) error {
				nested = true
				return ctx.Err()
			}); err != nil || !nested {
				t.Errorf("under the lock of a caller that waits: %v", err)
			}
			close(running)
			<-left
			return "v", c.DoNested(ctx, "account", account.nests(t, time.Second))
		}
		var work sync.WaitGroup
		work.Go(func() {
			_ = c.Do(t.Context(), "account", func(ctx context.Context, _ coord.Lock) error {
				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				if _, err := coord.Share(short, c, "k", nil, fn); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the first caller: %v", err)
				}
				account.enter(t)
				close(left)
				time.Sleep(10 * time.Second)
				account.leave()
				return nil
			})
		})
		<-running
		if v, err := coord.Share(t.Context(), c, "k", nil, fn); v != "v" || err != nil {
			t.Errorf("the second caller: %q, %v", v, err)
		}
		work.Wait()
	})
}

// A caller that comes later brings its locks, also those under which it nests.
func TestShare_HasTheLocksOfOneThatJoins(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		joined := make(chan struct{})
		fn := func(ctx context.Context, _ coord.Fence) (string, error) {
			<-joined
			var all []error
			for _, key := range []string{"account", "task's"} {
				all = append(all, c.DoNested(ctx, key, func(ctx context.Context, l coord.Lock) error {
					if l.Key() != key {
						t.Errorf("under the lock of %q", l.Key())
					}
					return ctx.Err()
				}))
			}
			all = append(all, c.RDoNested(ctx, "read", func(ctx context.Context, _ coord.Fence) error { return ctx.Err() }))
			_, err := c.TryLock(ctx, "read")
			if !errors.Is(err, coord.ErrHeld) {
				t.Errorf("a caller that waits reads it: %v", err)
			}
			return "v", errors.Join(all...)
		}
		share := func(ctx context.Context) error {
			v, err := coord.Share(ctx, c, "k", nil, fn)
			if v != "v" || err != nil {
				t.Errorf("%q, %v", v, err)
			}
			return err
		}
		var work sync.WaitGroup
		work.Go(func() { _ = share(t.Context()) })
		synctest.Wait()
		work.Go(func() {
			_ = c.Do(t.Context(), "account", func(ctx context.Context, _ coord.Lock) error {
				return c.DoNested(ctx, "account", func(ctx context.Context, _ coord.Lock) error { return share(ctx) })
			})
		})
		work.Go(func() {
			task := coord.WithLocker(t.Context())
			l, err := c.Lock(task, "task's")
			r, err2 := c.RLock(task, "read")
			if err := errors.Join(err, err2); err != nil {
				t.Error(err)
			}
			_ = share(task)
			unlock(t, l)
			runlock(t, r)
		})
		synctest.Wait()
		close(joined)
		work.Wait()
	})
}

// A caller leaves while the flight nests in its lock: the function's context ends, and its caller
// is told.
func TestShare_TheCallerWithTheLockLeaves(t *testing.T) {
	for name, nest := range map[string]func(ctx context.Context, c *coord.Coordinator, f func(context.Context) error) error{
		"for writing": func(ctx context.Context, c *coord.Coordinator, f func(context.Context) error) error {
			return c.DoNested(ctx, "account", func(ctx context.Context, _ coord.Lock) error { return f(ctx) })
		},
		"for reading": func(ctx context.Context, c *coord.Coordinator, f func(context.Context) error) error {
			return c.RDoNested(ctx, "account", func(ctx context.Context, _ coord.Fence) error { return f(ctx) })
		},
	} {
		for _, reads := range []bool{false, true} {
			if reads && name == "for writing" {
				continue // that is ErrHeld
			}
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				c := start(t, a, nil)
				inside := make(chan struct{})
				fn := func(ctx context.Context, _ coord.Fence) (string, error) {
					err := nest(ctx, c, func(inner context.Context) error {
						close(inside)
						<-inner.Done()
						if ctx.Err() != nil || inner.Err() == nil || !errors.Is(context.Cause(inner), coord.ErrUnlocked) {
							t.Errorf("%s: %v, %v", name, ctx.Err(), context.Cause(inner))
						}
						return nil
					})
					if !errors.Is(err, coord.ErrUnlocked) {
						t.Errorf("%s: %v", name, err)
					}
					return "v", nil
				}
				ctx := coord.WithLocker(t.Context())
				end, err := (func() error)(nil), error(nil)
				if reads {
					r, failed := c.RLock(ctx, "account")
					end, err = r.Unlock, failed
				} else {
					l, failed := c.Lock(ctx, "account")
					end, err = l.Unlock, failed
				}
				if err != nil {
					t.Fatal(err)
				}
				short, leave := context.WithCancel(ctx)
				var work sync.WaitGroup
				work.Go(func() { _, _ = coord.Share(short, c, "k", nil, fn) })
				<-inside
				work.Go(func() {
					if v, err := coord.Share(t.Context(), c, "k", nil, fn); v != "v" || err != nil {
						t.Errorf("%s: %q, %v", name, v, err)
					}
				})
				synctest.Wait()
				leave()
				work.Wait()
				if err := end(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Two flights whose functions want each other's results would wait for ever.
func TestShare_FlightsThatWaitForEachOther(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c, other := start(t, a, nil), start(t, a, &coord.Options{Namespace: "other"})
		inner := func(context.Context, coord.Fence) (string, error) { return "inner", nil }
		// Flights of these options stand still before they have their locks.
		proceed := make(chan struct{})
		slow := func(c *coord.Coordinator) *coord.ShareOptions[string] {
			return &coord.ShareOptions[string]{Store: hooked{must(coord.Store(c)), func() error { <-proceed; return nil }, nil}}
		}
		var work sync.WaitGroup
		errs := make([]error, 2)
		for i, x := range []struct{ mine, others *coord.Coordinator }{{c, other}, {other, c}} {
			work.Go(func() {
				_, errs[i] = coord.Share(t.Context(), x.mine, "k", slow(x.mine), func(ctx context.Context, _ coord.Fence) (string, error) {
					return coord.Share(ctx, x.others, "k", nil, inner)
				})
			})
		}
		synctest.Wait()
		close(proceed)
		work.Wait()
		held := 0
		for _, err := range errs {
			if errors.Is(err, coord.ErrHeld) {
				held++
			} else if err != nil {
				t.Error(err)
			}
		}
		if held == 0 {
			t.Error("none of them was told")
		}
	})
}

// Flights that call each other as fib does: from the first to the last of them there are more ways
// than could be gone.
func TestShare_ManyWays(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	var fib func(ctx context.Context, n int) (int, error)
	fib = func(ctx context.Context, n int) (int, error) {
		return coord.Share(ctx, c, fmt.Sprint("fib/", n), nil, func(ctx context.Context, _ coord.Fence) (int, error) {
			if n < 2 {
				return n, c.DoNested(ctx, "account", func(context.Context, coord.Lock) error { return nil })
			}
			var a, b int
			var before, last error
			var work sync.WaitGroup
			work.Go(func() { a, last = fib(ctx, n-1) })
			work.Go(func() { b, before = fib(ctx, n-2) })
			work.Wait()
			return a + b, errors.Join(last, before)
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		l := lock(t, c, "account")
		if v, err := fib(l.Context(), 60); v != 1548008755920 || err != nil {
			t.Error(v, err)
		}
		unlock(t, l)
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("there is no end of it")
	}
}

// awayFrom is a context that leaves out the innermost lock, and calls a function when it has been
// asked for the next one.
type awayFrom struct {
	context.Context
	asked func()
}

func (x *awayFrom) Value(key any) any {
	if key != (held.Key{}) {
		return x.Context.Value(key)
	}
	_, outer := x.Context.Value(key).(interface {
		Held() (coord.Lock, context.Context)
	}).Held()
	v := outer.Value(key)
	x.asked()
	return v
}

// The caller that lends a lock for reading leaves in the moment in which that is looked at:
// RDoNested goes on as if there were none.
func TestRDoNested_WhoLendsItHasJustLeft(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		l, err := c.RLock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(l.Context())
		left, both := make(chan struct{}), make(chan struct{})
		leaves := sync.OnceFunc(func() {
			cancel()
			<-left
		})
		fn := func(ctx context.Context, _ coord.Fence) (int, error) {
			<-both
			return 0, c.RDoNested(&awayFrom{ctx, leaves}, "k", func(ctx context.Context, _ coord.Fence) error { return ctx.Err() })
		}
		go func() {
			defer close(left)
			_, _ = coord.Share(ctx, c, "s", nil, fn)
		}()
		synctest.Wait()
		time.AfterFunc(time.Second, func() { close(both) })
		if _, err := coord.Share(t.Context(), c, "s", nil, fn); err != nil {
			t.Error(err)
		}
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
	})
}
