package coord_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/crash"
)

// A key is promised to a reader of a process that crashed: the next caller looks again when the promise is over, and not all the time.
func TestLock_PromisedToADeadReader(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		cut := &crash.Arbiter{Memory: a}
		crashes, holder, next := start(t, cut, nil), start(t, a, nil), start(t, a, nil)
		l := lock(t, holder, "k")
		gaveUp := make(chan error, 1)
		go func() {
			r, err := crashes.RLock(t.Context(), "k")
			if err == nil {
				err = r.Unlock()
			}
			gaveUp <- err
		}()
		time.Sleep(time.Second)
		cut.Cut()
		time.Sleep(15 * time.Second)
		unlock(t, l)
		time.Sleep(10 * time.Millisecond)
		began, before := time.Now(), next.Stats().Calls[coord.OpLock]
		unlock(t, lock(t, next, "k"))
		if d, n := time.Since(began), next.Stats().Calls[coord.OpLock]-before; d > time.Second || n > 12 {
			t.Errorf("after %v, and %d requests", d, n)
		}
		cut.Mend()
		if err := <-gaveUp; err != nil {
			t.Error(err)
		}
	})
}

// A request of a dead session waits before another one, and cannot be removed, as the arbiter does not do that by itself, and releases fail: the
// other one is asked for with longer and longer pauses.
func TestLock_BehindADeadRequest(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		cut, f := &crash.Arbiter{Memory: a}, &faulty{Arbiter: a, old: true}
		crashes, holder, next := start(t, cut, nil), start(t, a, nil), start(t, f, nil)
		p := acquire(t, holder.Semaphore("k", 10), 5)
		gaveUp := make(chan error, 1)
		go func() {
			gaveUp <- crashes.Semaphore("k", 10).Do(t.Context(), 8, func(context.Context) error { return nil })
		}()
		time.Sleep(time.Second)
		cut.Cut()
		time.Sleep(15 * time.Second)
		f.cut("unlock")
		time.AfterFunc(20*time.Second, f.mend)
		began, before := time.Now(), next.Stats().Calls[coord.OpLock]
		q := acquire(t, next.Semaphore("k", 10), 2)
		if d, n := time.Since(began), next.Stats().Calls[coord.OpLock]-before; d > 22*time.Second || n > 100 {
			t.Errorf("after %v, and %d requests", d, n)
		}
		release(t, p, q)
		cut.Mend()
		if err := <-gaveUp; err != nil {
			t.Error(err)
		}
	})
}
