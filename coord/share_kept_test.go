package coord_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

var (
	errNoRow  = errors.New("no such row")
	errNoUser = errors.New("no such user")
)

// failing returns an fn that fails, and counts.
func failing(err error) (fn func(context.Context, coord.Fence) (string, error), runs *int) {
	runs = new(int)
	return func(context.Context, coord.Fence) (string, error) { *runs++; return "", err }, runs
}

func TestErrorsThatAreKept(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		all := []*coord.Coordinator{start(t, a, nil), start(t, a, nil)}
		opts := &coord.ShareOptions[string]{TTL: time.Minute, KeepErrors: []error{errNoUser, errNoRow}, ErrorTTL: 10 * time.Second}
		failed := fmt.Errorf("load user 7: %w", errNoRow)
		fn, runs := failing(failed)
		if _, err := coord.Share(t.Context(), all[0], "k", opts, fn); err != failed { // the caller that ran fn has its error
			t.Errorf("got %v", err)
		}
		time.Sleep(9 * time.Second)
		for _, c := range all {
			v, err := coord.Share(t.Context(), c, "k", opts, unwanted(t))
			kept, ok := errors.AsType[*coord.KeptError](err)
			if v != "" || !errors.Is(err, errNoRow) || errors.Is(err, errNoUser) || !ok || kept.Text != failed.Error() || kept.Age < 9*time.Second {
				t.Errorf("got %q, %v, %+v", v, err, kept)
			}
		}
		time.Sleep(time.Second)
		if _, err := coord.Share(t.Context(), all[1], "k", opts, fn); err != failed || *runs != 2 {
			t.Errorf("after ErrorTTL: %v, %d runs", err, *runs)
		}
		// One that is not to be kept here is not used.
		for range 2 {
			other := &coord.ShareOptions[string]{TTL: time.Minute, KeepErrors: []error{errNoUser}}
			if _, err := coord.Share(t.Context(), all[0], "k", other, fn); err != failed {
				t.Errorf("got %v", err)
			}
		}
		if *runs != 4 {
			t.Errorf("%d runs, want 4", *runs)
		}
	})
}

// An error that is kept is news: the result of before is not.
func TestAKeptErrorReplacesAResult(t *testing.T) {
	takes.Seconds(t)
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		opts := &coord.ShareOptions[string]{TTL: time.Second, StaleOnError: time.Hour, KeepErrors: []error{errNoRow}, ErrorTTL: time.Minute}
		ok, _ := counted(0)
		must(coord.Share(t.Context(), c, "k", opts, ok))
		time.Sleep(2 * time.Second)
		gone, _ := failing(errNoRow)
		for range 2 {
			if v, err := coord.Share(t.Context(), c, "k", opts, gone); v != "" || !errors.Is(err, errNoRow) {
				t.Errorf("got %q, %v", v, err)
			}
			time.Sleep(time.Second)
		}
		// And it is not a result to go on with.
		time.Sleep(time.Hour)
		broken := errors.New("broken")
		if v, err := coord.Share(t.Context(), c, "k", opts, func(context.Context, coord.Fence) (string, error) { return "", broken }); v != "" || err != broken {
			t.Errorf("got %q, %v", v, err)
		}
		if v, err := coord.Share(t.Context(), c, "k", opts, ok); v != "result 2" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
	})
}

// The store's answer decides only whether an error is kept. Callers get the error in either case:
// the row of before is gone.
func TestAnErrorThatCouldNotBeKeptReplacesAResult(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		opts := &coord.ShareOptions[string]{TTL: time.Second, StaleOnError: time.Hour, KeepErrors: []error{errNoRow}}
		ok, _ := counted(0)
		must(coord.Share(t.Context(), c, "k", opts, ok))
		time.Sleep(2 * time.Second)
		gone, runs := failing(errNoRow)
		for name, put := range map[string]error{"the store fails": errors.New("bad"), "a later one has stored": coord.ErrLost} {
			opts.Store = hooked{must(coord.Store(c)), nil, func() error { return put }}
			if v, err := coord.Share(t.Context(), c, "k", opts, gone); v != "" || err != errNoRow {
				t.Errorf("%s: got %q, %v", name, v, err)
			}
		}
		if *runs != 2 {
			t.Errorf("%d runs, want 2: nothing was kept", *runs)
		}
	})
}

