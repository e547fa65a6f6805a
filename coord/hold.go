package coord

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/internal/guard"
)

// hold is this process's right to a key, with the source that it rests on.
type hold struct {
	session   *session
	row       fallback.Row
	confirmed time.Time // when the last call was sent whose answer confirmed the row; zero: no answer did

	source      source
	rowed       bool // there is a row, or may be, though it is not read any more (rule 17)
	keepRow     bool // the row that Demote writes is not to be released: see stepped.go
	callPending bool // a call that makes its row may be executed yet

	// Of sourceOwner and sourceFrozen.
	from      *link     // the owner's stream; nil: the owner was this node
	epoch     uint32    // at which the owner answers for the hold
	announced time.Time // the owner's deadline (rule 7)
	pongs     uint64    // pongs after this many may extend it, if the source is sourceOwner
}

// remote reports whether the hold may have no row.
func (h *hold) remote() bool { return h.source == sourceOwner || h.source == sourceFrozen }

func (p *partition) deadlines(h *hold) deadlines {
	if h.source == sourceOwn && p.own != nil && !p.own.goodUntil.IsZero() {
		return deadlines{p.own.goodUntil, p.own.goodUntil} // at least
	}
	d := deadlines{session: h.session.deadline()}
	switch {
	case (h.source == sourceOwn || h.source == sourceHome) && p.own != nil:
		d.slot = p.own.confirmed.Add(p.c.opts.lease())
	case h.confirmed.IsZero() && !guard.Announced:
		d.slot = d.session
	case h.confirmed.IsZero():
		d.slot = h.announcedUntil()
	default:
		d.slot = h.confirmed.Add(p.c.opts.lease())
		if h.remote() {
			if at := h.announcedUntil(); at.After(d.slot) {
				d.slot = at
			}
		}
	}
	return d
}

// deadlines are when a hold lapses: the session's and the slot's, whichever passes first by whichever clock.
type deadlines struct{ session, slot time.Time }

// past tells whether a deadline has passed, by the monotonic or by the wall clock: one of them goes on while
// the machine is suspended, and the other cannot be set.
func past(deadline, now time.Time) bool {
	return !now.Before(deadline) || now.UnixNano() >= deadline.UnixNano()
}

func (d deadlines) past(now time.Time) bool { return past(d.session, now) || past(d.slot, now) }

// inForce checks the entry's hold against the clock, and drops it if it has lapsed.
func (p *partition) inForce(e *entry, now time.Time, after *after) bool {
	if e.q.State() == handoff.Idle {
		return false
	}
	if e.hold.source == sourceOwn && p.own != nil && p.own.good(p, now) {
		return true
	}
	if !p.deadlines(&e.hold).past(now) {
		return true
	}
	cause := LeaseExpired
	if past(e.hold.session.deadline(), now) {
		cause = SessionExpired
	}
	p.lose(e, cause, after)
	return false
}
