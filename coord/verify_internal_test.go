package coord

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/virtual"
)

// A partition that may have older data has not been verified where a trace function ends the
// goroutine that asks.
func TestVerifyOlder_ThatIsEnded(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		var ends atomic.Bool
		trace := &Trace{Call: func(i CallInfo) {
			if i.Op == OpVerify && ends.CompareAndSwap(true, false) {
				runtime.Goexit()
			}
		}}
		c, err := New(t.Context(), fallback.NewMemory(), &Options{Trace: trace, RenewEvery: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		s := c.sessions.current()
		all := []snapshot{c.parts[0].snapshot(s, true)}
		ends.Store(true)
		_, err = c.verifyOlder(t.Context(), newSweep(len(c.parts), c.now(), true), all, make([]fallback.State, 1), []int{0}, c.now())
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("got %v, want that there is no answer", err)
		}
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
