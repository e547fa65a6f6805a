package coord

import (
	"time"
	"unsafe"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// TakenWithin is how long a node waits until the next owner has taken a partition.
const TakenWithin = takenWithin

// Store is the ShareStore that Share uses by default.
func Store(c *Coordinator) (ShareStore, error) { return c.Results() }

// Filled returns options with the defaults.
func Filled(o *Options) Options { return o.filled() }

// StepClock makes a session see its wall clock as if it had stepped forward by whole seconds: all
// deadlines of the session and its partitions are earlier by the wall clock, and by that alone. It
// reports whether the session was there.
func StepClock(c *Coordinator, session string, seconds int64) bool {
	s := c.sessions.current()
	if s == nil || s.ID != session {
		return false
	}
	deadline := earlierByWall(s.Deadline(), seconds)
	var a after
	for i := range c.parts {
		p := &c.parts[i]
		if !s.Deadline().IsZero() {
			s.Extend(deadline) // a renewal may have been answered that was sent before the step
		}
		p.mu.Lock()
		p.Reconfirm(s.Session, func(t time.Time) time.Time { return earlierByWall(t, seconds) })
		p.mu.Unlock()
		p.lapsed(&a) // watch may do so before it looks at the session
	}
	a.do(c)
	c.sooner.add(c.now())
	return true
}

// earlierByWall sets the wall clock's part of a time, which has whole seconds above 30 bits of
// nanoseconds.
func earlierByWall(t time.Time, seconds int64) time.Time {
	wall := (*uint64)(unsafe.Pointer(&t)) // the first field of a time.Time
	*wall -= uint64(seconds) << 30
	return t
}

// Owe makes c owe the arbiter a hold of a key, which it has given back.
func Owe(c *Coordinator, key string) {
	c.debts.releases.add(c.partitionNamed(key).ReleaseOf(key, fallback.Identity{Session: c.sessions.id(), Request: 1}))
}

// Drained makes c a node that is drained, which the ring does not know yet.
func Drained(c *Coordinator) { c.cluster.self.draining.Store(true) }

// Guards reports whether c is going to report a session as dead, if it is silent.
func Guards(c *Coordinator, session string) bool {
	g := c.sessions.current().guarded
	g.mu.Lock()
	defer g.mu.Unlock()
	_, promised := g.guard.Promised()[session]
	return promised
}

// Seated reports whether the reader has a seat, and so the lock without a mutex.
func Seated(l ReadLock) bool { return l.turn&seatCounted == 0 }

// SameSeat reports whether two readers have the same seat, or had it.
func SameSeat(a, b ReadLock) bool { return a.seat == b.seat }

// Stuck returns how many waits are looked at, as they may be part of a circle.
func Stuck(c *Coordinator) int { return len(c.callers.stuck.all()) }

// SendAway ends these waits, as if each were the youngest of a circle.
func SendAway(c *Coordinator) {
	for _, w := range c.callers.stuck.all() {
		c.callers.stuck.tell(w.id, &DeadlockError{Key: namedKey(w.name)})
	}
}

// Lingering returns how many keys and readings a coordinator looks at once per Linger.
func Lingering(c *Coordinator) int {
	c.debts.lingers.mu.Lock()
	defer c.debts.lingers.mu.Unlock()
	return len(c.debts.lingers.list)
}

// Knows reports whether c has a stream to x that has named x's session.
func Knows(c, x *Coordinator) bool { return c.cluster.linkTo(x.sessions.id()) != nil }

// Keys returns how many keys a coordinator has in use, or keeps.
func Keys(c *Coordinator) (n int) {
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		n += p.Len()
		p.mu.Unlock()
	}
	return n
}

// LookAtRecords makes a node look whether records name it of partitions that it does not own.
func LookAtRecords(c *Coordinator) {
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		if p.Phase() == lease.Unowned {
			var a after
			p.Serve(lease.NewSession("ended", time.Time{}), fallback.Acquisition{}, time.Time{}, c.now(), &a.Effects) // in vain, as that session has ended
		}
		p.mu.Unlock()
	}
}

// Looking returns how many partitions a node does not own, and could not acquire now if they were
// to be its own.
func Looking(c *Coordinator) (n int) {
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		if p.Phase() == lease.Unowned && p.Duty(lease.Placement{Mine: true}, c.now().Add(time.Hour)) != lease.DutyTake {
			n++
		}
		p.mu.Unlock()
	}
	return n
}
