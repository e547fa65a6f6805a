package coord_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/coord/sharetest"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestTheArbitersStoreConforms(t *testing.T) {
	t.Parallel()
	t.Run("Memory", func(t *testing.T) {
		sharetest.Run(t, func(t *testing.T) coord.ShareStore {
			return must(coord.Store(start(t, fallback.NewMemory(), nil)))
		})
	})
	t.Run("Redis", func(t *testing.T) {
		s := redistest.Start(t)
		var n atomic.Int64
		sharetest.Run(t, func(t *testing.T) coord.ShareStore {
			return must(coord.Store(start(t, overRedis(t, s), &coord.Options{Namespace: fmt.Sprint("ns", n.Add(1)), Partitions: 7})))
		})
	})
}

// hooked is a store that does something before each call.
type hooked struct {
	coord.ShareStore
	get, put func() error
}

func (h hooked) Get(ctx context.Context, key string) (coord.Shared, error) {
	if h.get != nil {
		if err := h.get(); err != nil {
			return coord.Shared{}, err
		}
	}
	return h.ShareStore.Get(ctx, key)
}

func (h hooked) Put(ctx context.Context, key string, value []byte, fence uint64, keep time.Duration) error {
	if h.put != nil {
		if err := h.put(); err != nil {
			return err
		}
	}
	return h.ShareStore.Put(ctx, key, value, fence, keep)
}

func TestALaterFenceRefusesTheResult(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		store := must(coord.Store(c))
		v, err := coord.Share(t.Context(), c, "k", nil, func(ctx context.Context, fence coord.Fence) (string, error) {
			return "mine", store.Put(ctx, "k", []byte(`="theirs"`), uint64(fence)+1, time.Minute)
		})
		loss, ok := errors.AsType[*coord.LossError](err)
		if v != "mine" || !ok || loss.Cause != coord.Superseded {
			t.Errorf("got %q, %v", v, err)
		}
		if v := must(coord.Share(t.Context(), c, "k", nil, unwanted(t))); v != "theirs" {
			t.Errorf("got %q", v)
		}
	})
}

func TestStoresThatFail(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c, bad := start(t, a, nil), errors.New("bad")
		fails := func() error { return bad }
		opts := &coord.ShareOptions[string]{Store: hooked{must(coord.Store(c)), fails, nil}}
		if v, err := coord.Share(t.Context(), c, "k", opts, unwanted(t)); v != "" || !errors.Is(err, coord.ErrUnavailable) || !errors.Is(err, bad) {
			t.Errorf("Get fails: got %q, %v", v, err)
		}
		gets := 0
		opts.Store = hooked{must(coord.Store(c)), func() error {
			if gets++; gets > 1 {
				return bad
			}
			return nil
		}, nil}
		if v, err := coord.Share(t.Context(), c, "k", opts, unwanted(t)); v != "" || !errors.Is(err, coord.ErrUnavailable) || gets != 2 {
			t.Errorf("Get under the lock fails: got %q, %v", v, err)
		}
		opts.Store = hooked{must(coord.Store(c)), nil, fails}
		fn, runs := counted(0)
		for i := range 2 { // nothing is stored
			if v, err := coord.Share(t.Context(), c, "k", opts, fn); v != fmt.Sprint("result ", i+1) || err != nil {
				t.Errorf("Put fails: got %q, %v", v, err)
			}
		}
		if runs.Load() != 2 {
			t.Errorf("fn ran %d times", runs.Load())
		}
		without := start(t, &faulty{Arbiter: a}, nil) // its namespace is not a ResultStore
		if _, err := coord.Share(t.Context(), without, "k", nil, unwanted(t)); !errors.Is(err, coord.ErrNoResults) {
			t.Errorf("without a store: got %v", err)
		}
	})
}

func TestResultsOfTwoTypesDoNotMix(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		var work sync.WaitGroup
		work.Go(func() {
			v, err := coord.Share(t.Context(), c, "k", nil, func(context.Context, coord.Fence) (int, error) { time.Sleep(time.Second); return 7, nil })
			if v != 7 || err != nil {
				t.Errorf("got %v, %v", v, err)
			}
		})
		synctest.Wait()
		v, err := coord.Share(t.Context(), c, "k", nil, func(context.Context, coord.Fence) (string, error) { return "seven", nil })
		if v != "seven" || err != nil { // 7 is no string
			t.Errorf("got %q, %v", v, err)
		}
		work.Wait()
		w, err := coord.Share(t.Context(), c, "nil", nil, func(context.Context, coord.Fence) (any, error) { return nil, nil })
		if w != nil || err != nil {
			t.Errorf("got %v, %v", w, err)
		}
	})
}

func TestResultsThatCannotBeStored(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		large := func(context.Context, coord.Fence) (string, error) { return strings.Repeat("x", 99), nil }
		v, err := coord.Share(t.Context(), c, "k", &coord.ShareOptions[string]{MaxSize: 100}, large)
		if len(v) != 99 || !errors.Is(err, coord.ErrTooLarge) || !strings.Contains(err.Error(), "101 bytes, ShareOptions.MaxSize is 100") {
			t.Errorf("got %q, %v", v, err)
		}
		if _, err := coord.Share(t.Context(), c, "k", &coord.ShareOptions[string]{MaxSize: 101}, large); err != nil {
			t.Error(err)
		}
		if _, err := coord.Share(t.Context(), c, "k2", nil, func(context.Context, coord.Fence) (func(), error) { return func() {}, nil }); err == nil ||
			!strings.Contains(err.Error(), "encode") {
			t.Errorf("a func: %v", err)
		}
	})
}
