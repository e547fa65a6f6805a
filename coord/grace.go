package coord

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// graceSince reports whether Grace began after a moment.
func (x *sessions) graceSince(t time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.grace.After(t)
}

// sweepSince makes verify look at every partition, if it has not since Grace began somewhere. Grace
// begins when a partition is looked at; so it begins everywhere at about the same time. The server
// before is silent once it is settled.
func (x *sessions) sweepSince(began, settled time.Time) {
	x.mu.Lock()
	x.settled = lease.Later(x.settled, settled)
	if began.After(x.grace) {
		x.grace = began
	}
	x.mu.Unlock()
	select {
	case x.sweeps <- struct{}{}:
	default:
	}
}

// replaced is sweepSince for another server, which may know of no Grace that was seen before.
func (x *sessions) replaced(now, settled time.Time) {
	x.mu.Lock()
	x.other = now
	x.mu.Unlock()
	x.sweepSince(now, settled)
}

// graceOver notes that all Graces are over which were seen up to that time.
func (x *sessions) graceOver(seen time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.grace.Before(seen) {
		x.grace = time.Time{}
	}
}

// graces returns when the latest Grace began that was seen, and when the arbiter became another
// server.
func (x *sessions) graces() (grace, other time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.grace, x.other
}

// settledBy returns when the server before is silent for each partition that was seen in Grace. It
// is in the past outside of Grace.
func (x *sessions) settledBy() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.settled
}

// graceSeen notes that a partition is in Grace. A call was sent at the time sent, and left is the
// rest of Grace when the arbiter executed it; 0: the partition is not in Grace.
func (c *Coordinator) graceSeen(p uint32, sent time.Time, left time.Duration) {
	if left == 0 {
		return
	}
	if s := c.sessions.current(); s != nil {
		s.rounds.inGrace(p) // before its end is noted: hastenOnce forgets that where it knows of no partition
	}
	for ends := int64(c.since(c.began) + left); ; {
		known := c.remote.graceSeenEnds.Load()
		if ends <= known || c.remote.graceSeenEnds.CompareAndSwap(known, ends) {
			break
		}
	}
	c.sessions.sweepSince(c.graceBegan(sent, left), c.now().Add(c.settles(left)))
}

// graceBegan returns when a Grace began, or a little earlier. sent and left are as in graceSeen.
func (c *Coordinator) graceBegan(sent time.Time, left time.Duration) time.Time {
	return sent.Add(left - c.graceTime())
}

// graceLeft returns the rest of the longest Grace that this process knows of, 0 outside: of the
// table of sessions, or of a partition.
func (c *Coordinator) graceLeft() time.Duration {
	ends := max(c.remote.graceEnds.Load(), c.remote.graceSeenEnds.Load())
	if ends == 0 {
		return 0
	}
	return max(0, time.Duration(ends)-c.since(c.began))
}

// graceTime is the namespace's Grace (Q), which may be longer than this process's option.
func (c *Coordinator) graceTime() time.Duration {
	if ns := c.remote.namespace.Load(); ns != nil {
		return (*ns).Grace()
	}
	return c.opts.Grace
}

// silence returns how long a deposed server may answer: delta of the rules.
func (c *Coordinator) silence() time.Duration {
	return min(c.graceTime()-c.opts.SessionTTL-c.opts.Margin, c.opts.Margin)
}

// settles returns how long the server before may still answer: until a partition's Grace is delta
// and M old, as the server's clock may have made a step of M. left is the rest of that Grace. The
// result is not above 0 after that time, and outside of Grace. Grace's age is reckoned with this
// process's own option: no other one has begun a shorter Grace, also while the namespace's is
// changed ([fallback.Terms]).
func (c *Coordinator) settles(left time.Duration) time.Duration {
	if left == 0 {
		return 0
	}
	return c.silence() + c.opts.Margin - (c.opts.Grace - left)
}

// fresh reports whether the server that answered a renewal may have taken over less than delta ago,
// so that the one before may answer yet: by its clock, and by this process's, which has not known
// it for so long. keepSessions alone calls it, and seen after it.
func (c *Coordinator) fresh(r fallback.Renewal) bool {
	x := &c.remote.server
	return c.settles(r.Grace) > 0 && (x.met.IsZero() || r.Server != x.name || c.since(x.met) < c.silenced())
}

// silenced returns how long to wait, by this process's clock, until a deposed server is silent:
// that clock may be fast.
func (c *Coordinator) silenced() time.Duration { return c.stretched(c.silence()) }

// stretched returns how long to wait, by this process's clock, for a time of a slow clock.
func (c *Coordinator) stretched(d time.Duration) time.Duration {
	t, m := float64(c.opts.SessionTTL), float64(c.opts.Margin)
	return time.Duration(float64(d) * t / (t - m))
}

// stamp returns this process's session, and its expiry as it was told last.
func (c *Coordinator) stamp() fallback.Stamp {
	s := c.sessions.current()
	if s == nil {
		return fallback.Stamp{}
	}
	return fallback.Stamp{Session: s.ID, Seen: s.seen.last()}
}

// graceLasts returns how long a caller waits in Grace before it asks again. left is the rest of
// Grace.
func (c *Coordinator) graceLasts(left time.Duration) time.Duration {
	most := c.opts.RenewEvery
	if s := c.sessions.current(); s != nil && s.rounds != nil {
		most = c.opts.RetryEvery // it may end at any time, and the hint that says so be lost
	}
	return min(left+time.Millisecond, most)
}
