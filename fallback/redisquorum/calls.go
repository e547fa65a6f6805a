package redisquorum

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// callTime is for how long a call may go on that no caller waits for any more.
const callTime = 2 * time.Second

// calls are those on their way: a server that is slow gets its message, too, when a majority has
// answered.
type calls struct {
	all sync.WaitGroup
}

// start calls f on a goroutine of its own. Its context ends with the caller's deadline, or after
// callTime.
func (c *calls) start(ctx context.Context, f func(ctx context.Context)) {
	c.all.Go(func() {
		deadline := time.Now().Add(callTime)
		if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
			deadline = d
		}
		ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
		defer cancel()
		f(ctx)
	})
}

// wait waits for all of them.
func (c *calls) wait() { c.all.Wait() }

// pause waits for a random time.
func pause(ctx context.Context, most time.Duration) error {
	t := time.NewTimer(rand.N(most))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// turns are the swaps of this process: one at a time swaps a record. One from a version that is
// known to be over is not sent.
type turns struct {
	mu     sync.Mutex
	under  map[string]chan struct{} // way, by record; closed at its end
	before map[string]string        // the version that this process has swapped last
}

// begin waits until no other swap of some records is under way. Records are taken one after
// another, in their order by name.
func (t *turns) begin(ctx context.Context, names []string) (end func(), err error) {
	names = slices.Sorted(slices.Values(names))
	taken := 0
	end = func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, name := range names[:taken] {
			close(t.under[name])
			delete(t.under, name)
		}
	}
	for ; taken < len(names); taken++ {
		for {
			t.mu.Lock()
			other := t.under[names[taken]]
			if other == nil {
				if t.under == nil {
					t.under, t.before = make(map[string]chan struct{}), make(map[string]string)
				}
				t.under[names[taken]] = make(chan struct{})
				t.mu.Unlock()
				break
			}
			t.mu.Unlock()
			select {
			case <-other:
			case <-ctx.Done():
				end()
				return nil, ctx.Err()
			}
		}
	}
	return end, nil
}

// swapped notes that a version is over, for good.
func (t *turns) swapped(name, version string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.before[name] = version
}

// over reports whether a version is known to be.
func (t *turns) over(name, version string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was, ok := t.before[name]
	return ok && was == version
}
