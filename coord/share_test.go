package coord_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/singleflight"
)

// counted returns an fn that counts its runs, and the counter.
func counted(d time.Duration) (func(context.Context, coord.Fence) (string, error), *atomic.Int64) {
	runs := new(atomic.Int64)
	return func(ctx context.Context, fence coord.Fence) (string, error) {
		n := runs.Add(1)
		if d > 0 {
			select {
			case <-time.After(d):
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}
		return fmt.Sprint("result ", n), nil
	}, runs
}

func TestFnRunsOnceInTheCluster(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		fn, runs := counted(50 * time.Millisecond)
		var work sync.WaitGroup
		for range 3 {
			c := start(t, a, nil)
			for range 32 {
				work.Go(func() {
					if v, err := coord.Share(t.Context(), c, "k", nil, fn); v != "result 1" || err != nil {
						t.Errorf("got %q, %v", v, err)
					}
				})
			}
		}
		work.Wait()
		if runs.Load() != 1 {
			t.Errorf("fn ran %d times", runs.Load())
		}
		time.Sleep(10 * time.Second) // TTL
		c := start(t, a, nil)
		if v, err := coord.Share(t.Context(), c, "k", nil, fn); v != "result 2" || err != nil {
			t.Errorf("after TTL: got %q, %v", v, err)
		}
	})
}

func TestFnRunsOnceOverRedis(t *testing.T) {
	s := redistest.Start(t)
	fn, runs := counted(20 * time.Millisecond)
	var work sync.WaitGroup
	for range 3 {
		c := startDefault(t, overRedis(t, s), nil)
		for range 32 {
			work.Go(func() {
				if v, err := coord.Share(t.Context(), c, "k", &coord.ShareOptions[string]{TTL: time.Hour}, fn); v != "result 1" || err != nil {
					t.Errorf("got %q, %v", v, err)
				}
			})
		}
	}
	work.Wait()
	if runs.Load() != 1 {
		t.Errorf("fn ran %d times", runs.Load())
	}
}

func TestAFreshResultCostsOneReadAndNoLock(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		fn, runs := counted(0)
		must(coord.Share(t.Context(), start(t, a, nil), "k", nil, fn))
		c := start(t, a, nil)
		for i := range uint64(3) {
			must(coord.Share(t.Context(), c, "k", nil, fn))
			calls := c.Stats().Calls
			if calls[coord.OpLoadResult] != i+1 || calls[coord.OpLock] != 0 || calls[coord.OpSaveResult] != 0 || runs.Load() != 1 {
				t.Fatalf("after %d calls: %v, %d runs", i+1, calls, runs.Load())
			}
		}
	})
}

// The process that runs fn is closed, or cut off from the arbiter: another one runs it instead.
func TestAnotherProcessTakesOver(t *testing.T) {
	end := func(t *testing.T, how func(c *coord.Coordinator, f *faulty), after time.Duration) {
		bubble(t, func(t *testing.T, a *fallback.Memory) {
			f := &faulty{Arbiter: a}
			first, second := must(coord.New(context.Background(), f, withFew(nil))), start(t, a, nil)
			puts := 0 // in turns, under the lock
			opts := &coord.ShareOptions[string]{Store: hooked{must(coord.Store(second)), nil, func() error { puts++; return nil }}}
			running := make(chan struct{})
			var work sync.WaitGroup
			var fence coord.Fence
			work.Go(func() {
				v, err := coord.Share(t.Context(), first, "k", opts, func(ctx context.Context, f coord.Fence) (string, error) {
					fence = f
					close(running)
					<-ctx.Done()
					if !errors.Is(context.Cause(ctx), coord.ErrLost) {
						t.Errorf("fn's context ended with %v", context.Cause(ctx))
					}
					time.Sleep(5 * time.Second) // it does not heed that: meanwhile another has run
					return "late", nil
				})
				if v != "late" || !errors.Is(err, coord.ErrLost) {
					t.Errorf("the first one: got %q, %v", v, err)
				}
			})
			<-running
			begin := time.Now()
			work.Go(func() {
				v, err := coord.Share(t.Context(), second, "k", opts, func(_ context.Context, f coord.Fence) (string, error) {
					if f <= fence {
						t.Errorf("fence %d after %d", f, fence)
					}
					return "early", nil
				})
				if v != "early" || err != nil || time.Since(begin) > after {
					t.Errorf("the second one: got %q, %v after %v", v, err, time.Since(begin))
				}
			})
			synctest.Wait()
			how(first, f)
			work.Wait()
			if r := must(opts.Store.Get(t.Context(), "k")); string(r.Value) != `="early"` || puts != 1 {
				t.Errorf("stored, in %d puts: %s", puts, r.Value)
			}
			f.mend()
			_ = first.Close(t.Context())
		})
	}
	t.Run("closed", func(t *testing.T) {
		end(t, func(c *coord.Coordinator, _ *faulty) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if err := c.Close(ctx); err == nil {
				t.Error("Close says that no lock was in use")
			}
		}, 6*time.Second)
	})
	t.Run("cut off", func(t *testing.T) {
		end(t, func(_ *coord.Coordinator, f *faulty) { f.cut() }, 14*time.Second)
	})
}

