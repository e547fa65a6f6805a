package coord

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// disclaimed are rows that this node, which leaves, may have written again with the partitions that
// it gave back: their holds had been given back before. As a rule their nodes remove them when they
// are asked. A node that leaves at the same time may be gone already: this one removes its rows
// when its session is over.
type disclaimed struct {
	mu   mutex[leafRank] // protects rows
	rows []fallback.Release
}

func (d *disclaimed) add(rows ...fallback.Release) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rows = append(d.rows, rows...)
}

func (d *disclaimed) take() []fallback.Release {
	d.mu.Lock()
	defer d.mu.Unlock()
	rows := d.rows
	d.rows = nil
	return rows
}

// releaseDisclaimed releases the rows of sessions that are over, and waits for that for two
// CallTimeouts at most. It is for a coordinator after the end of its goroutines and its own
// session: others may wait for that in the same way.
func (c *Coordinator) releaseDisclaimed(own *session) {
	if c.cluster != nil {
		c.cluster.hearsay.add(c.cluster.hearsay.heardEarly()...)
		for p, list := range c.cluster.hearsay.take() { // rumors that were not looked up in time
			for _, r := range list {
				if r.Key != "" {
					c.debts.disclaimed.add(p.ReleaseOf(r.Key, r.ID))
				}
			}
		}
	}
	left := c.debts.disclaimed.take()
	ctx, cancel := context.WithTimeout(context.Background(), 2*c.opts.CallTimeout)
	defer cancel()
	for {
		var gone []fallback.Release
		dead := map[string]bool{own.ID: true}
		left = slices.DeleteFunc(left, func(r fallback.Release) bool {
			over, known := dead[r.Session]
			if !known {
				over = c.isDeadBy(ctx, r.Session, fallback.Stamp{}) // a stamp of this session, which is closed, would tell of lost data
				dead[r.Session] = over
			}
			if over {
				gone = append(gone, r)
			}
			return over
		})
		for batch := range slices.Chunk(gone, maxBatch) {
			_, _ = c.sendBatch(ctx, batch, c.opts.CallTimeout) // rows of a dead session are in no caller's way for long
		}
		if len(left) == 0 {
			return
		}
		select {
		case <-time.After(c.opts.RetryEvery / 8):
		case <-ctx.Done():
			return
		}
	}
}
