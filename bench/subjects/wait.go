package subjects

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

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