func TestErrorsAreSharedAndNotKept(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c, mine := start(t, a, nil), errors.New("mine")
		var runs int
		fn := func(context.Context, coord.Fence) (int, error) {
			runs++
			time.Sleep(time.Second)
			return 0, fmt.Errorf("run %d: %w", runs, mine)
		}
		for i := range 2 {
			var work sync.WaitGroup
			for range 10 {
				work.Go(func() {
					_, err := coord.Share(t.Context(), c, "k", nil, fn)
					if !errors.Is(err, mine) || err.Error() != fmt.Sprintf("run %d: mine", i+1) {
						t.Error(err)
					}
				})
			}
			work.Wait()
		}
	})
}

func TestAStaleResultIsBetterThanAnError(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c, bad := start(t, a, nil), errors.New("bad")
		opts := &coord.ShareOptions[string]{TTL: time.Second, StaleOnError: 9 * time.Second}
		v := must(coord.Share(t.Context(), c, "k", opts, func(context.Context, coord.Fence) (string, error) { return "good", nil }))
		runs := 0
		fail := func(context.Context, coord.Fence) (string, error) {
			runs++
			time.Sleep(2 * time.Second)
			return "broken", bad
		}
		for range 2 { // its age is 2 s, then 6 s; two more when fn has failed
			time.Sleep(2 * time.Second)
			if got, err := coord.Share(t.Context(), c, "k", opts, fail); got != v || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
		}
		time.Sleep(time.Second)
		// Now 9 s: it grows too old while fn runs.
		if got, err := coord.Share(t.Context(), c, "k", opts, fail); !errors.Is(err, bad) {
			t.Errorf("too late: got %q, %v", got, err)
		}
		if runs != 3 {
			t.Errorf("fn ran %d times", runs)
		}
		opts.Fresh = func(s string) bool { return s != "good" }
		must(coord.Share(t.Context(), c, "k2", opts, func(context.Context, coord.Fence) (string, error) { return "good", nil }))
		if got, err := coord.Share(t.Context(), c, "k2", opts, fail); !errors.Is(err, bad) {
			t.Errorf("one that Fresh objects to: got %q, %v", got, err)
		}
	})
}

func TestAResultThatIsNotFreshIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		fn, runs := counted(0)
		opts := &coord.ShareOptions[string]{Fresh: func(s string) bool { return s != "result 1" }}
		for i, want := range []string{"result 1", "result 2", "result 2"} {
			if v, err := coord.Share(t.Context(), c, "k", opts, fn); v != want || err != nil {
				t.Errorf("call %d: got %q, %v, want %q", i+1, v, err, want)
			}
		}
		// Another version of the program stored something else.
		if v, err := coord.Share(t.Context(), c, "k", nil, func(context.Context, coord.Fence) (int, error) { return 7, nil }); v != 7 || err != nil {
			t.Errorf("got %v, %v", v, err)
		}
		if runs.Load() != 2 {
			t.Errorf("fn ran %d times", runs.Load())
		}
	})
}

// unwanted returns an fn that must not be called.
func unwanted(t *testing.T) func(context.Context, coord.Fence) (string, error) {
	return func(context.Context, coord.Fence) (string, error) {
		t.Error("fn was called")
		return "", nil
	}
}

func TestTheOneWhoStartedMayLeave(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		fn, runs := counted(time.Second)
		leader, leave := context.WithCancelCause(t.Context())
		mine := errors.New("mine")
		var work sync.WaitGroup
		work.Go(func() {
			if _, err := coord.Share(leader, c, "k", nil, fn); !errors.Is(err, context.Canceled) || !errors.Is(err, mine) {
				t.Errorf("who left: %v", err)
			}
		})
		synctest.Wait()
		work.Go(func() {
			if v, err := coord.Share(t.Context(), c, "k", nil, fn); v != "result 1" || err != nil {
				t.Errorf("who stayed: got %q, %v", v, err)
			}
		})
		synctest.Wait()
		leave(mine)
		work.Wait()
		if runs.Load() != 1 {
			t.Errorf("fn ran %d times", runs.Load())
		}

		// All leave: fn's context ends, and its result is stored all the same.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ended := make(chan error, 1)
		_, err := coord.Share(ctx, c, "k2", nil, func(ctx context.Context, _ coord.Fence) (string, error) {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return "done", nil
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := <-ended; err != singleflight.ErrAbandoned {
			t.Errorf("fn's context ended with %v", err)
		}
		if v, err := coord.Share(t.Context(), c, "k2", nil, unwanted(t)); v != "done" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
		if _, err := coord.Share(ctx, c, "k3", nil, unwanted(t)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a ctx that has ended: %v", err)
		}
	})
}

