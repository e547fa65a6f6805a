package coord

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// older reports whether an answer may be of a record with older data than this process had seen when it asked.
func (p *partition) older(k check, s fallback.State) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Older(k.Check, s)
}

// witness tells the arbiter of a token that this process has seen. If the arbiter has older data, Grace begins, and all
// partitions are looked at.
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
	before := c.sessions.sweepSince(c.now().Add(-c.opts.Grace))
	r, err := c.witness(ctx, p, known)
	if err == nil && r.Grace > 0 && !before { // else it is the same incident
		c.opts.Logger.Warn("holdfast: the arbiter has older data than before, under the same identity: Grace",
			"partition", p.Number(), "seen", known.String(), "left", r.Grace)
	}
	return r, err
}

// verifyOlder tells the arbiter of what was seen in the partitions where it may have older data, and then compares what it has
// answered to Verify, with Grace where that has begun.
func (c *Coordinator) verifyOlder(ctx context.Context, x *sweep, checks []check, states []fallback.State, which []int, sent time.Time) ([]claims, error) {
	var work sync.WaitGroup
	var mu mutex[leafRank] // protects missing, failed
	var missing []claims
	var failed error
	spread(c, &work, which, reclaimers, func(i int) {
		k, s := checks[i], states[i]
		r, err := c.contradict(ctx, k.p, k.Known)
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			failed = err
			return
		}
		if s.Record = r; !k.Rest {
			x.saw(k.p.Number(), sent, r.Grace)
		}
		m := k.p.compare(k, s, sent)
		mu.Lock()
		defer mu.Unlock()
		missing = append(missing, m)
	})
	work.Wait()
	return missing, failed
}
