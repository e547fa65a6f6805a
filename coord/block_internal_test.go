package coord

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// A block may become smaller twice before the first of its holds is given back. If that is lost
// meanwhile, all are given back.
func TestBlock_IsLostAfterItWasMadeSmallerTwice(t *testing.T) {
	t.Parallel()
	c := enter(t, fallback.NewMemory(), &Options{Handoff: Handoff{Linger: time.Minute}}) // it is made smaller here only
	s := c.Semaphore("k", 10)
	acquire := func(n int) Permits {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		x, err := s.Acquire(ctx, n)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	release := func(x Permits, want error) {
		if err := x.Release(); !errors.Is(err, want) {
			t.Errorf("released: %v, not %v", err, want)
		}
	}
	release(acquire(8), nil)
	x := acquire(1)
	b, p := x.b, x.b.pool

	l, err := c.lockName(t.Context(), p.key, fallback.BlockName(p.key, 4, p.of, c.callers.holder, b.number), false, "")
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	was, pledge := b.swap(l, 4)
	p.mu.Unlock()
	b.share(l, pledge)
	b.Shut() // others want permits
	p.mu.Lock()
	again := b.end.shrink
	p.mu.Unlock()
	<-again.done
	if b.lock.is(l) || !c.breakHere(was.key, was.Fence(), "stuck") {
		t.Fatalf("%v, %v", b.lock.Fence(), l.Fence())
	}
	b.shed(was, l)

	release(x, ErrLost)
	release(acquire(10), nil)
}
