package coord

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
)

// releaser sends what was given back to the arbiter, many at a time, and again until it is acknowledged (rule 9).
type releaser struct {
	mu      sync.Mutex // protects pending
	pending []fallback.Release
	signal  chan struct{} // capacity 1: pending is not empty
}

// maxBatch bounds one call. It keeps the arbiter free for others in between.
const maxBatch = 256

func (r *releaser) init() { r.signal = make(chan struct{}, 1) }

func (r *releaser) add(more ...fallback.Release) {
	r.mu.Lock()
	r.pending = append(r.pending, more...)
	r.mu.Unlock()
	select {
	case r.signal <- struct{}{}:
	default:
	}
}

// next takes a batch.
func (r *releaser) next() []fallback.Release {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.pending), maxBatch)
	batch := r.pending[:n:n]
	if r.pending = r.pending[n:]; len(r.pending) == 0 {
		r.pending = nil
	}
	return batch
}

// sendReleases runs until the coordinator stops.
func (c *Coordinator) sendReleases() {
	var failed []fallback.Release // to be sent again
	var again <-chan time.Time
	for {
		select {
		case <-c.ctx.Done():
			c.releases.add(failed...)
			return
		case <-c.releases.signal:
		case <-again:
			c.releases.add(failed...)
			failed, again = nil, nil
		}
		for batch := c.releases.next(); len(batch) > 0; batch = c.releases.next() {
			left, _ := c.sendBatch(c.ctx, batch)
			failed = append(failed, left...)
			if len(left) > 0 && again == nil {
				again = time.After(c.opts.RetryEvery)
			}
			if len(left) == len(batch) {
				break // nothing goes through now
			}
		}
	}
}

// sendBatch returns those that are not known to be done.
func (c *Coordinator) sendBatch(ctx context.Context, batch []fallback.Release) (left []fallback.Release, err error) {
	// A batch under way is not given up because the coordinator stops.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.opts.CallTimeout)
	defer cancel()
	start := time.Now()
	for i, e := range c.ns.Unlock(ctx, batch) {
		if e != nil {
			left, err = append(left, batch[i]), e
		}
	}
	c.calledMany(OpUnlock, len(batch), len(left), start, err)
	return left, err
}

// flushReleases sends what is left when the coordinator has stopped. It tries twice.
func (c *Coordinator) flushReleases() error {
	var err error
	for range 2 {
		var failed []fallback.Release
		err = nil
		for batch := c.releases.next(); len(batch) > 0; batch = c.releases.next() {
			left, e := c.sendBatch(context.Background(), batch)
			failed = append(failed, left...)
			if e != nil {
				err = e
			}
			if len(left) == len(batch) {
				break
			}
		}
		c.releases.add(failed...)
	}
	return err
}

// lingerer ends lingering. An entry is in the list at most once, however often it lingers, and Options.Handoff.Linger is
// the same for all, so the list is in the order of time but for entries that were used again meanwhile.
type lingerer struct {
	mu     sync.Mutex // protects list
	list   []*entry
	signal chan struct{} // capacity 1: list is not empty
}

func (l *lingerer) init() { l.signal = make(chan struct{}, 1) }

func (l *lingerer) add(e *entry) {
	l.mu.Lock()
	l.list = append(l.list, e)
	first := len(l.list) == 1
	l.mu.Unlock()
	if first {
		select {
		case l.signal <- struct{}{}:
		default:
		}
	}
}

func (l *lingerer) take() []*entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.list
	l.list = nil
	return list
}

// endLingers runs until the coordinator stops. It looks once per Linger, so an entry lingers for up to twice that.
func (c *Coordinator) endLingers() {
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.lingers.signal:
		}
		tick.Reset(c.opts.Handoff.Linger)
		select {
		case <-c.ctx.Done():
			return
		case <-tick.C:
		}
		for _, e := range c.lingers.take() {
			if !e.p.relax(e) {
				c.lingers.add(e)
			}
		}
	}
}

// relax gives the hold back if it has lingered for long enough. It reports false if it has to linger on.
func (p *partition) relax(e *entry) bool {
	var a after
	defer func() { a.do(p.c) }()
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.q.State() == handoff.Lingering && time.Until(e.linger) > 0 {
		return false
	}
	e.listed = false
	if e.q.Relax() == handoff.GiveBack {
		p.giveBack(e, &a)
	}
	return true
}
