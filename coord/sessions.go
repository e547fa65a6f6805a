package coord

import (
	"sync/atomic"
	"time"

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
	now    atomic.Pointer[session]
	why    atomic.Pointer[error] // there is none
	others liveness              // which of them are dead, as the arbiter has said (rule 2)

	mu      mutex[leafRank] // protects changed, grace
	changed chan struct{}   // closed when now changes
	grace   time.Time       // when the latest Grace began that was seen
	other   time.Time       // when a renewal was answered by another server than before

	sweeps chan struct{} // capacity 1: grace has changed
}

func (x *sessions) init() {
	x.changed = make(chan struct{})
	x.sweeps = make(chan struct{}, 1)
}

func (x *sessions) current() *session { return x.now.Load() }

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
	x.now.Store(s)
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

// sweep makes verify look at every partition, if it has not since Grace began somewhere. Grace
// begins when a partition is looked at; so it begins everywhere at about the same time.
func (x *sessions) sweep(began time.Time) {
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

// replaced is sweep for another server, which may know of no Grace that was seen before.
func (x *sessions) replaced(now time.Time) {
	x.mu.Lock()
	x.other = now
	x.mu.Unlock()
	x.sweep(now)
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

// sweepSince tells whether Grace began after a moment.
func (x *sessions) sweepSince(t time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.grace.After(t)
}
