package coord

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// twice is a block of 8 permits, one of them in use, that has just got a hold of 4.
type twice struct {
	t         *testing.T
	s         *Semaphore
	c         *Coordinator
	b         *block
	x         Permits
	was, four Lock
	pledge    *lease.Pledge
}

func newTwice(t *testing.T) *twice {
	w := &twice{t: t, c: enter(t, fallback.NewMemory(), &Options{Handoff: Handoff{Linger: time.Minute}})} // it is made smaller here only
	w.s = w.c.Semaphore("k", 10)
	w.release(w.acquire(8), nil)
	w.x = w.acquire(1)
	w.b = w.x.b
	p := w.b.pool
	var err error
	name := fallback.BlockName(p.key, 4, p.of, w.c.callers.holder, w.b.number)
	if w.four, err = w.c.lockName(t.Context(), p.key, name, false, ""); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	w.was, w.pledge = w.b.swap(w.four, 4)
	p.mu.Unlock()
	return w
}

// smaller has the block made smaller again, as others want permits, and waits for that.
func (w *twice) smaller() {
	w.b.Shut()
	w.b.pool.mu.Lock()
	again := w.b.end.shrink
	w.b.pool.mu.Unlock()
	<-again.done
	if w.b.lock.is(w.four) {
		w.t.Fatal("it is no smaller")
	}
}

func (w *twice) acquire(n int) Permits {
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	x, err := w.s.Acquire(ctx, n)
	if err != nil {
		w.t.Fatal(err)
	}
	return x
}

func (w *twice) release(x Permits, want error) {
	if err := x.Release(); !errors.Is(err, want) {
		w.t.Errorf("released: %v, not %v", err, want)
	}
}

// A block may become smaller twice before the first of its holds is given back. If that is lost
// meanwhile, all are given back.
func TestBlock_IsLostAfterItWasMadeSmallerTwice(t *testing.T) {
	t.Parallel()
	w := newTwice(t)
	w.b.share(w.four, w.pledge)
	w.smaller()
	if !w.c.breakHere(w.was.key, w.was.Fence(), "stuck") {
		t.Fatal("it was not broken")
	}
	w.b.shed(w.was, w.four)
	w.release(w.x, ErrLost)
	w.release(w.acquire(10), nil)
}

// It may also do so, and its last caller leave, before callers share the second hold, which is
// given back by then.
func TestBlock_IsSmallerStillBeforeItsHoldIsShared(t *testing.T) {
	t.Parallel()
	w := newTwice(t)
	w.smaller()
	w.release(w.x, nil)
	w.b.share(w.four, w.pledge)
	w.b.shed(w.was, w.four)
	w.release(w.acquire(10), nil)
}