func TestTextsOfErrorsThatAreKept(t *testing.T) {
	for name, x := range map[string]struct{ known, text, want string }{
		"long":                         {"no row", strings.Repeat("é", 1000), strings.Repeat("é", 512)},
		"cut within a character":       {"no row", "x" + strings.Repeat("鍵", 1000), "x" + strings.Repeat("鍵", 341)},
		"long, and no UTF-8":           {"no row", strings.Repeat("\xbf", 2000), strings.Repeat("\xbf", 1024)},
		"no UTF-8, and the sentinel's": {"no \xff row", "\xfe <&> \x00", "\xfe <&> \x00: no \xff row"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				c, known := start(t, a, nil), errors.New(x.known)
				opts := &coord.ShareOptions[string]{KeepErrors: []error{errors.New("no \xfe row"), known}}
				fn, _ := failing(fmt.Errorf("%s: %w", x.text, known))
				_, _ = coord.Share(t.Context(), c, "k", opts, fn)
				_, err := coord.Share(t.Context(), c, "k", opts, unwanted(t))
				if !errors.Is(err, known) || err.Error() != x.want {
					t.Errorf("got %q, %d bytes", err, len(err.Error()))
				}
			})
		})
	}
}

func TestUnshare(t *testing.T) {
	t.Run("in memory", func(t *testing.T) { bubble(t, func(t *testing.T, a *fallback.Memory) { testUnshare(t, a, a) }) })
	t.Run("Redis", func(t *testing.T) {
		s := redistest.Start(t)
		testUnshare(t, overRedis(t, s), overRedis(t, s))
	})
}

func testUnshare(t *testing.T, a, b fallback.Arbiter) {
	c, other := start(t, a, nil), start(t, b, nil)
	opts := &coord.ShareOptions[string]{TTL: time.Hour, StaleOnError: time.Hour, KeepErrors: []error{errNoRow}}
	fn, runs := counted(0)
	must(coord.Share(t.Context(), c, "k", opts, fn))
	must(coord.Share(t.Context(), other, "k", opts, fn))
	for i, x := range []*coord.Coordinator{c, other} {
		if err := coord.Unshare(t.Context(), x, "k", nil); err != nil {
			t.Fatal(err)
		}
		// It is not even good enough when fn fails.
		gone, _ := failing(errNoRow)
		if v, err := coord.Share(t.Context(), other, "k", opts, gone); v != "" || err != errNoRow {
			t.Errorf("got %q, %v", v, err)
		}
		if err := coord.Unshare(t.Context(), x, "k", nil); err != nil { // errors as well
			t.Fatal(err)
		}
		if v, err := coord.Share(t.Context(), c, "k", opts, fn); v != fmt.Sprint("result ", i+2) || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
		if v, err := coord.Share(t.Context(), other, "k", opts, fn); v != fmt.Sprint("result ", i+2) || err != nil {
			t.Errorf("the other one: %q, %v", v, err)
		}
	}
	if runs.Load() != 3 {
		t.Errorf("%d runs, want 3", runs.Load())
	}
	if err := coord.Unshare(t.Context(), c, "never shared", nil); err != nil {
		t.Error(err)
	}
	if err := coord.Unshare(t.Context(), c, "", nil); !errors.Is(err, coord.ErrInvalidKey) {
		t.Error(err)
	}
}

// A run that was under way may have seen data that has changed since: its callers get its result,
// and no others.
func TestUnshareWhileFnRuns(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		fn, _ := counted(time.Second)
		var work sync.WaitGroup
		work.Go(func() {
			if v, err := coord.Share(t.Context(), c, "k", nil, fn); v != "result 1" || err != nil {
				t.Errorf("who came before: %q, %v", v, err)
			}
		})
		synctest.Wait()
		if err := coord.Unshare(t.Context(), c, "k", nil); err != nil {
			t.Fatal(err)
		}
		if v, err := coord.Share(t.Context(), c, "k", nil, fn); v != "result 2" || err != nil {
			t.Errorf("who came after: %q, %v", v, err)
		}
		work.Wait()
	})
}

