package coord

import (
	"context"

	"github.com/holdfast-go/holdfast/fallback"
)

// witness tells the arbiter of a token that this process has seen. If the arbiter has older data,
// Grace begins, and all partitions are looked at.
func (c *Coordinator) witness(ctx context.Context, p *partition, known fallback.Token) (fallback.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	defer cancel()
	sent := c.now()
	r, err := c.remote.ns.Witness(ctx, p.Number(), known)
	c.called(OpVerify, sent, err)
	if err != nil || r.Grace == 0 {
		return r, err
	}
	c.graceSeen(p.Number(), sent, r.Grace)
	return r, nil
}

// contradict is witness after an answer that may be of older data, outside of Grace.
func (c *Coordinator) contradict(ctx context.Context, p *partition, known fallback.Token) (fallback.Record, error) {
	before := c.sessions.graceSince(c.now().Add(-c.graceTime()))
	r, err := c.witness(ctx, p, known)
	if err == nil && r.Grace > 0 && !before { // else it is the same incident
		c.opts.Logger.Warn("holdfast: the arbiter has older data than before, under the same identity: Grace",
			"partition", p.Number(), "seen", known.String(), "left", r.Grace)
	}
	return r, err
}
