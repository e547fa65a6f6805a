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
	opened time.Time // when Open was sent
	seen   expiry
	ended  chan struct{} // closed when it has died

	ending ending

	guarded *guarded // nil: its lease alone counts
	rounds  *rounds  // nil: Grace ends by itself

	stopListening func()
}

// expiry is when a session expires at the arbiter, as it was told last: Expiry of a Renewal.
type expiry struct {
	mu mutex[leafRank] // protects the fields below
	is int64
	at time.Time // when it was told that
}

// told notes the answer to a call that was sent then. A call that was sent after the last answer
// was executed later: it counts, also by the clock of another server. Calls that are on their way
// together are answered in any order, and the one that was executed last has the latest expiry.
func (x *expiry) told(is int64, sent, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if is > x.is || sent.After(x.at) {
		x.is, x.at = is, now
	}
}

func (x *expiry) last() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.is
}

// sessions has the current session, for callers that need one, and the known deaths of other
// processes' sessions.
type sessions struct {
	present atomic.Pointer[session]
	why     atomic.Pointer[error] // there is none
	told    atomic.Pointer[told]  // the last card that the arbiter was told
	others  liveness              // which of them are dead, as the arbiter has said (rule 2)

	mu      mutex[leafRank] // protects changed, grace, settled, other
	changed chan struct{}   // closed when present changes
	grace   time.Time       // when the latest Grace began that was seen
	settled time.Time       // when the servers are silent that were there before the Graces that were seen
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
