package singleflight_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/virtual"
	"github.com/holdfast-go/holdfast/singleflight"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// group is the Group of most tests.
type group = singleflight.Group[string, int]

// untilCancelled is an fn that heeds its context and does nothing else.
func untilCancelled(ctx context.Context) (int, error) {
	<-ctx.Done()
	return 0, context.Cause(ctx)
}

// isDone reports whether c is closed.
func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func wantLen(t *testing.T, g *group, want int) {
	t.Helper()
	if got := g.Len(); got != want {
		t.Errorf("Len() = %d, want %d", got, want)
	}
}

func TestDoReturnsWhatFnReturns(t *testing.T) {
	errBoom := errors.New("boom")
	for _, tt := range []struct {
		name string
		v    int
		err  error
	}{
		{"value", 7, nil},
		{"error", 0, errBoom},
		{"value and error", 7, errBoom},
		{"an error that looks like the caller's end", 0, context.Canceled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var g group // the zero value
			v, shared, err := g.Do(t.Context(), "k", func(context.Context) (int, error) { return tt.v, tt.err })
			if v != tt.v || err != tt.err || shared {
				t.Errorf("Do = %v, %v, %v; want %v, false, %v", v, shared, err, tt.v, tt.err)
			}
			wantLen(t, &g, 0)
		})
	}
}

func TestMembersShareOneExecution(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		var g group
		runs := 0
		fn := func(context.Context) (int, error) {
			time.Sleep(time.Second)
			runs++
			return runs, nil
		}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				v, shared, err := g.Do(t.Context(), "k", fn)
				if v != 1 || !shared || err != nil {
					t.Errorf("Do = %v, %v, %v; want 1, true, nil", v, shared, err)
				}
			})
		}
		synctest.Wait()
		wantLen(t, &g, 1)
		wg.Wait()
		wantLen(t, &g, 0)
	})
}

func TestWhoAsksAgainGetsNewExecution(t *testing.T) {
	var g group
	for i := range 2000 { // often, to meet the moment between fn's end and the flight's
		v, shared, err := g.Do(t.Context(), "k", func(context.Context) (int, error) { return i, nil })
		if v != i || shared || err != nil {
			t.Fatalf("Do = %v, %v, %v; want %d, false, nil", v, shared, err, i)
		}
	}
}

func TestKeysDoNotShare(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		var g group
		a, b := g.Join(t.Context(), "a", untilCancelled), g.Join(t.Context(), "b", untilCancelled)
		wantLen(t, &g, 2)
		a.Leave()
		wantLen(t, &g, 1)
		synctest.Wait()
		if !isDone(a.Done()) || isDone(b.Done()) || a.Shared() || b.Shared() {
			t.Error("leaving one key's flight touched the other's")
		}
		b.Leave()
	})
}

func TestFnContextHasFirstMembersValuesButNotItsEnd(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		type ctxKey struct{}
		first, cancel := context.WithTimeout(context.WithValue(t.Context(), ctxKey{}, "first"), time.Second)
		defer cancel()
		second := context.WithValue(t.Context(), ctxKey{}, "second")

		var g group
		fn := func(ctx context.Context) (int, error) {
			if _, ok := ctx.Deadline(); ok {
				t.Error("fn's context has the first member's deadline")
			}
			time.Sleep(time.Minute) // beyond the first member's end
			if got := ctx.Value(ctxKey{}); got != "first" {
				t.Errorf("value = %v, want first", got)
			}
			return 1, ctx.Err()
		}
		m1, m2 := g.Join(first, "k", fn), g.Join(second, "k", fn)
		<-first.Done()
		m1.Leave()
		if v, err := m2.Result(); v != 1 || err != nil {
			t.Errorf("Result = %v, %v; want 1, nil", v, err)
		}
	})
}

func TestFnContextEndsAfterFn(t *testing.T) {
	var g group
	for range 2000 { // often: the context ends before Done is closed, not soon after
		var fnCtx context.Context
		m := g.Join(t.Context(), "k", func(ctx context.Context) (int, error) { fnCtx = ctx; return 0, ctx.Err() })
		<-m.Done()
		m.Leave() // too late to abandon anything
		if got := context.Cause(fnCtx); got != context.Canceled {
			t.Fatalf("cause = %v, want %v", got, context.Canceled)
		}
		if _, err := m.Result(); err != nil {
			t.Fatalf("Result: %v", err)
		}
	}
}

