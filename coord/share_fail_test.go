package coord_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// silent is a store with an operation that does not answer.
type silent struct {
	coord.ShareStore
	get, put bool
}

func (s silent) Get(ctx context.Context, key string) (coord.Shared, error) {
	if s.get {
		<-ctx.Done()
		return coord.Shared{}, ctx.Err()
	}
	return s.ShareStore.Get(ctx, key)
}

func (s silent) Put(ctx context.Context, key string, value []byte, fence uint64, keep time.Duration) error {
	if s.put {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.ShareStore.Put(ctx, key, value, fence, keep)
}

// No caller waits for ever for a store, least of all with the lock.
func TestStoresThatDoNotAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		opts := &coord.ShareOptions[string]{Store: silent{ShareStore: must(coord.Store(c)), get: true}}
		if _, err := coord.Share(ctx, c, "k", opts, unwanted(t)); !errors.Is(err, coord.ErrUnavailable) || ctx.Err() != nil {
			t.Errorf("Get: %v", err)
		}
		opts.Store = silent{ShareStore: must(coord.Store(c)), put: true}
		fn, _ := counted(0)
		if v, err := coord.Share(ctx, c, "k", opts, fn); v != "result 1" || err != nil || ctx.Err() != nil {
			t.Errorf("Put: %q, %v", v, err)
		}
	})
}

// The error tells whether there is a value beside it.
func TestAValueBesideAnError(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		f := &faulty{Arbiter: a}
		c, other := start(t, f, nil), start(t, a, nil)
		store := must(coord.Store(other)) // c's arbiter keeps no results
		share := func(opts coord.ShareOptions[string], fn func(context.Context, coord.Fence) (string, error)) (string, error) {
			opts.Store = store
			return coord.Share(t.Context(), c, "k", &opts, fn)
		}
		failed := errors.New("failed")
		heeds := func(ctx context.Context, _ coord.Fence) (string, error) {
			f.cut()
			<-ctx.Done()
			return "", context.Cause(ctx)
		}
		if v, err := share(coord.ShareOptions[string]{}, heeds); v != "" || !errors.Is(err, coord.ErrLost) || errors.Is(err, coord.ErrNotShared) {
			t.Errorf("lost, and fn heeds it: %q, %v", v, err)
		}
		f.mend()
		if v, err := share(coord.ShareOptions[string]{}, func(ctx context.Context, _ coord.Fence) (string, error) {
			f.cut()
			<-ctx.Done()
			return "late", nil
		}); v != "late" || !errors.Is(err, coord.ErrLost) || !errors.Is(err, coord.ErrNotShared) {
			t.Errorf("lost: %q, %v", v, err)
		}
		f.mend()
		bad := coord.ShareOptions[string]{
			Encode: func(string) ([]byte, error) { return nil, failed },
			Decode: func(b []byte) (string, error) { return string(b), nil },
		}
		good := func(context.Context, coord.Fence) (string, error) { return "good", nil }
		if v, err := share(bad, good); v != "good" || !errors.Is(err, failed) || !errors.Is(err, coord.ErrNotShared) {
			t.Errorf("not encoded: %q, %v", v, err)
		}
		if v, err := share(coord.ShareOptions[string]{MaxSize: 1}, good); v != "good" || !errors.Is(err, coord.ErrTooLarge) || !errors.Is(err, coord.ErrNotShared) {
			t.Errorf("too large: %q, %v", v, err)
		}
		if _, err := share(coord.ShareOptions[string]{}, func(context.Context, coord.Fence) (string, error) { return "", failed }); !errors.Is(err, failed) || errors.Is(err, coord.ErrNotShared) {
			t.Errorf("failed: %v", err)
		}
		stale := coord.ShareOptions[string]{StaleOnError: time.Hour}
		if v, err := share(stale, good); v != "good" || err != nil {
			t.Errorf("good: %q, %v", v, err)
		}
		time.Sleep(10 * time.Second)
		if v, err := share(stale, heeds); v != "good" || err != nil {
			t.Errorf("stale, as the lock was lost: %q, %v", v, err)
		}
		f.mend()
	})
}

// An error of a Share inside fn says nothing of fn's own value, now or where it is kept.
func TestAnErrorOfAShareInsideFn(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		kept := fmt.Errorf("kept: %w", coord.ErrNotShared)
		for name, inside := range map[string]error{
			"not stored": fmt.Errorf("%w: %w", coord.ErrNotShared, &coord.LossError{Key: "inside"}),
			"kept":       fmt.Errorf("%w: %w", kept, &coord.LossError{Key: "inside"}),
		} {
			opts := &coord.ShareOptions[string]{KeepErrors: []error{kept}, ErrorTTL: time.Hour}
			_, err := coord.Share(t.Context(), c, name, opts, func(context.Context, coord.Fence) (string, error) { return "", inside })
			if lost, ok := errors.AsType[*coord.LossError](err); errors.Is(err, coord.ErrNotShared) || !errors.Is(err, inside) ||
				!errors.Is(err, coord.ErrLost) || !ok || lost.Key != "inside" || err.Error() != inside.Error() {
				t.Errorf("%s: %v", name, err)
			}
			if name == "kept" {
				_, err = coord.Share(t.Context(), c, name, opts, unwanted(t))
				if errors.Is(err, coord.ErrNotShared) || !errors.Is(err, kept) {
					t.Errorf("kept: %v", err)
				}
			}
		}
	})
}

// A caller that waits for the store when the coordinator is closed is told that, and not of
// another's context.
func TestCloseEndsReads(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := must(coord.New(context.Background(), a, withFew(&coord.Options{CallTimeout: 500 * time.Millisecond})))
		opts := &coord.ShareOptions[string]{Store: silent{ShareStore: must(coord.Store(c)), get: true}}
		done := make(chan error, 1)
		go func() {
			_, err := coord.Share(t.Context(), c, "k", opts, unwanted(t))
			done <- err
		}()
		synctest.Wait()
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, coord.ErrClosed) || errors.Is(err, context.Canceled) || errors.Is(err, coord.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	})
}

// A panic in the background has no caller to pass through to, but the log should have it.
func TestAPanicWhileRefreshingIsLogged(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		var log bytes.Buffer
		c := start(t, a, &coord.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		opts := &coord.ShareOptions[string]{TTL: time.Hour, RefreshAhead: time.Hour - 1}
		fn, _ := counted(0)
		must(coord.Share(t.Context(), c, "k", opts, fn))
		for range 100 { // by chance some of them refresh
			must(coord.Share(t.Context(), c, "k", opts, func(context.Context, coord.Fence) (string, error) { panic("ouch") }))
			synctest.Wait()
		}
		if !strings.Contains(log.String(), "ouch") {
			t.Errorf("logged: %q", log.String())
		}
		l, err := c.TryLock(t.Context(), "k")
		if err != nil {
			t.Fatalf("the lock is not free: %v", err)
		}
		unlock(t, l)
	})
}

func TestResultsThatAreKeptForEver(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		opts := &coord.ShareOptions[string]{TTL: math.MaxInt64, StaleOnError: time.Hour}
		fn, runs := counted(0)
		for range 2 {
			if v, err := coord.Share(t.Context(), c, "k", opts, fn); v != "result 1" || err != nil {
				t.Errorf("got %q, %v", v, err)
			}
		}
		if runs.Load() != 1 {
			t.Errorf("fn ran %d times", runs.Load())
		}
	})
}
