package periodic_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/crash"
	"github.com/holdfast-go/holdfast/periodic"
)

func TestBegin(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		here, there := start(t, a), start(t, a)
		begin := func(c *coord.Coordinator) (*periodic.Slot, error) {
			return periodic.Begin(t.Context(), c, "job", 30*time.Second, nil)
		}
		s, err := begin(here)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := begin(there); !errors.Is(err, periodic.ErrTaken) {
			t.Errorf("while it runs: %v", err)
		}
		time.Sleep(10 * time.Second)
		if err := s.End(); err != nil || s.End() != nil || s.Context().Err() == nil {
			t.Errorf("End: %v", err)
		}
		for _, c := range []*coord.Coordinator{here, there} {
			if _, err := begin(c); !errors.Is(err, periodic.ErrTaken) {
				t.Errorf("after it has ended: %v", err)
			}
		}
		time.Sleep(21 * time.Second)
		next, err := begin(there)
		if err != nil || next.Fence() <= s.Fence() {
			t.Fatalf("after keep: %v", err)
		}
		time.Sleep(40 * time.Second)
		if _, err := begin(here); !errors.Is(err, periodic.ErrTaken) {
			t.Errorf("while it runs for longer than keep: %v", err)
		}
		next.End()
		time.Sleep(time.Second) // the other process keeps the key for its own callers for some milliseconds
		if next, err = begin(here); err != nil {
			t.Fatalf("after that: %v", err)
		}
		next.End()
		for _, err := range []error{
			func() error { _, err := periodic.Begin(t.Context(), nil, "job", time.Second, nil); return err }(),
			func() error { _, err := periodic.Begin(t.Context(), here, "", time.Second, nil); return err }(),
			func() error { _, err := periodic.Begin(t.Context(), here, "job", 0, nil); return err }(),
		} {
			if err == nil || !strings.HasPrefix(err.Error(), "periodic: Begin: ") {
				t.Errorf("got %v", err)
			}
		}
	})
}

func TestBegin_ACrash(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		cut := &crash.Arbiter{Memory: a}
		here, there := start(t, cut), start(t, a)
		s, err := periodic.Begin(t.Context(), here, "job", time.Second, nil)
		if err != nil {
			t.Fatal(err)
		}
		cut.Cut()
		<-s.Context().Done()
		if err := s.End(); !errors.Is(err, coord.ErrLost) {
			t.Errorf("End: %v", err)
		}
		began := time.Now()
		for {
			next, err := periodic.Begin(t.Context(), there, "job", time.Second, nil)
			if err == nil {
				next.End()
				break
			}
			if !errors.Is(err, periodic.ErrTaken) || time.Since(began) > 5*time.Second {
				t.Fatalf("after %v: %v", time.Since(began), err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		cut.Mend()
	})
}

// panicking is a store that panics in its next Put if now is set.
type panicking struct {
	coord.ShareStore
	now bool
}

func (s *panicking) Put(ctx context.Context, key string, value []byte, fence uint64, keep time.Duration) error {
	if s.now {
		s.now = false
		panic("the store")
	}
	return s.ShareStore.Put(ctx, key, value, fence, keep)
}

// A store that panics leaves no lock behind.
func TestBegin_AStoreThatPanics(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		here, there := start(t, a), start(t, a)
		results, err := here.Results()
		if err != nil {
			t.Fatal(err)
		}
		s := &panicking{ShareStore: results}
		begin := func(c *coord.Coordinator) (*periodic.Slot, error) {
			return periodic.Begin(t.Context(), c, "job", time.Minute, &periodic.Options{Store: s})
		}
		panics := func(what string, f func()) {
			t.Helper()
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", what)
				}
			}()
			s.now = true
			f()
		}
		panics("Begin", func() { begin(here) })
		time.Sleep(time.Second) // the process keeps the key for its own callers for some milliseconds
		slot, err := begin(there)
		if err != nil {
			t.Fatal(err)
		}
		panics("End", func() { slot.End() })
		if slot.Context().Err() == nil || slot.End() != nil {
			t.Error("the slot has not ended")
		}
	})
}