func TestLastToLeaveCancels(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		var g group
		var members []*singleflight.Member[string, int]
		for range 3 {
			members = append(members, g.Join(t.Context(), "k", untilCancelled))
		}
		for _, m := range members[:2] {
			for range 3 { // idempotent: one membership counts once
				m.Leave()
			}
		}
		synctest.Wait()
		wantLen(t, &g, 1)
		if isDone(members[2].Done()) {
			t.Fatal("cancelled while a member was left")
		}
		members[2].Leave()
		wantLen(t, &g, 0) // at once, before fn had a chance to end
		for _, m := range members {
			if _, err := m.Result(); err != singleflight.ErrAbandoned {
				t.Errorf("cause = %v, want ErrAbandoned", err)
			}
		}
	})
}

func TestNewcomerNeverJoinsDyingFlight(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		var g group
		land := make(chan struct{})
		var oldCtx context.Context
		old := g.Join(t.Context(), "k", func(ctx context.Context) (int, error) {
			oldCtx = ctx
			<-land // deaf to its context
			return 1, nil
		})
		synctest.Wait()
		old.Leave()
		wantLen(t, &g, 0)

		next := g.Join(t.Context(), "k", func(ctx context.Context) (int, error) {
			if oldCtx.Err() == nil {
				t.Error("the successor started while the old context was live")
			}
			<-ctx.Done()
			return 2, nil
		})
		synctest.Wait()
		if isDone(old.Done()) {
			t.Fatal("the old fn has ended; the test is void")
		}

		// Neither the end of the dying flight nor another Leave of it touches its successor.
		close(land)
		if v, err := old.Result(); v != 1 || err != nil {
			t.Errorf("old Result = %v, %v; want 1, nil", v, err)
		}
		old.Leave()
		wantLen(t, &g, 1)
		third := g.Join(t.Context(), "k", func(context.Context) (int, error) { return 3, nil })
		if old.Shared() || !next.Shared() || !third.Shared() {
			t.Errorf("Shared = %v, %v, %v; want false, true, true", old.Shared(), next.Shared(), third.Shared())
		}
		next.Leave()
		third.Leave()
		if v, _ := third.Result(); v != 2 {
			t.Errorf("third got %d, want the successor's 2", v)
		}
	})
}

func TestSharedOutlivesMembership(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		var g group
		m1 := g.Join(t.Context(), "k", untilCancelled)
		if m1.Shared() {
			t.Error("shared by one member")
		}
		m2 := g.Join(t.Context(), "k", untilCancelled)
		m2.Leave()
		if !m1.Shared() || !m2.Shared() {
			t.Error("not shared, though there were two members")
		}
		m1.Leave()
	})
}

