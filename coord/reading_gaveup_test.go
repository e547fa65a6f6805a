package coord_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/held"
)

// A writer that waits keeps later readers of the process out. One that has given up does not,
// however long a reader stays that it has waited for (rule 11).
func TestRLock_AfterAWriterGaveUp(t *testing.T) {
	t.Parallel()
	t.Run("at the arbiter", func(t *testing.T) {
		bubble(t, func(t *testing.T, a *fallback.Memory) {
			one := start(t, a, nil)
			testAfterAWriterGaveUp(t, "k", one, one)
			testAfterAWriterGaveUp(t, "k", one, start(t, a, nil))
		})
	})
	t.Run("in a cluster", func(t *testing.T) {
		store := fallback.NewMemory()
		one, two := join(t, store, unhurried()), join(t, store, unhurried())
		settled(t, 61, one, two)
		key := ownKey(t, one)
		testAfterAWriterGaveUp(t, key, one, one)
		testAfterAWriterGaveUp(t, key, one, two)
		testAfterAWriterGaveUp(t, key, two, one)
		testAfterAWriterGaveUp(t, key, two, two)
	})
}

// awaitShut waits until no reader is let in, while a writer waits.
func awaitShut(t *testing.T, c *coord.Coordinator, key string) {
	t.Helper()
	await.Until(t, "a reader is sent away, as a writer waits", func() bool {
		l, err := c.TryRLock(t.Context(), key)
		if err != nil && !errors.Is(err, coord.ErrLocked) {
			t.Error(err)
		}
		if err == nil {
			runlock(t, l)
		}
		return err != nil
	})
}

func testAfterAWriterGaveUp(t *testing.T, key string, reads, writes *coord.Coordinator) {
	var inside []coord.ReadLock
	for range 5 { // each but the first one comes after a writer that has given up
		l := rlock(t, reads, key)
		inside = append(inside, l)
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan struct{})
		go func() {
			defer close(gaveUp)
			if w, err := writes.Lock(ctx, key); err == nil {
				t.Error("a writer beside readers")
				unlock(t, w)
			}
		}()
		<-l.Wanted()
		awaitShut(t, reads, key)
		cancel()
		<-gaveUp
	}
	await.Until(t, "a reader that only tries is let in", func() bool {
		l, err := reads.TryRLock(t.Context(), key)
		if err == nil {
			runlock(t, l)
		}
		return err == nil
	})

	told, err := reads.Inspect(t.Context(), key)
	if err != nil {
		t.Error(err)
	}
	readers := 0
	for _, h := range told.Shared {
		readers += h.Readers
	}
	if readers != len(inside) {
		t.Errorf("Inspect tells of %d readers of %d: %+v", readers, len(inside), told.Shared)
	}

	var wrote atomic.Bool
	var all sync.WaitGroup
	last := rlock(t, reads, key)
	inside = append(inside, last)
	all.Go(func() {
		l := lock(t, writes, key)
		wrote.Store(true)
		for _, r := range inside {
			if r.Unlock() == nil {
				t.Error("a writer beside a reader")
			}
			if l.Fence() <= r.Fence() {
				t.Errorf("token %v after a reader's %v", l.Fence(), r.Fence())
			}
		}
		unlock(t, l)
	})
	<-last.Wanted()
	awaitShut(t, reads, key)
	late := make(chan struct{})
	all.Go(func() {
		defer close(late)
		l := rlock(t, reads, key)
		if !wrote.Load() {
			t.Error("a reader before a writer that waits")
		}
		runlock(t, l)
	})
	for i := range inside {
		await.Throughout(t, 10*time.Millisecond, "no reader comes before a writer that waits", func() bool { // it asks again meanwhile
			select {
			case <-late:
				return false
			default:
				return true
			}
		})
		if wrote.Load() {
			t.Errorf("a writer beside %d readers", len(inside)-i)
		}
		runlock(t, inside[i])
	}
	all.Wait()
}

// slow is a context whose owner takes a while, once, to say which locks it carries.
type slow struct {
	context.Context
	once *sync.Once
	d    time.Duration
}

func (x slow) Value(key any) any {
	if key == (held.Key{}) {
		x.once.Do(func() { time.Sleep(x.d) })
	}
	return x.Context.Value(key)
}

// A reader that is sent away, as it has the key, is no reader either if the others got the key
// meanwhile.
func TestRLock_IsSentAwayAsTheFlightLands(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		one, two := start(t, a, nil), start(t, a, nil)
		r := rlock(t, one, "k")
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan struct{})
		go func() {
			defer close(gaveUp)
			if _, err := two.Lock(ctx, "k"); err == nil {
				t.Error("a writer beside a reader")
			}
		}()
		<-r.Wanted()
		awaitShut(t, one, "k")
		cancel()
		<-gaveUp

		inside := slow{r.Context(), new(sync.Once), 100 * time.Millisecond}
		if _, err := one.RLock(inside, "k"); !errors.Is(err, coord.ErrHeld) {
			t.Errorf("with the context of a read lock of the key: %v", err)
		}
		runlock(t, r)
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		l, err := two.Lock(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		unlock(t, l)
	})
}
