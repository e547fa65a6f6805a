package coord

import (
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// session is one life of this process at the arbiter. When it has died a new one begins: nothing is
// carried over, and local death is for ever (rule 3).
type session struct {
	*lease.Session
	seen  atomic.Int64  // Expiry of the last Renewal
	ended chan struct{} // closed when it has died

	guarded *guarded // nil: its lease alone counts
	rounds  *rounds  // nil: Grace ends by itself

	stopListening func()
}

// sessions is the current session, for callers that need one, and what is known of those of other processes.
type sessions struct {
	present atomic.Pointer[session]
	why     atomic.Pointer[error] // there is none
	others  liveness              // which of them are dead, as the arbiter has said (rule 2)

	mu      mutex[leafRank] // protects changed, grace
	changed chan struct{}   // closed when present changes
	grace   time.Time       // when the latest Grace began that was seen
	other   time.Time       // when a renewal was answered by another server than before

	sweeps chan struct{} // capacity 1: grace has changed
}

func (x *sessions) init() {
	x.changed = make(chan struct{})
	x.sweeps = make(chan struct{}, 1)
}

func (x *sessions) current() *session { return x.present.Load() }

// id returns the current session's, "" if there is none.
func (x *sessions) id() string {
	if s := x.current(); s != nil {
		return s.ID
	}
	return ""
}

func (x *sessions) set(s *session) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.present.Store(s)
	close(x.changed)
	x.changed = make(chan struct{})
}

// live waits for a session. It returns nil if done is closed first.
func (x *sessions) live(done <-chan struct{}) *session {
	for {
		x.mu.Lock()
		changed := x.changed
		x.mu.Unlock()
		if s := x.current(); s != nil {
			return s
		}
		select {
		case <-changed:
		case <-done:
			return nil
		}
	}
}

// graceSince tells whether Grace began after a moment.
func (x *sessions) graceSince(t time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.grace.After(t)
}

// sweepSince makes verify look at every partition, if it has not since Grace began somewhere. Grace
// begins when a partition is looked at; so it begins everywhere at about the same time.
func (x *sessions) sweepSince(began time.Time) {
	x.mu.Lock()
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
func (x *sessions) replaced(now time.Time) {
	x.mu.Lock()
	x.other = now
	x.mu.Unlock()
	x.sweepSince(now)
}

// graceOver notes that what was seen in Grace until then is in none any more.
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

// graceSeen notes that a partition is in Grace, of which so much was left when the call that was sent then was executed.
func (c *Coordinator) graceSeen(p uint32, sent time.Time, left time.Duration) {
	c.sessions.sweepSince(c.graceBegan(sent, left))
	if s := c.sessions.current(); s != nil {
		s.rounds.inGrace(p)
	}
}

// graceBegan is when a Grace of which so much was left began, or a little earlier: it was left when
// the call that was sent then was executed.
func (c *Coordinator) graceBegan(sent time.Time, left time.Duration) time.Time {
	return sent.Add(left - c.graceTime())
}

// graceTime is the namespace's Grace (Q), which may be longer than this process's option.
func (c *Coordinator) graceTime() time.Duration {
	if ns := c.remote.namespace.Load(); ns != nil {
		return (*ns).Grace()
	}
	return c.opts.Grace
}

// silence is for how long a deposed server may answer: delta of the rules.
func (c *Coordinator) silence() time.Duration {
	return c.graceTime() - c.opts.SessionTTL - c.opts.Margin
}

// stamp is what this process's session was told last.
func (c *Coordinator) stamp() fallback.Stamp {
	s := c.sessions.current()
	if s == nil {
		return fallback.Stamp{}
	}
	return fallback.Stamp{Session: s.ID, Seen: s.seen.Load()}
}

// graceLasts is for how long a caller waits in Grace before it asks again, if so much of it is left.
func (c *Coordinator) graceLasts(left time.Duration) time.Duration {
	most := c.opts.RenewEvery
	if s := c.sessions.current(); s != nil && s.rounds != nil {
		most = c.opts.RetryEvery // it may end at any time, and the hint that says so be lost
	}
	return min(left+time.Millisecond, most)
}
