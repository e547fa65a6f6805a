package coord

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// health is how the arbiter has answered of late: it decides when holds are adopted (adoptionOf),
// and pace whether a contender makes its first call in the caller's goroutine. answers, goOn and
// answered are for calls that renew, verify, reclaim and release.
type health struct {
	mu     mutex[leafRank] // protects the fields below
	took   time.Duration
	silent bool // the last call was not answered

	pace atomic.Int64 // how long the last lock call took
}

// slow is the pace of an arbiter that has not answered yet, or not in time.
const slow = math.MaxInt64

// note is called when a call has ended. It reports whether the arbiter answers again.
func (h *health) note(took time.Duration, answered bool) (again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	again = h.silent && answered
	h.took, h.silent = took, !answered
	return again
}

// isSilent reports whether the last call was not answered.
func (h *health) isSilent() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.silent
}

// called counts a call of the arbiter that began at start and has ended with err, and tells the
// trace.
func (c *Coordinator) called(op Op, start time.Time, err error) {
	failed := 0
	if err != nil {
		failed = 1
	}
	c.calledMany(op, 1, failed, start, err)
}

// calledMany counts n calls that were sent in one go, and the failed ones among them. A cancelled
// one is told to the trace alone: it says nothing about the arbiter.
func (c *Coordinator) calledMany(op Op, n, failed int, start time.Time, err error) {
	took, cancelled := c.since(start), errors.Is(err, context.Canceled)
	if op == OpRenew && !cancelled {
		c.tells.stats.renewals.took(took)
	}
	if !cancelled {
		c.tells.stats.calls[op].Add(uint64(n))
		c.tells.stats.tookFor(op, took, failed, err)
		if failed > 0 {
			c.failed(op, failed, err)
		}
	}
	if answered := failed < n; (answered || !cancelled) && (op == OpRenew || op == OpVerify || op == OpReclaim) {
		if c.remote.health.note(took, answered) && c.cluster != nil {
			c.cluster.pingAll() // the owners' renewals are answered as well
			c.cluster.adoptNow()
		}
	}
	if f := c.opts.Trace.Call; f != nil {
		f(CallInfo{Op: op, Duration: took, Err: err})
	}
}

// lateCalls is for how many times CallTimeout the answer to a call counts, where a late one does:
// its caller goes on after one of them, and makes the call again beside it. On a machine that is
// too busy each call may take longer than that. If the answers were thrown away, each call would be
// made again for nothing.
const lateCalls = 4

// spreads reports whether the partitions are on several servers. A call about some of them ends
// when the last server has answered, so late answers do not count there.
func (c *Coordinator) spreads() bool {
	ns := c.remote.namespace.Load()
	if ns == nil {
		return false // nothing is called before there is one
	}
	s, ok := (*ns).(fallback.Spreader)
	return ok && s.Spread()
}

// answers returns for how long a call about partitions is to be waited for.
func (c *Coordinator) answers() time.Duration {
	if c.spreads() {
		return c.opts.CallTimeout
	}
	return lateCalls * c.opts.CallTimeout
}

// goOn is called when a caller goes on although a call of the arbiter is not answered.
func (c *Coordinator) goOn() { c.remote.health.note(c.opts.CallTimeout, false) }

// answered makes a call in another goroutine, and waits for CallTimeout at most until f says that
// the answer is there; then it waits for the rest of f.
func (c *Coordinator) answered(ctx context.Context, f func(ctx context.Context, there func()) error) error {
	there, done := make(chan struct{}, 1), make(chan error, 1)
	c.life.pool.Go(func() {
		err := errNoAnswer
		defer func() { done <- err }() // also if a trace function ends the goroutine
		err = f(ctx, func() { there <- struct{}{} })
	})
	timer := time.NewTimer(c.opts.CallTimeout)
	defer timer.Stop()
	select {
	case <-there:
		return <-done
	case err := <-done:
		return err
	case <-timer.C:
		c.goOn()
		return errNoAnswer
	}
}
