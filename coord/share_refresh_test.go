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
)

func TestRefreshAhead(t *testing.T) {
	for range 4 { // chance decides when a value is refreshed: one in some hundred is not, before it ends
		if refreshesAhead(t) {
			return
		}
	}
	t.Fatal("not refreshed before its end, or only just")
}

// refreshesAhead reports whether a value was refreshed early enough to check the calls during the
// refresh.
func refreshesAhead(t *testing.T) (seen bool) {
	t.Helper()
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c, other := start(t, a, nil), start(t, a, nil)
		opts := &coord.ShareOptions[int]{TTL: time.Minute, RefreshAhead: 10 * time.Second}
		var runs atomic.Int64
		proceed := make(chan struct{}, 100)
		fn := func(context.Context, coord.Fence) (int, error) {
			n := runs.Add(1)
			<-proceed
			return int(n), nil
		}
		defer close(proceed) // no run waits when the coordinators are closed
		proceed <- struct{}{}
		must(coord.Share(t.Context(), c, "k", opts, fn))
		begin := time.Now()
		for runs.Load() == 1 {
			if time.Since(begin) > 59*time.Second {
				return
			}
			time.Sleep(100 * time.Millisecond)
			for _, c := range []*coord.Coordinator{c, other} {
				if v := must(coord.Share(t.Context(), c, "k", opts, fn)); v != 1 {
					t.Errorf("got %d", v)
				}
			}
			synctest.Wait()
		}
		// While it is being refreshed no caller waits, and no other process refreshes.
		if seen = time.Since(begin) <= 58*time.Second; !seen {
			return
		}
		for range 100 {
			for _, c := range []*coord.Coordinator{c, other} {
				if v := must(coord.Share(t.Context(), c, "k", opts, fn)); v != 1 || runs.Load() != 2 {
					t.Fatalf("got %d after %d runs", v, runs.Load())
				}
			}
			synctest.Wait()
		}
		proceed <- struct{}{}
		synctest.Wait()
		for _, c := range []*coord.Coordinator{c, other} {
			if v := must(coord.Share(t.Context(), c, "k", opts, fn)); v != 2 {
				t.Errorf("got %d", v)
			}
		}
	})
	return seen
}

// Close ends a run in the background at once, and waits for it.
func TestCloseEndsARefresh(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := must(coord.New(context.Background(), a, withFew(nil)))
		opts := &coord.ShareOptions[int]{TTL: time.Minute, RefreshAhead: 59 * time.Second}
		var runs atomic.Int64
		ended := false // before Close returns
		fn := func(ctx context.Context, _ coord.Fence) (int, error) {
			if runs.Add(1) > 1 {
				<-ctx.Done()
				if context.Cause(ctx) != coord.ErrClosed {
					t.Errorf("its context ended with %v", context.Cause(ctx))
				}
				time.Sleep(time.Second)
				ended = true
				panic("nobody is there to be told")
			}
			return 1, nil
		}
		for runs.Load() < 2 {
			must(coord.Share(t.Context(), c, "k", opts, fn))
			time.Sleep(time.Second)
		}
		if err := c.Close(t.Context()); err != nil || !ended {
			t.Errorf("Close: %v; the run has ended: %v", err, ended)
		}
		if _, err := coord.Share(t.Context(), c, "k", opts, fn); !errors.Is(err, coord.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// Close waits for a flight, and takes its lock away when its ctx ends.
func TestCloseWaitsForFlights(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := must(coord.New(context.Background(), a, withFew(nil)))
		fn, _ := counted(time.Second)
		var work sync.WaitGroup
		work.Go(func() {
			if v, err := coord.Share(t.Context(), c, "k", nil, fn); v != "result 1" || err != nil {
				t.Errorf("got %q, %v", v, err)
			}
		})
		synctest.Wait()
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		work.Wait()
	})
}

// Also for one that has no lock yet, and no waiters.
func TestCloseWaitsForReads(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := must(coord.New(context.Background(), a, withFew(nil)))
		ended := false
		opts := &coord.ShareOptions[string]{Store: hooked{must(coord.Store(c)), func() error {
			time.Sleep(time.Second)
			ended = true
			return nil
		}, nil}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := coord.Share(ctx, c, "k", opts, unwanted(t)); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := c.Close(t.Context()); err != nil || !ended {
			t.Errorf("Close: %v; the read has ended: %v", err, ended)
		}
	})
}

// A process that finds that the key was refreshed while it waited does not refresh it again.
func TestAnEarlyRefreshLooksAgain(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		store := must(coord.Store(c))
		fn, runs := counted(0)
		opts := &coord.ShareOptions[string]{TTL: time.Hour, RefreshAhead: time.Hour - time.Millisecond}
		must(coord.Share(t.Context(), c, "k", opts, fn))
		gets := 0
		opts.Store = hooked{store, func() error {
			if gets++; gets%2 == 0 { // the second look, under the lock
				r := must(store.Get(t.Context(), "k"))
				return store.Put(t.Context(), "k", r.Value, r.Fence+1, time.Hour)
			}
			return nil
		}, nil}
		for gets < 2 {
			must(coord.Share(t.Context(), c, "k", opts, fn))
			synctest.Wait()
			if gets == 1 {
				gets = 0 // by chance it was not refreshed
			}
			time.Sleep(time.Minute)
		}
		if runs.Load() != 1 {
			t.Errorf("fn ran %d times", runs.Load())
		}
	})
}
