package coord_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// DESIGN.md counts goroutines: none for a key that is held, nor for callers that wait for it in its
// holder's process; one for a key that the process waits for at the arbiter.
func TestGoroutinesPerKey(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		const keys, others = 100, 5 // others: of the coordinators and the arbiter
		holder, other := start(t, a, nil), start(t, a, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		count := func() int { synctest.Wait(); return runtime.NumGoroutine() }
		var work sync.WaitGroup
		wait := func(c *coord.Coordinator) {
			for k := range keys {
				work.Go(func() {
					if l, err := c.Lock(ctx, fmt.Sprint(k)); err == nil {
						l.Unlock()
					}
				})
			}
		}
		idle := count()
		for k := range keys {
			l, err := holder.Lock(ctx, fmt.Sprint(k))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Unlock()
		}
		held := count()
		if held-idle > others {
			t.Errorf("%d goroutines for %d keys that are held", held-idle, keys)
		}
		wait(holder)
		local := count()
		if n := local - held - keys; n > others {
			t.Errorf("%d goroutines for %d callers in the holder's process, besides their own", n, keys)
		}
		wait(other)
		if n := count() - local - keys; n < keys-others || n > keys+others {
			t.Errorf("%d goroutines for %d keys that are waited for, besides those of the callers", n, keys)
		}
		cancel()
		work.Wait()
	})
}
