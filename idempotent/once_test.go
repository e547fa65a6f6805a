package idempotent_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/idempotent"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/coordtest"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestMain(m *testing.M) { leak.Main(m) }

// limit is for how long a test waits for something that has to happen.
const limit = 20 * time.Second

func locks(t *testing.T, a fallback.Arbiter) *coord.Coordinator {
	t.Helper()
	c, err := coord.New(t.Context(), a, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s := c.Stats(); s.Locked > 0 || s.Waiting > 0 {
			t.Errorf("%d locks, %d waiters are left", s.Locked, s.Waiting)
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

// world is locks and a store.
type world struct {
	arbiter fallback.Arbiter
	store   func() idempotent.Store // the same records, as another process has them
}

func worlds(t *testing.T) map[string]world {
	server := redistest.Start(t)
	memory := idempotent.NewMemoryStore(nil)
	return map[string]world{
		"memory": {fallback.NewMemory(), func() idempotent.Store { return memory }},
		"Redis": {
			redisarbiter.New(server.Client(t), &redisarbiter.Options{ColdStart: true}),
			func() idempotent.Store { return idempotent.NewRedisStore(server.Client(t), nil) },
		},
	}
}

// A message without an ID is told from one that may be delivered again, and not executed.
func TestOnce_NoID(t *testing.T) {
	coordtest.Bubble(t, func(t *testing.T, a *fallback.Memory) {
		x := idempotent.New(coordtest.Start(t, a, nil), idempotent.NewMemoryStore(nil), &idempotent.Options{Scope: "payments"})
		for range 2 {
			err := x.Once(t.Context(), "", func(context.Context, coord.Lock) error { t.Error("it ran"); return nil })
			if !errors.Is(err, idempotent.ErrNoID) || errors.Is(err, idempotent.ErrUnknown) || errors.Is(err, idempotent.ErrInProgress) {
				t.Error(err)
			}
		}
	})
}

var errBusy = errors.New("busy")

// The error of a function decides the error of later calls, in each process, with both stores.
func TestOnce(t *testing.T) {
	for name, w := range worlds(t) {
		t.Run(name, func(t *testing.T) {
			both := [2]*coord.Coordinator{locks(t, w.arbiter), locks(t, w.arbiter)}
			for what, x := range map[string]struct {
				returns []error // of each run
				gets    []func(error) bool
			}{
				"done":     {[]error{nil}, []func(error) bool{isNil, isNil, isNil}},
				"again":    {[]error{errBusy, errBusy, nil}, []func(error) bool{is(errBusy), is(errBusy), isNil, isNil}},
				"final":    {[]error{idempotent.Final(errBusy)}, []func(error) bool{final(errBusy), final(nil), final(nil)}},
				"wrapped":  {[]error{fmt.Errorf("a: %w", idempotent.Final(errBusy))}, []func(error) bool{is(errBusy), final(nil)}},
				"no final": {[]error{idempotent.Final(nil)}, []func(error) bool{isNil, isNil}},
				"unknown":  {[]error{fmt.Errorf("%w: sent, no answer", idempotent.ErrUnknown)}, []func(error) bool{is(idempotent.ErrUnknown), is(idempotent.ErrUnknown)}},
			} {
				runs := 0
				for i, want := range x.gets {
					err := idempotent.Once(t.Context(), both[i%2], w.store(), what, func(ctx context.Context, l coord.Lock) error {
						runs++
						if l.Fence() == 0 || ctx.Err() != nil {
							t.Errorf("%s: token %v, %v", what, l.Fence(), ctx.Err())
						}
						return x.returns[runs-1]
					})
					if !want(err) {
						t.Errorf("%s: call %d: %v", what, i, err)
					}
				}
				if runs != len(x.returns) {
					t.Errorf("%s: %d runs", what, runs)
				}
			}
		})
	}
}

func isNil(err error) bool { return err == nil }

func is(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }

// final is a FinalError that wraps cause.
func final(cause error) func(error) bool {
	return func(err error) bool {
		e, ok := errors.AsType[*idempotent.FinalError](err)
		return ok && e.Err == cause && e.Error() == errBusy.Error()
	}
}

// Calls at the same time, in two processes: one runs the function, the others wait and get its
// result.
func TestOnce_AtTheSameTime(t *testing.T) {
	for name, w := range worlds(t) {
		t.Run(name, func(t *testing.T) {
			both := [2]*idempotent.Executor{idempotent.New(locks(t, w.arbiter), w.store(), nil), idempotent.New(locks(t, w.arbiter), w.store(), nil)}
			var runs, done atomic.Int32
			var all sync.WaitGroup
			for i := range 20 {
				all.Go(func() {
					if err := both[i%2].Once(t.Context(), "id", func(context.Context, coord.Lock) error {
						runs.Add(1)
						await.Throughout(t, time.Millisecond, "one runs", func() bool { return runs.Load() == 1 && done.Load() == 0 })
						done.Add(1)
						return nil
					}); err != nil || done.Load() != 1 {
						t.Errorf("%v, %d done", err, done.Load())
					}
				})
			}
			all.Wait()
			if runs.Load() != 1 {
				t.Errorf("%d runs", runs.Load())
			}
		})
	}
}

// A call that does not wait, or not among so many, is told that another one runs the function; IDs
// and scopes are apart.
func TestOnce_InProgress(t *testing.T) {
	c, store := locks(t, fallback.NewMemory()), idempotent.NewMemoryStore(nil)
	hasty := idempotent.New(c, store, &idempotent.Options{Wait: -1})
	crowded := idempotent.New(c, store, &idempotent.Options{MaxWaiters: 1})
	other := idempotent.New(c, store, &idempotent.Options{Scope: "other", Wait: -1})
	never := func(context.Context, coord.Lock) error { t.Error("it ran"); return nil }
	waits := make(chan error, 1)
	err := crowded.Once(t.Context(), "id", func(ctx context.Context, _ coord.Lock) error {
		if err := hasty.Once(t.Context(), "id", never); !errors.Is(err, idempotent.ErrInProgress) || !errors.Is(err, coord.ErrLocked) {
			t.Errorf("no wait: %v", err)
		}
		go func() { waits <- crowded.Once(t.Context(), "id", never) }()
		await.Until(t, "a call waits", func() bool { return c.Stats().Waiting == 1 })
		if err := crowded.Once(t.Context(), "id", never); !errors.Is(err, idempotent.ErrInProgress) {
			t.Errorf("too many: %v", err)
		}
		for _, x := range []*idempotent.Executor{hasty, other} {
			ran := false
			if err := x.Once(t.Context(), map[bool]string{true: "id", false: "another"}[x == other], func(context.Context, coord.Lock) error { ran = true; return nil }); err != nil || !ran {
				t.Errorf("another: %v, ran %v", err, ran)
			}
		}
		if err := idempotent.New(c, store, nil).Once(ctx, "id", never); !errors.Is(err, coord.ErrHeld) { // it would wait for itself
			t.Errorf("within: %v", err)
		}
		return nil
	})
	if err != nil || <-waits != nil {
		t.Error(err)
	}
	if err := hasty.Once(t.Context(), "", never); err == nil {
		t.Error("no ID")
	}
}

// A function that panics, or whose process has died, may have done its work: later calls are told,
// and with Rerun they run it.
func TestOnce_Unknown(t *testing.T) {
	for name, w := range worlds(t) {
		t.Run(name, func(t *testing.T) {
			c := locks(t, w.arbiter)
			x := idempotent.New(c, w.store(), nil)
			func() {
				defer func() {
					if r := recover(); r != "on purpose" {
						t.Errorf("recovered %v", r)
					}
				}()
				_ = x.Once(t.Context(), "id", func(context.Context, coord.Lock) error { panic("on purpose") })
			}()
			if err := x.Once(t.Context(), "id", func(context.Context, coord.Lock) error { t.Error("it ran"); return nil }); !errors.Is(err, idempotent.ErrUnknown) {
				t.Error(err)
			}
			ran := false
			again := idempotent.New(c, w.store(), &idempotent.Options{Rerun: true})
			if err := again.Once(t.Context(), "id", func(context.Context, coord.Lock) error { ran = true; return nil }); err != nil || !ran {
				t.Errorf("%v, ran %v", err, ran)
			}
			if err := x.Once(t.Context(), "id", func(context.Context, coord.Lock) error { t.Error("it ran"); return nil }); err != nil {
				t.Error(err)
			}
		})
	}
}

// faulty fails those calls of Put that are due.
type faulty struct {
	idempotent.Store
	puts int
	fail func(put int) error
}

func (s *faulty) Put(ctx context.Context, key string, record []byte, fence uint64, ttl time.Duration) error {
	s.puts++
	if err := s.fail(s.puts); err != nil {
		return err
	}
	return s.Store.Put(ctx, key, record, fence, ttl)
}

// If the beginning cannot be stored, nothing runs. If the end cannot, the run counts, is logged,
// and later calls are told.
func TestOnce_StoreFails(t *testing.T) {
	c := locks(t, fallback.NewMemory())
	away := errors.New("away")
	for put, runs := range map[int]int{1: 0, 2: 1} {
		store := &faulty{Store: idempotent.NewMemoryStore(nil), fail: func(n int) error {
			if n == put {
				return away
			}
			return nil
		}}
		var logged strings.Builder
		x := idempotent.New(c, store, &idempotent.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		ran := 0
		fn := func(context.Context, coord.Lock) error { ran++; return nil }
		if err := x.Once(t.Context(), "id", fn); (err != nil) != (put == 1) || put == 1 && !errors.Is(err, away) || ran != runs {
			t.Errorf("put %d: %v, %d runs", put, err, ran)
		}
		switch err := x.Once(t.Context(), "id", fn); {
		case put == 1 && (err != nil || ran != 1):
			t.Errorf("nothing had run: %v, %d runs", err, ran)
		case put == 2 && (!errors.Is(err, idempotent.ErrUnknown) || ran != 1 || !strings.Contains(logged.String(), "level=ERROR")):
			t.Errorf("it had run: %v, %d runs, %s", err, ran, logged.String())
		}
	}
}

// A record is kept for TTL: after that the ID is new.
func TestOnce_TTL(t *testing.T) {
	for name, w := range worlds(t) {
		t.Run(name, func(t *testing.T) {
			x := idempotent.New(locks(t, w.arbiter), w.store(), &idempotent.Options{TTL: time.Second})
			runs := 0
			await.Until(t, "it runs once more", func() bool {
				if err := x.Once(t.Context(), "id", func(context.Context, coord.Lock) error { runs++; return nil }); err != nil {
					t.Fatal(err)
				}
				return runs == 2
			})
		})
	}
}

// A caller that gives up ends its function; that may be called again.
func TestOnce_CallerGivesUp(t *testing.T) {
	x := idempotent.New(locks(t, fallback.NewMemory()), idempotent.NewMemoryStore(nil), nil)
	ctx, cancel := context.WithCancel(t.Context())
	err := x.Once(ctx, "id", func(ctx context.Context, _ coord.Lock) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	ran := false
	if err := x.Once(t.Context(), "id", func(context.Context, coord.Lock) error { ran = true; return nil }); err != nil || !ran {
		t.Errorf("%v, ran %v", err, ran)
	}
}

func TestNew_RefusesBadOptions(t *testing.T) {
	c, store := locks(t, fallback.NewMemory()), idempotent.NewMemoryStore(nil)
	for name, f := range map[string]func(){
		"no locks": func() { idempotent.New(nil, store, nil) }, "no store": func() { idempotent.New(c, nil, nil) },
		"TTL":                 func() { idempotent.New(c, store, &idempotent.Options{TTL: -1}) },
		"TTL is 24ns":         func() { idempotent.New(c, store, &idempotent.Options{TTL: 24}) },
		"Wait is 10ns":        func() { idempotent.New(c, store, &idempotent.Options{Wait: 10}) },
		"StoreTimeout is 5ns": func() { idempotent.New(c, store, &idempotent.Options{StoreTimeout: 5}) },
		"StoreTimeout":        func() { idempotent.New(c, store, &idempotent.Options{StoreTimeout: -1}) },
	} {
		func() {
			defer func() {
				if r := recover(); r == nil {
					t.Errorf("%s: accepted", name)
				} else if text := fmt.Sprint(r); name[0] != 'n' && !strings.Contains(text, "Options."+name) {
					t.Errorf("%s: %s", name, text)
				}
			}()
			f()
		}()
	}
}
