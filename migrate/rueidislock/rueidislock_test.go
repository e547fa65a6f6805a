package rueidislock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/rueidis"
	real "github.com/redis/rueidis/rueidislock"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/coordtest"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/migrate/internal/shimtest"
	"github.com/holdfast-go/holdfast/migrate/rueidislock"
)

func TestMain(m *testing.M) { leak.Main(m) }

// A side is the library or the shim, with two processes.
type side struct {
	shimtest.Log
	processes [2]rueidislock.Locker // the library's have its methods
	lose      func()                // process 0 loses the lock
}

func library(t *testing.T, s *redistest.Server) *side {
	b := &side{
		Log: shimtest.Log{Errors: map[string]error{"ErrNotLocked": real.ErrNotLocked, "ErrLockerClosed": real.ErrLockerClosed}},
		lose: func() {
			for _, key := range []string{"rueidislock:0:k", "rueidislock:1:k"} {
				shimtest.Remove(t, s.Client(t), key)
			}
		},
	}
	for i := range b.processes {
		l, err := real.NewLocker(real.LockerOption{ClientOption: rueidis.ClientOption{InitAddress: []string{s.Addr}}, TryNextAfter: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		b.processes[i] = l
		t.Cleanup(l.Close)
	}
	return b
}

func shim(t *testing.T, s *redistest.Server) *side {
	b := &side{Log: shimtest.Log{Errors: map[string]error{"ErrNotLocked": rueidislock.ErrNotLocked, "ErrLockerClosed": rueidislock.ErrLockerClosed}}}
	nodes := shimtest.Nodes(t, s, "b")
	for i, c := range nodes {
		var err error
		if b.processes[i], err = rueidislock.NewLocker(c); err != nil {
			t.Fatal(err)
		}
	}
	b.lose = func() { shimtest.Close(nodes[0]) }
	return b
}

type valueKey struct{}

// The same calls of the library and of the shim return the same, but for the differences of the
// package's documentation.
func TestShim_DoesWhatTheLibraryDoes(t *testing.T) {
	shimtest.Run(t, map[string]shimtest.Scenario[*side]{
		"a lock's life": {Do: func(t *testing.T, s *side) {
			outer := context.WithValue(t.Context(), valueKey{}, "mine")
			for range 2 {
				ctx, cancel, err := s.processes[0].WithContext(outer, "k")
				s.Add("WithContext", err, ctx.Err(), ctx.Value(valueKey{}))
				cancel()
				cancel()
				s.Add("after that", ctx.Err(), outer.Err())
			}
			ctx, cancel, err := s.processes[0].TryWithContext(outer, "k") // the other one may come before the release
			s.Add("TryWithContext", err, ctx.Err(), ctx.Value(valueKey{}))
			cancel()
			s.Add("after that", ctx.Err())
		}},
		"locked": {Do: func(t *testing.T, s *side) {
			_, cancel, err := s.processes[0].WithContext(t.Context(), "k")
			s.Add("WithContext", err)
			defer cancel()
			for _, p := range s.processes {
				ctx, cancel, err := p.TryWithContext(t.Context(), "k")
				s.Add("TryWithContext", err, cancel != nil, ctx.Err())
				cancel()
			}
			_, free, err := s.processes[1].TryWithContext(t.Context(), "another")
			s.Add("another key", err)
			free()
			limited, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer end()
			ctx, cancel, err := s.processes[1].WithContext(limited, "k")
			s.Add("with a deadline", ctx, cancel == nil, err)
			limited, end = context.WithCancel(t.Context())
			end()
			ctx, cancel, err = s.processes[1].WithContext(limited, "k")
			s.Add("that has ended", ctx, cancel == nil, err)
		}},
		"a wait": {Do: func(t *testing.T, s *side) {
			_, cancel, err := s.processes[0].WithContext(t.Context(), "k")
			s.Add("WithContext", err)
			got := make(chan error)
			for _, p := range s.processes {
				go func() {
					_, cancel, err := p.WithContext(t.Context(), "k")
					if err == nil {
						cancel()
					}
					got <- err
				}()
			}
			cancel()
			s.Add("those that wait", <-got, <-got)
		}},
		"the caller's context ends": {Do: func(t *testing.T, s *side) {
			for _, end := range []func() (context.Context, context.CancelFunc){
				func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) },
				func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), time.Second) },
			} {
				outer, end := end()
				ctx, cancel, err := s.processes[0].WithContext(outer, "k")
				_, limited := ctx.Deadline()
				s.Add("WithContext", err, limited)
				if !limited {
					end()
				}
				<-ctx.Done()
				s.Add("the lock", ctx.Err())
				_, free, err := s.processes[1].WithContext(t.Context(), "k")
				s.Add("it is free", err)
				free()
				cancel()
				end()
			}
		}},
		"a lost lock": {Do: func(t *testing.T, s *side) {
			ctx, cancel, err := s.processes[0].WithContext(t.Context(), "k")
			s.Add("WithContext", err)
			s.lose()
			<-ctx.Done()
			s.Add("the lock", ctx.Err())
			cancel()
		}},
		"closed": {Do: func(t *testing.T, s *side) {
			_, cancel, err := s.processes[1].WithContext(t.Context(), "k")
			s.Add("WithContext", err)
			got := make(chan error)
			go func() {
				_, _, err := s.processes[0].WithContext(t.Context(), "k")
				got <- err
			}()
			s.processes[0].Close()
			s.Add("the one that waits", <-got)
			_, _, err = s.processes[0].WithContext(t.Context(), "other")
			s.Add("WithContext", err)
			_, _, err = s.processes[0].TryWithContext(t.Context(), "other")
			s.Add("TryWithContext", err)
			cancel()
		}},

		"closed while it is held": {Do: func(t *testing.T, s *side) {
			ctx, cancel, err := s.processes[0].WithContext(t.Context(), "k")
			s.Add("WithContext", err)
			s.processes[0].Close()
			select {
			case <-ctx.Done():
			case <-time.After(500 * time.Millisecond):
			}
			s.Add("the lock", ctx.Err())
			cancel()
		}, Differs: []string{"WithContext: <nil>", "the lock: <nil>"}},
	}, library, shim)
}

