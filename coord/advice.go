package coord

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/fallback"
)

// advise logs, in the background, what is to be said of the arbiter's settings: when this process starts, and when another server has
// taken over.
func (c *Coordinator) advise() {
	ns, ok := c.ns.(fallback.Adviser)
	if !ok {
		return
	}
	c.work.Add(1)
	c.pool.Go(func() {
		defer c.work.Done()
		ctx, cancel := context.WithTimeout(c.ctx, c.opts.CallTimeout)
		defer cancel()
		advice, err := ns.Advise(ctx)
		if errors.Is(err, fallback.ErrRefused) {
			c.opts.Logger.Error("holdfast: the arbiter is not fit for locks any more", "error", err)
		}
		for _, text := range advice {
			c.opts.Logger.Warn("holdfast: the arbiter's settings make locks less safe", "advice", text)
		}
	})
}
