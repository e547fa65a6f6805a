package coord_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
)

// curious is a context of the user's that asks the coordinator something. A context with a mutex of
// its own may likewise wait for a caller that does.
type curious struct {
	context.Context
	c *coord.Coordinator
}

func (x curious) Value(key any) any     { _ = x.c.Stats(); return x.Context.Value(key) }
func (x curious) Done() <-chan struct{} { _ = x.c.Stats(); return x.Context.Done() }

// No mutex is held while the caller's context is asked for something: it is the user's code.
func TestUsersContext_IsAskedWithoutAMutex(t *testing.T) {
	t.Parallel()
	c := must(coord.New(t.Context(), fallback.NewMemory(), nil)) // closed at the end only: that would wait for ever
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asks := func(ctx context.Context) error { ctx.Done(); return ctx.Err() }
	for name, do := range map[string]func(ctx context.Context) error{
		"Do": func(ctx context.Context) error {
			return c.Do(ctx, "k", func(ctx context.Context, _ coord.Lock) error { return asks(ctx) })
		},
		"RDo": func(ctx context.Context) error {
			return c.RDo(ctx, "k", func(ctx context.Context, _ coord.ReadLock) error { return asks(ctx) })
		},
		"DoAll": func(ctx context.Context) error {
			return c.DoAll(ctx, []string{"k", "l"}, func(ctx context.Context, _ coord.Locks) error { return asks(ctx) })
		},
		"DoNested": func(ctx context.Context) error {
			return c.Do(ctx, "k", func(ctx context.Context, _ coord.Lock) error {
				return c.DoNested(curious{ctx, c}, "k", func(ctx context.Context, _ coord.Lock) error { return asks(ctx) })
			})
		},
		"RDoNested": func(ctx context.Context) error {
			return c.RDo(ctx, "k", func(ctx context.Context, _ coord.ReadLock) error {
				return c.RDoNested(curious{ctx, c}, "k", func(ctx context.Context, _ coord.Fence) error { return asks(ctx) })
			})
		},
		"Semaphore.Do": func(ctx context.Context) error { return c.Semaphore("k", 3).Do(ctx, 1, asks) },
		"Share": func(ctx context.Context) error {
			_, err := coord.Share(ctx, c, "k", nil, func(ctx context.Context, _ coord.Fence) (int, error) { return 1, asks(ctx) })
			return err
		},
	} {
		done := make(chan error, 1)
		go func() { done <- do(curious{ctx, c}) }()
		await.Until(t, name+" returns", func() bool { return len(done) == 1 })
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// The end of a context is passed on to the function of Semaphore.Do, with its cause and its
// deadline.
func TestSemaphoreDo_EndsWithTheCallersContext(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		ctx, cancel := context.WithCancelCause(t.Context())
		err := c.Semaphore("k", 3).Do(ctx, 1, func(ctx context.Context) error {
			cancel(errNoRow)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if err != errNoRow {
			t.Error(err)
		}
	})
}

// byValue is a context of a type that is not comparable.
type byValue struct {
	context.Context
	_ []int
}

// A caller's context may be of any type, also one that == panics with.
func TestUsersContext_IsNotCompared(t *testing.T) {
	t.Parallel()
	o := &coord.Options{SessionTTL: time.Minute, Grace: 2 * time.Minute} // of the clocks, only the step ends the session
	c := must(coord.New(t.Context(), fallback.NewMemory(), o))           // closed at the end only: that would wait for ever
	s, ctx := c.Semaphore("k", 10), byValue{Context: t.Context()}
	for range 2 { // the second time there is a block, with the first caller's context
		p, err := s.Acquire(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		release(t, p)
	}
	l, err := c.TryLock(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	unlock(t, l)
	err = s.Do(ctx, 1, func(ctx context.Context) error {
		if !coord.StepClock(c, c.Stats().Session, 3600) {
			t.Error("no session")
		}
		return ctx.Err()
	})
	if !errors.Is(err, coord.ErrLost) {
		t.Errorf("permits that have lapsed: %v", err)
	}
	if err := c.Close(context.Background()); err != nil && !errors.Is(err, coord.ErrUnavailable) { // there is no next session yet
		t.Error(err)
	}
}

// tardy is a context that has ended a moment before its Done is closed, as one does that looks at
// the clock.
type tardy struct {
	context.Context
	over *atomic.Bool
}

func (x tardy) Err() error {
	if x.over.Load() {
		return context.Canceled
	}
	return x.Context.Err()
}

// A function that asks its context before each write is told that the caller's has ended, though
// that is not Done yet.
func TestDo_TellsOfACallersContextThatIsNotDoneYet(t *testing.T) {
	t.Parallel()
	c := start(t, fallback.NewMemory(), nil)
	for name, do := range map[string]func(ctx context.Context, look func(context.Context) error) error{
		"Do": func(ctx context.Context, look func(context.Context) error) error {
			return c.Do(ctx, "k", func(ctx context.Context, _ coord.Lock) error { return look(ctx) })
		},
		"RDo": func(ctx context.Context, look func(context.Context) error) error {
			return c.RDo(ctx, "k", func(ctx context.Context, _ coord.ReadLock) error { return look(ctx) })
		},
		"DoAll": func(ctx context.Context, look func(context.Context) error) error {
			return c.DoAll(ctx, []string{"k", "l"}, func(ctx context.Context, _ coord.Locks) error { return look(ctx) })
		},
		"DoClaims": func(ctx context.Context, look func(context.Context) error) error {
			return c.DoClaims(ctx, []coord.Claim{{Key: "k"}, {Key: "l", Read: true}}, func(ctx context.Context, _ coord.Claimed) error { return look(ctx) })
		},
		"Semaphore.Do": func(ctx context.Context, look func(context.Context) error) error {
			return c.Semaphore("p", 3).Do(ctx, 1, look)
		},
	} {
		var over atomic.Bool
		if err := do(tardy{t.Context(), &over}, func(ctx context.Context) error {
			if err := ctx.Err(); err != nil {
				t.Errorf("%s: at first: %v", name, err)
			}
			over.Store(true)
			return ctx.Err()
		}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