// The shim's additions to the library: a token, a cause, and an answer where a caller would wait
// for itself.
func TestWithContext(t *testing.T) {
	c := coordtest.Start(t, fallback.NewMemory(), nil)
	l, err := rueidislock.NewLocker(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel, err := l.WithContext(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if rueidislock.Fence(ctx) == 0 || rueidislock.Fence(t.Context()) != 0 {
		t.Error("the token is not that of the lock")
	}
	if _, _, err := l.WithContext(ctx, "k"); !errors.Is(err, coord.ErrHeld) {
		t.Errorf("the caller has the lock: %v", err)
	}
	if _, _, err := l.TryWithContext(ctx, "k"); !errors.Is(err, rueidislock.ErrNotLocked) {
		t.Errorf("the caller has the lock: %v", err)
	}
	cancel()
	if err := context.Cause(ctx); !errors.Is(err, coord.ErrUnlocked) {
		t.Errorf("cause: %v", err)
	}
	if _, _, err := l.WithContext(t.Context(), ""); !errors.Is(err, coord.ErrInvalidKey) {
		t.Errorf("no key: %v", err)
	}
	for _, err := range []error{second(rueidislock.NewLocker(nil)), second(rueidislock.NewBoth(nil))} {
		if err == nil {
			t.Error("nil was accepted")
		}
	}
}

func second(_ rueidislock.Locker, err error) error { return err }

func ExampleNewLocker() {
	sell := func(ctx context.Context, locks *coord.Coordinator, sku string) error {
		locker, err := rueidislock.NewLocker(locks)
		if err != nil {
			return err
		}
		defer locker.Close()
		ctx, cancel, err := locker.WithContext(ctx, "sku/"+sku)
		if err != nil {
			return err
		}
		defer cancel()
		return ctx.Err()
	}
	_ = sell
}