// A caller that comes after Unshare joins no flight that has read before.
func TestUnshareWhileAFlightReads(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		fn, _ := counted(0)
		store := must(coord.Store(c))
		must(coord.Share(t.Context(), c, "k", nil, fn))
		read, proceed := make(chan struct{}), make(chan struct{})
		slow := &coord.ShareOptions[string]{Store: late{store, read, proceed}}
		var work sync.WaitGroup
		work.Go(func() {
			if v, err := coord.Share(t.Context(), c, "k", slow, fn); v != "result 1" || err != nil {
				t.Errorf("who came before: %q, %v", v, err)
			}
		})
		<-read
		if err := coord.Unshare(t.Context(), c, "k", store); err != nil {
			t.Fatal(err)
		}
		if v, err := coord.Share(t.Context(), c, "k", nil, fn); v != "result 2" || err != nil {
			t.Errorf("who came after: %q, %v", v, err)
		}
		close(proceed)
		work.Wait()
	})
}

// late is a store whose answers are on their way for long.
type late struct {
	coord.ShareStore
	read, proceed chan struct{}
}

func (s late) Get(ctx context.Context, key string) (coord.Shared, error) {
	r, err := s.ShareStore.Get(ctx, key)
	close(s.read)
	<-s.proceed
	return r, err
}

// A process that was stopped in a run, and goes on after Unshare, does not bring its result back.
func TestALateResultDoesNotUndoUnshare(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		store := must(coord.Store(c))
		fn, _ := counted(0)
		must(coord.Share(t.Context(), c, "k", nil, fn))
		old := must(store.Get(t.Context(), "k"))
		if err := coord.Unshare(t.Context(), c, "k", nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := store.Put(t.Context(), "k", old.Value, old.Fence, time.Hour); !errors.Is(err, coord.ErrLost) {
			t.Errorf("got %v", err)
		}
		if v, err := coord.Share(t.Context(), c, "k", nil, fn); v != "result 2" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
	})
}

// A caller that comes after Unshare joins no flight that has lost its lock since it has found a
// result: that may be returned, as a stale one.
func TestUnshareAfterAFlightHasLostItsLock(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		one, two := start(t, a, nil), start(t, a, nil)
		opts := &coord.ShareOptions[string]{TTL: time.Second, StaleOnError: time.Hour}
		fn, _ := counted(0)
		must(coord.Share(t.Context(), one, "k", opts, fn))
		time.Sleep(2 * time.Second)
		running, proceed := make(chan coord.Fence, 2), make(chan struct{})
		broken := errors.New("broken")
		deaf := func(_ context.Context, fence coord.Fence) (string, error) { // it does not heed its context
			running <- fence
			<-proceed
			return "", broken
		}
		var work sync.WaitGroup
		share := func(what, want string, wanted error) {
			work.Go(func() {
				if v, err := coord.Share(t.Context(), one, "k", opts, deaf); v != want || !errors.Is(err, wanted) {
					t.Errorf("%s: %q, %v", what, v, err)
				}
			})
		}
		share("the one that began", "result 1", nil)
		fence := <-running
		share("one that joined", "result 1", nil)
		synctest.Wait()
		if err := one.Break(t.Context(), "k", fence, "it hangs"); err != nil {
			t.Fatal(err)
		}
		if err := coord.Unshare(t.Context(), two, "k", nil); err != nil {
			t.Fatal(err)
		}
		share("one that came after Unshare", "", broken)
		<-running // a flight of its own
		share("one that joined that", "", broken)
		synctest.Wait()
		close(proceed)
		work.Wait()
		if len(running) > 0 {
			t.Error("a third flight")
		}
	})
}