func TestPanicAndGoexitPassThrough(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		func() {
			defer func() {
				if p, ok := recover().(*singleflight.PanicError); !ok || p.Value != "ouch" {
					t.Errorf("recovered %v", p)
				}
			}()
			_, _ = coord.Share(t.Context(), c, "k", nil, func(context.Context, coord.Fence) (int, error) { panic("ouch") })
		}()
		exited := make(chan bool)
		go func() {
			defer close(exited)
			_, _ = coord.Share(t.Context(), c, "k", nil, func(context.Context, coord.Fence) (int, error) { runtime.Goexit(); return 0, nil })
			t.Error("Share returned")
		}()
		<-exited
		l, err := c.TryLock(t.Context(), "k")
		if err != nil {
			t.Fatalf("the lock is not free: %v", err)
		}
		unlock(t, l)
	})
}

func TestBadSharing(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		for _, key := range []string{"", strings.Repeat("k", coord.MaxKey+1)} {
			if _, err := coord.Share(t.Context(), c, key, nil, unwanted(t)); !errors.Is(err, coord.ErrInvalidKey) {
				t.Errorf("a key of %d bytes: %v", len(key), err)
			}
		}
		for want, opts := range map[string]coord.ShareOptions[string]{
			"TTL":                  {TTL: time.Microsecond},
			"TTL is -1s":           {TTL: -time.Second},
			"RefreshAhead":         {RefreshAhead: 10 * time.Second},
			"StaleOnError":         {StaleOnError: -1},
			"RefreshAhead is 2ns":  {RefreshAhead: 2},
			"StaleOnError is 60ns": {StaleOnError: 60},
			"MaxSize":              {MaxSize: -1},
			"ErrorTTL":             {ErrorTTL: -1},
			"KeepErrors[0":         {KeepErrors: []error{nil}},
			"KeepErrors[1":         {KeepErrors: []error{errNoRow, errors.New("no such row")}},
			"Encode":               {Decode: func([]byte) (string, error) { return "", nil }},
		} {
			if _, err := coord.Share(t.Context(), c, "k", &opts, unwanted(t)); err == nil || !strings.Contains(err.Error(), "ShareOptions."+want) {
				t.Errorf("%s: %v", want, err)
			}
		}
		if _, err := coord.Share[string](t.Context(), c, "k", nil, nil); err == nil || !strings.Contains(err.Error(), "fn is nil") {
			t.Errorf("no fn: %v", err)
		}
	})
}

// rates is the result of one run for all.
type rates struct{ EUR, JPY float64 }

func ExampleShare() {
	c := newCoordinator()
	defer c.Close(context.Background())

	opts := &coord.ShareOptions[rates]{
		TTL:          time.Minute,
		RefreshAhead: 5 * time.Second, // so that no caller has to wait at the end of that minute
		StaleOnError: time.Hour,
	}
	for range 3 {
		r, err := coord.Share(context.Background(), c, "rates/USD", opts, func(context.Context, coord.Fence) (rates, error) {
			fmt.Println("asking the bank")
			return rates{EUR: 0.92, JPY: 155.1}, nil
		})
		fmt.Println(r.EUR, err)
	}
	// Output:
	// asking the bank
	// 0.92 <nil>
	// 0.92 <nil>
	// 0.92 <nil>
}

func ExampleUnshare() {
	c := newCoordinator()
	defer c.Close(context.Background())

	price := 10
	load := func(context.Context, coord.Fence) (int, error) { return price, nil }
	show := func() {
		p, err := coord.Share(context.Background(), c, "price/42", &coord.ShareOptions[int]{TTL: time.Hour}, load)
		fmt.Println(p, err)
	}
	show()
	price = 12 // first the data is changed
	show()
	if err := coord.Unshare(context.Background(), c, "price/42", nil); err != nil {
		log.Print(err)
	}
	show()
	// Output:
	// 10 <nil>
	// 10 <nil>
	// 12 <nil>
}