func TestDoLeavesWhenContextEnds(t *testing.T) {
	errWhy := errors.New("why")
	errWraps := fmt.Errorf("wraps: %w", context.Canceled)
	for _, tt := range []struct {
		name  string
		start func(context.Context) (context.Context, func()) // the second ends the first, if time does not
		is    []error                                         // the error matches all; if there is but one, it is the error
	}{
		{"cancel", func(ctx context.Context) (context.Context, func()) {
			return context.WithCancel(ctx)
		}, []error{context.Canceled}},
		{"cancel with cause", func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(ctx)
			return ctx, func() { cancel(errWhy) }
		}, []error{context.Canceled, errWhy}},
		{"cancel with a cause that matches already", func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(ctx)
			return ctx, func() { cancel(errWraps) }
		}, []error{errWraps}},
		{"timeout", func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			return ctx, func() { <-ctx.Done(); cancel() }
		}, []error{context.DeadlineExceeded}},
		{"timeout with cause", func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithTimeoutCause(ctx, time.Second, errWhy)
			return ctx, func() { <-ctx.Done(); cancel() }
		}, []error{context.DeadlineExceeded, errWhy}},
	} {
		check := func(t *testing.T, err error) {
			t.Helper()
			for _, want := range tt.is {
				if !errors.Is(err, want) {
					t.Errorf("error %q does not match %q", err, want)
				}
			}
			if len(tt.is) == 1 && err != tt.is[0] {
				t.Errorf("error %q is wrapped without need", err)
			}
			if errors.Is(err, singleflight.ErrAbandoned) {
				t.Errorf("error %q is the flight's, not the caller's", err)
			}
		}
		t.Run(tt.name+"/alone", func(t *testing.T) {
			virtual.Test(t, func(t *testing.T) {
				var g group
				ctx, end := tt.start(t.Context())
				go func() { synctest.Wait(); end() }() // once Do waits
				v, shared, err := g.Do(ctx, "k", untilCancelled)
				if v != 0 || shared {
					t.Errorf("Do = %v, %v; want 0, false", v, shared)
				}
				check(t, err)
				wantLen(t, &g, 0)
			})
		})
		t.Run(tt.name+"/with another", func(t *testing.T) {
			virtual.Test(t, func(t *testing.T) {
				var g group
				other := g.Join(t.Context(), "k", func(ctx context.Context) (int, error) {
					time.Sleep(time.Minute)
					return 1, ctx.Err()
				})
				ctx, end := tt.start(t.Context())
				go func() { synctest.Wait(); end() }() // once Do waits
				_, shared, err := g.Do(ctx, "k", untilCancelled)
				if !shared {
					t.Error("not shared")
				}
				check(t, err)
				wantLen(t, &g, 1)
				if v, err := other.Result(); v != 1 || err != nil {
					t.Errorf("the other's Result = %v, %v; want 1, nil", v, err)
				}
			})
		})
		t.Run(tt.name+"/before Do", func(t *testing.T) {
			virtual.Test(t, func(t *testing.T) {
				var g group
				ctx, end := tt.start(t.Context())
				end()
				_, shared, err := g.Do(ctx, "k", func(context.Context) (int, error) {
					t.Error("started a flight")
					return 0, nil
				})
				if shared {
					t.Error("shared")
				}
				check(t, err)
			})
		})
	}
}

// endsWithFlight ends by the time that Do asks when it ends, but not before the flight.
type endsWithFlight struct {
	context.Context
	end context.CancelFunc
}

func (c endsWithFlight) Done() <-chan struct{} {
	synctest.Wait() // for fn's goroutine to be gone
	c.end()
	return c.Context.Done()
}

func TestDoPrefersResultToContextEnd(t *testing.T) {
	for range 50 { // as many tosses of select's coin
		virtual.Test(t, func(t *testing.T) {
			var g group
			inner, cancel := context.WithCancel(t.Context())
			ctx := endsWithFlight{inner, cancel}
			v, _, err := g.Do(ctx, "k", func(context.Context) (int, error) { return 1, nil })
			if ctx.Err() == nil {
				t.Fatal("the context has not ended; the test is void")
			}
			if v != 1 || err != nil {
				t.Fatalf("Do = %v, %v; want 1, nil", v, err)
			}
		})
	}
}

func TestResultBlocksUntilDone(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		var g group
		start := time.Now()
		m := g.Join(t.Context(), "k", func(context.Context) (int, error) {
			time.Sleep(time.Second)
			return 1, nil
		})
		if d := time.Since(start); d != 0 {
			t.Errorf("Join blocked for %v", d)
		}
		if isDone(m.Done()) {
			t.Error("Done before fn has ended")
		}
		if v, err := m.Result(); v != 1 || err != nil || time.Since(start) != time.Second || !isDone(m.Done()) {
			t.Errorf("Result = %v, %v after %v; want 1, nil after 1s", v, err, time.Since(start))
		}
	})
}

func TestUnhashableKeyLeavesGroupUsable(t *testing.T) {
	var g singleflight.Group[any, int]
	fn := func(context.Context) (int, error) { return 1, nil }
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		g.Join(t.Context(), []int{}, fn)
	}()
	if v, _, err := g.Do(t.Context(), 1, fn); v != 1 || err != nil {
		t.Errorf("Do = %v, %v; want 1, nil", v, err)
	}
}
