package coord

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/peer"
)

// link is a stream to another node: as a holder of keys that the other one owns, and as an owner of
// keys that it holds.
type link struct {
	x    *cluster
	s    *peer.Stream
	down atomic.Bool
	said atomic.Pointer[answer] // the latest that has moved the deadline on, never nil: Up stores an empty one; written with mu held
	// session is the other node's; nil until the node has stated one. Written with mu held.
	session atomic.Pointer[string]
	quota
	asks     asks
	observer bool // the other side only asks questions

	mu   mutex[linkRank] // protects the fields below
	says statements
	ring uint64 // fingerprint of the other's placement
	beat heartbeat
}

// statements are the other node's statements of its sessions' holds. Each makes this node look at
// all partitions: there is one for each session, and one more after it, when the node has none. The
// link's mutex protects it.
type statements struct {
	open     bool     // one has begun, and has not ended
	none     bool     // the last one is of no session
	sessions []string // of all others
}

// maxSessions is how many sessions a node may have had on one stream: another stream begins anew.
const maxSessions = 256

// begin reports whether a node may begin such a statement.
func (s *statements) begin(session string) bool {
	if session == "" && s.none || session != "" && slices.Contains(s.sessions, session) || len(s.sessions) == maxSessions {
		return false
	}
	s.open, s.none = true, session == ""
	if session != "" {
		s.sessions = append(s.sessions, session)
	}
	return true
}

// end reports whether one had begun.
func (s *statements) end() bool {
	open := s.open
	s.open = false
	return open
}

// heartbeat has the pings of a stream, sent and answered. The link's mutex protects it.
type heartbeat struct {
	pings      uint32 // that were sent
	sent       [16]time.Time
	heard      uint32        // the other's last ping
	heardAt    time.Time     // when it came
	last       uint32        // the ping of pingToPart, in the end of Close
	parted     chan struct{} // closed when that is answered, or the stream has ended; nil without a waiter
	answeredAt time.Time     // when the last ping of either kind was answered
}

// An answer is the time until which the other node answers for its grants, and the number of such
// answers up to this one.
type answer struct {
	validUntil time.Time
	pongs      uint64
}

func (l *link) agrees(fingerprint uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ring == fingerprint
}

// Session implements [lease.Link].
func (l *link) Session() string {
	if s := l.session.Load(); s != nil {
		return *s
	}
	return ""
}

// Node implements [lease.Link].
func (l *link) Node() string { return l.s.Node() }

// Down implements [lease.Link].
func (l *link) Down() bool { return l.down.Load() }

// or returns the stream as a Link, a nil one for nil.
func (l *link) or() lease.Link {
	if l == nil {
		return nil
	}
	return l
}
