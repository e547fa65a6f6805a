package coord

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/internal/guardians"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// guarded is a session's part in takeover by guardians (docs/takeover.md, G1 to G11): the promises
// of its own guardians, and this node's promises to other sessions. It is the shell of a Ward and a
// Guardian: it reads the clock, sends their messages, and calls the arbiter.
type guarded struct {
	c      *Coordinator
	s      *session
	burier fallback.Burier
	times  guardians.Times
	wakes  wardWakes

	mu      mutex[leafRank] // protects the fields below
	ward    *guardians.Ward
	guard   *guardians.Guardian
	burying map[string]bool // sessions with a call of Bury under way
	clock   wardClock
	contact contacts
	end     wardEnd
}

// wardClock is the reading of the clock that a ward goes by.
type wardClock struct {
	at   guardians.Instant // the ward's clock: see instant
	read time.Time         // when it was read
}

// contacts are the times of a session's last contacts with its guardians and the arbiter.
type contacts struct {
	pinged  time.Time // the guardians, at last
	resumed time.Time // when this process went on after it had stood still
	silent  time.Time // when answers of all sessions that could guard this one were overdue; zero: they are not
	asked   time.Time // when the next set was asked for, or one before it
	renewed time.Time // the sending of the last renewal that was answered
}

// wardEnd is the state of a guarded session's end.
type wardEnd struct {
	leaseEnds time.Time // zero until the session is open
	ended     bool
}

// wardWakes are signals to the goroutines of a guarded session.
type wardWakes struct {
	renew chan time.Time // capacity 1: the session is to be renewed now; a call that was sent since then will do
	look  chan struct{}  // capacity 1: the loop has something to do
}

// newGuarded returns that of a session that is about to be opened, nil if its lease alone counts.
func (c *Coordinator) newGuarded(s *session) *guarded {
	burier, ok := c.remote.ns.(fallback.Burier)
	if c.opts.takeover() == 0 || !ok {
		return nil
	}
	t := c.opts.promises()
	c.cluster.heard.announces.Store(int64(t.Valid()))
	return &guarded{
		c: c, s: s, burier: burier, times: t, wakes: wardWakes{renew: make(chan time.Time, 1), look: make(chan struct{}, 1)},
		ward: guardians.NewWard(t), guard: guardians.NewGuardian(s.ID, t), clock: wardClock{read: c.now()}, burying: make(map[string]bool),
	}
}

// publish sets the session's deadline, the only one that grants and announcements are compared
// with: the earlier one of the lease's end and the end of the promises (G3). It only rises.
// Whatever relies on an earlier one rests on the recorded set, and the next set is not asked for
// before it covers that (G7). g.mu is held.
func (g *guarded) publish(now time.Time) {
	at := g.instant(now)
	switch {
	case g.end.ended || g.end.leaseEnds.IsZero():
		return
	case lease.Past(g.end.leaseEnds, now) || !g.s.Deadline().IsZero() && lease.Past(g.s.Deadline(), now):
		g.ward.End() // for ever (rule 3)
		return
	}
	left := lease.Left(g.end.leaseEnds, now)
	switch {
	case g.alone():
		left = min(left, max(g.times.Valid(), at)) // at is the session's age
		g.ward.Relied(at + left)
	case guard.Promised:
		left = g.ward.Announce(at+left, at)
	}
	if d := now.Add(left); d.After(g.s.Deadline()) {
		g.s.Extend(d)
	}
}

// alone reports whether the arbiter knows of no other session. Then the lease alone counts, for no
// longer ahead than the session is old. So a process that stands still loses no more than without
// guardians once it is older than a lease, and processes that start together need not wait to guard
// each other. g.mu is held.
func (g *guarded) alone() bool {
	recorded, _, phase := g.ward.Sets()
	return len(recorded.Members) == 0 && phase == guardians.Settled && g.c.cluster.heard.registered.Load() <= 1
}

// instant returns the ward's clock. It goes on by the monotonic clock, or by the wall clock where
// that has made the longer step: a machine that was suspended has lost the time of its promises. It
// never goes back. g.mu is held.
func (g *guarded) instant(now time.Time) guardians.Instant {
	if step := now.Sub(g.clock.read); step >= 0 {
		g.clock.at += max(step, now.Round(0).Sub(g.clock.read.Round(0)))
		g.clock.read = now
	}
	return g.clock.at
}

// monotonic returns a guardian's clock.
func (g *guarded) monotonic(now time.Time) guardians.Instant { return now.Sub(g.c.began) }

// registers returns the guardians in a renewal: the recorded set, or the next one from when it is
// asked for (G8).
func (g *guarded) registers() fallback.Guardians {
	if g == nil {
		return fallback.Guardians{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	names := g.ward.Names()
	return fallback.Guardians{Version: names.Version, Set: names.Members}
}

// recorded takes the version that an answer tells, in time, to a renewal that was sent then.
func (g *guarded) recorded(a fallback.Renewal, sent time.Time) {
	if g == nil {
		return
	}
	g.mu.Lock()
	now := g.c.now()
	if !g.contact.silent.IsZero() && g.contact.renewed.Before(g.contact.silent) && !sent.Before(g.contact.silent) {
		g.wake() // this node is not deaf
	}
	g.contact.renewed = sent
	var out outbox
	at := g.instant(now)
	before, _, _ := g.ward.Sets()
	dropped := g.ward.Recorded(a.Version, g.c.fresh(a), at)
	after, _, _ := g.ward.Sets()
	for _, session := range dropped {
		g.ping(session, at, &out) // so that it need not vote for a version that is over
	}
	g.publish(now)
	var promised time.Duration // without guardians none
	if len(after.Members) > 0 {
		promised = max(g.ward.Until()-at, 0)
	}
	if after.Version != before.Version && slices.ContainsFunc(after.Members, func(m string) bool { return !g.reaches(m) }) {
		g.wake() // a guardian was lost while the set was asked for
	}
	g.mu.Unlock()
	out.flush()
	if after.Version != before.Version {
		g.c.opts.Logger.Debug("holdfast: the guardians of this session are recorded", "session", g.s.ID, "version", after.Version,
			"guardians", g.c.cluster.names(after.Members), "promised", promised)
	}
}

// asked returns a channel that has a time when the session is to be renewed now, by a call that was
// sent since then; nil without guardians.
func (g *guarded) asked() <-chan time.Time {
	if g == nil {
		return nil
	}
	return g.wakes.renew
}
