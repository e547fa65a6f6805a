package coord_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/crash"
)

// A key is promised to a reader of a process that crashed: the next caller looks again when the
// promise is over, and not all the time.
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

// A request of a dead session waits before another one. It cannot be removed: the arbiter does not
// do that by itself, and releases fail. The other one is asked for with longer and longer pauses.
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
		time.Sleep(21*time.Second - time.Since(began)) // the dead request may have been removed by another process before
		cut.Mend()
		if err := <-gaveUp; err != nil {
			t.Error(err)
		}
	})
}

// Redis walks the whole queue for a session that a request names as dead. It is named until the
// arbiter has looked, and again once the arbiter may have lost that it has.
func TestLock_NamesADeadSessionOnce(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		var mu sync.Mutex
		var saw []string // the outcome of requests with Gone, "none" for others; equal ones once
		f := &faulty{Arbiter: a, lock: func(r fallback.LockRequest, do lockCall) (fallback.LockAnswer, error) {
			mu.Lock()
			defer mu.Unlock()
			if r.Gone != "" && !slices.Contains(saw, "error") {
				saw = append(saw, "error")
				return fallback.LockAnswer{}, errCut
			}
			ans, err := do()
			what := "none"
			if r.Gone != "" {
				what = fmt.Sprint(ans.Verdict)
			}
			if len(saw) == 0 || saw[len(saw)-1] != what {
				saw = append(saw, what)
			}
			return ans, err
		}}
		cut := &crash.Arbiter{Memory: a}
		crashes, uses := start(t, cut, nil).Semaphore("k", 10), start(t, a, nil).Semaphore("k", 10)
		acquire(t, crashes, 5)
		p := acquire(t, uses, 5)
		next := start(t, f, nil)
		got := make(chan error, 1)
		go func() {
			got <- next.Semaphore("k", 10).Do(t.Context(), 8, func(context.Context) error { return nil })
		}()
		time.Sleep(time.Second)
		cut.Cut()
		time.Sleep(time.Minute)
		a.Restore(a.Snapshot())
		time.Sleep(time.Minute)
		mu.Lock()
		if want := []string{"none", "error", "held", "none", "in grace", "held", "none"}; !slices.Equal(saw, want) {
			t.Errorf("%q, want %q", saw, want)
		}
		mu.Unlock()
		release(t, p)
		if err := <-got; err != nil {
			t.Error(err)
		}
		cut.Mend()
	})
}
