package coord_test

import (
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
		if d, n := time.Since(began), next.Stats().Calls[coord.OpLock]-before; d > time.Second || n > 8 {
			t.Errorf("after %v, and %d requests", d, n)
		}
		cut.Mend()
		if err := <-gaveUp; err != nil {
			t.Error(err)
		}
	})
}
