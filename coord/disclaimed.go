package coord

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// disclaimed are rows that this node, which leaves, has written with the partitions that it gave back, though their
// holds had been given back before. As a rule their nodes remove them when they are asked. A node that leaves at the same
// time may be gone already: this one removes its rows once its session is over.
type disclaimed struct {
	mu   mutex[leafRank] // protects what follows
	rows []fallback.Release
	busy bool // a goroutine looks after them
}

func (d *disclaimed) add(c *Coordinator, rows []fallback.Release) {
	d.mu.Lock()
	d.rows = append(d.rows, rows...)
	begin := !d.busy
	d.busy = true
	d.mu.Unlock()
	if begin {
		c.background(func() { d.remove(c) })
	}
}

// take returns the rows, and reports whether there are any. If there are none the goroutine ends.
func (d *disclaimed) take() (rows []fallback.Release, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rows, d.rows = d.rows, nil
	d.busy = len(rows) > 0
	return rows, d.busy
}

// remove releases the rows of sessions that are over, for two CallTimeouts at most. Close waits for it.
func (d *disclaimed) remove(c *Coordinator) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), 2*c.opts.CallTimeout)
	defer cancel()
	for rows, ok := d.take(); ok; rows, ok = d.take() {
		dead := make(map[string]bool)
		var left []fallback.Release
		for _, r := range rows {
			gone, known := dead[r.Session]
			if !known {
				gone = c.isDead(ctx, r.Session)
				dead[r.Session] = gone
			}
			if gone {
				c.releases.add(r)
			} else {
				left = append(left, r)
			}
		}
		if len(left) == 0 {
			continue
		}
		select {
		case <-time.After(c.opts.RetryEvery / 8):
			d.add(c, left)
		case <-ctx.Done():
		}
	}
}
