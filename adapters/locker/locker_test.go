package locker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/adapters/adaptertest"
	"github.com/holdfast-go/holdfast/adapters/locker"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestLocker(t *testing.T) {
	adaptertest.Run(t, adaptertest.Fixture{
		Section: func(t *testing.T, c *coord.Coordinator, key string, section func(context.Context) error) (err error) {
			m := locker.New(t.Context(), c, key)
			defer func() {
				if failed, ok := recover().(error); ok {
					err = failed
				}
			}()
			m.Lock()
			defer m.Unlock()
			return section(m.Held().Context())
		},
	})
}

func TestUnlock_OfAnUnlockedLocker(t *testing.T) {
	c := adaptertest.Start(t, fallback.NewMemory(), nil)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	locker.New(t.Context(), c, "k").Unlock()
}

// One goroutine's lock is lost, and another one has locked since: the former's Unlock frees
// nothing.
func TestUnlock_AfterALoss(t *testing.T) {
	c := adaptertest.Start(t, fallback.NewMemory(), nil)
	l := locker.New(t.Context(), c, "k")
	l.Lock()
	if err := c.Break(t.Context(), "k", l.Held().Fence(), "the test"); err != nil {
		t.Fatal(err)
	}
	l.Lock()
	second := l.Held()
	l.Unlock()
	if _, err := c.TryLock(t.Context(), "k"); !errors.Is(err, coord.ErrLocked) || second.Context().Err() != nil {
		t.Errorf("after the first Unlock the key is free: %v", err)
	}
	l.Unlock()
	free, err := c.TryLock(t.Context(), "k")
	if err != nil {
		t.Errorf("after both: %v", err)
	}
	free.Unlock()
	defer func() {
		if recover() == nil {
			t.Error("a third Unlock does not panic")
		}
	}()
	l.Unlock()
}

func TestLock_WithoutALock(t *testing.T) {
	c := adaptertest.Start(t, fallback.NewMemory(), nil)
	defer func() {
		if err, ok := recover().(error); !ok || !errors.Is(err, coord.ErrInvalidKey) {
			t.Errorf("got %v", err)
		}
	}()
	locker.New(t.Context(), c, "").Lock()
}

func Example() {
	ctx := context.Background()
	locks, err := coord.New(ctx, fallback.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	var mu sync.Locker = locker.New(ctx, locks, "report")
	mu.Lock()
	fmt.Println("locked in all processes")
	mu.Unlock()
	fmt.Println(locks.Close(ctx))
	// Output:
	// locked in all processes
	// <nil>
}
