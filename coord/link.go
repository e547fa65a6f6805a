package coord

import (
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/peer"
)

// link is a stream to another node: as a holder of keys that the other one owns, and as an owner of keys that it holds.
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

	mu     mutex[linkRank] // protects what follows
	stated bool            // the other node has begun the statement of that session's holds: there is one for each session
	ring   uint64          // fingerprint of the other's placement
	beat   heartbeat
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

// answer is until when the other node answers for what it has granted, and how many such answers there were with it.
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
