package subjects

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/coord"
)

// startNode starts a coordinator with a client of its own, which last as long as the worker.
func startNode(h *harness.Host, goroutines int, o *coord.Options) (*coord.Coordinator, *harness.Counter, error) {
	client, count := harness.NewClient(h.Redis, goroutines)
	c, err := rivals.NewCoordinator(client, o)
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	h.AtEndWithin(func(ctx context.Context) error { return errors.Join(c.Close(ctx), client.Close()) })
	return c, count, nil
}

// bareClient returns a client that lasts as long as the worker.
func bareClient(h *harness.Host) (*redis.Client, *harness.Counter) {
	client, count := harness.NewClient(h.Redis, 0)
	h.AtEnd(client.Close)
	return client, count
}

// byPath counts the locks that were granted since before: by a path, and by others.
func byPath(c *coord.Coordinator, before coord.Stats, path coord.Path) (by, others int64) {
	for p, n := range c.Stats().Granted {
		if n -= before.Granted[p]; p == path {
			by += int64(n)
		} else {
			others += int64(n)
		}
	}
	return by, others
}

// givenBack waits until the arbiter has acknowledged the release of every lock. It looks as often
// as every says.
func givenBack(ctx context.Context, c *coord.Coordinator, every time.Duration) error {
	return awaitStats(ctx, c, every, func(s coord.Stats) bool {
		// A call that failed is counted, and made again. Each hold is released by one that did not fail.
		return s.Locked == 0 && s.Kept == 0 && s.Calls[coord.OpUnlock]-s.Failed[coord.OpUnlock] >= s.Granted[coord.PathArbiter]
	})
}

// awaitStats returns when so reports true.
func awaitStats(ctx context.Context, c *coord.Coordinator, every time.Duration, so func(coord.Stats) bool) error {
	const limit = 30 * time.Second
	for begin := time.Now(); ; time.Sleep(every) {
		s := c.Stats()
		switch {
		case so(s):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Since(begin) > limit:
			s.Waits, s.Holds = coord.Histogram{}, coord.Histogram{}
			return fmt.Errorf("waited for %v in vain: %+v", limit, s)
		}
	}
}
