package coord

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// ending is what a session knows of the reasons for its end, for the log.
type ending struct {
	due     atomic.Int64          // when watch was to look next, or since when it has looked, after Coordinator.began
	stood   atomic.Int64          // by how long watch was late since the last renewal that was answered, at most
	woke    atomic.Int64          // when stood last grew, after Coordinator.began
	failure atomic.Pointer[error] // of the last renewal; nil if that was answered
}

// sleeps notes when watch looks next.
func (e *ending) sleeps(until lease.Moment) { e.due.Store(int64(until)) }

// wakes notes by how long watch is late. A process that stands still is late by less: watch may
// have had to sleep for a part of that time.
func (e *ending) wakes(now lease.Moment) {
	if late := int64(e.late(now)); late > e.stood.Load() {
		e.woke.Store(int64(now)) // before stood, which renewed clears
		e.stood.Store(late)
	}
	e.due.Store(int64(now))
}

// late returns the longest delay of watch, the present one included.
func (e *ending) late(now lease.Moment) time.Duration {
	due := lease.Moment(e.due.Load()) // before stood, which wakes stores first
	return max(time.Duration(e.stood.Load()), now-due)
}

// renewed notes that a renewal was answered that was sent then. If this process has stood still
// since, the session may end of that all the same.
func (e *ending) renewed(sent lease.Moment) {
	if sent > lease.Moment(e.woke.Load()) {
		e.stood.Store(0)
	}
	e.failure.Store(nil)
}

// because adds to the error of a session that has ended, with that deadline, the reasons that are
// known. acknowledged is when the last renewal was sent that was answered.
func (c *Coordinator) because(err error, s *session, acknowledged time.Time) error {
	now, few := c.now(), c.opts.RenewEvery/4
	short := func(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
	var why []string
	if d := s.ending.late(c.at(now)); d > few {
		why = append(why, fmt.Sprintf("this process stood still, for %v or more", short(d)))
	}
	d := s.Deadline()
	if step := d.Sub(now) - d.Round(0).Sub(now.Round(0)); lease.Stepped(d, now) && step > few {
		why = append(why, fmt.Sprintf("its clock stepped forward by %v, or its machine was suspended", short(step)))
	}
	if failure := s.ending.failure.Load(); failure != nil {
		why = append(why, fmt.Sprintf("the arbiter has not answered for %v, at last: %v", short(now.Sub(acknowledged)), *failure))
	}
	switch {
	case len(why) > 0:
		return fmt.Errorf("%w: %s", err, strings.Join(why, "; "))
	case err == errExpired:
		return fmt.Errorf("%w: the arbiter did not answer, or this process stood still, or its clock stepped forward", err)
	}
	return fmt.Errorf("%w: it reached neither the nodes that guard it nor the arbiter, or stood still for almost Cluster.Takeover, or its clock stepped forward", err)
}
