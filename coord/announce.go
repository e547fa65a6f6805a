package coord

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// confirmations tracks the earliest of the last confirmations of the partitions that this node
// owns. A Pong announces no deadline later than that plus the lease.
type confirmations struct {
	mu     mutex[leafRank] // protects the fields below
	oldest time.Time
	since  time.Time // the same, of ownerships that began since begin
}

// add is called for an ownership that begins.
func (x *confirmations) add(confirmed time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.oldest, x.since = lease.Earlier(x.oldest, confirmed), lease.Earlier(x.since, confirmed)
}

// begin comes before a look at all ownerships, one by one, and end after it: noteConfirmations. The
// look may have passed a partition when that begins to be owned: since counts those.
func (x *confirmations) begin() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.since = time.Time{}
}

// end takes the oldest of those that the look has found.
func (x *confirmations) end(oldest time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.oldest = oldest
	if !x.since.IsZero() {
		x.oldest = lease.Earlier(oldest, x.since)
	}
}

// noteConfirmations finds the oldest confirmation of an ownership: this node's pongs announce no
// later deadline than that and the lease.
func (c *Coordinator) noteConfirmations() {
	if c.cluster == nil {
		return
	}
	c.remote.confirmations.begin()
	var oldest time.Time
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		if confirmed := p.Confirmed(); !confirmed.IsZero() {
			oldest = lease.Earlier(oldest, confirmed)
		}
		p.mu.Unlock()
	}
	c.remote.confirmations.end(oldest)
}

// answersFor is for how long everything is good that this node serves, by the clock that says less.
// The node announces it to others. c.remote.confirmations is locked.
func (x *cluster) answersFor(now time.Time) time.Duration {
	c := x.c
	s := c.sessions.current()
	if s == nil {
		return 0
	}
	left := min(lease.Left(s.Deadline(), now), x.announced())
	if oldest := c.remote.confirmations.oldest; !oldest.IsZero() {
		left = min(left, lease.Left(oldest.Add(c.opts.lease()), now))
	}
	return left
}

// announced is the most that a node announces from when it was asked (G4).
func (x *cluster) announced() time.Duration {
	if !guard.Capped {
		return x.c.opts.lease()
	}
	return time.Duration(x.heard.announces.Load())
}
