package sim

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// clock is a node's own: it may run fast or slow, and the node may stand still. Package coord looks
// at it whenever it wants to know the time; a node's other actions are delayed where it meets the
// network, the arbiter, and its clients.
type clock struct {
	begin time.Time
	rate  float64 // seconds of this clock per second
	still func(from, until time.Time)
	two   bool         // it has a wall clock that may step alone
	wall  atomic.Int64 // by how many nanoseconds its wall clock is ahead of its monotonic one
	jumps atomic.Int64 // when the wall clock stepped last, of the world: nanoseconds since begin
	runs  atomic.Bool  // the node neither stands still nor is about to

	mu    sync.Mutex // protects the fields below, and runs
	rng   *rand.Rand
	until time.Time     // the node stands still
	reads int           // after so many readings of the clock the node stands still; 0: not
	long  time.Duration // for so long
}

func newClock(rate float64, seed1, seed2 uint64) *clock {
	c := &clock{begin: time.Now(), rate: rate, rng: rand.New(rand.NewPCG(seed1, seed2)), still: func(_, _ time.Time) {}}
	c.runs.Store(true)
	return c
}

// stand makes the node stand still, at once or after so many readings of its clock: then it does so
// between the check of a deadline and the action that depends on it.
func (c *clock) stand(d time.Duration, reads int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs.Store(false)
	if reads == 0 {
		c.halt(d)
	} else {
		c.reads, c.long = reads, d
	}
}

// halt begins the standstill. c.mu is held.
func (c *clock) halt(d time.Duration) {
	now := time.Now()
	if now.Add(d).After(c.until) {
		c.until = now.Add(d)
		c.still(now, c.until)
	}
}

func (c *clock) read() time.Time {
	now := time.Now()
	if c.rate != 1 {
		now = c.begin.Add(time.Duration(c.rate * float64(now.Sub(c.begin))))
	}
	if c.two {
		return apart(now, time.Duration(c.wall.Load()))
	}
	return now
}

// step moves the wall clock, and not the monotonic one, as NTP or an operator does.
func (c *clock) step(by time.Duration) {
	c.jumps.Store(int64(time.Since(c.begin)))
	c.wall.Add(int64(by))
}

// step moves the wall clock of the host that the node runs on.
func (n *node) step(by time.Duration) {
	n.wall += by
	if n.now != nil {
		n.now.h.clock.step(by)
	}
}

// jumped reports whether the wall clock stepped so recently that the node may go by an earlier
// reading.
func (c *clock) jumped() bool {
	at := c.jumps.Load()
	return at != 0 && time.Since(c.begin)-time.Duration(at) <= 2*lease.WallEvery
}

// apart returns a time with a wall clock that is ahead of the monotonic one. Times of a bubble have
// no monotonic reading, so it gets one here. The first word of a time.Time that has one is a flag,
// 33 bits of seconds since 1885, and 30 bits of nanoseconds; the second one is that reading.
func apart(now time.Time, ahead time.Duration) time.Time {
	t := now.Add(ahead).Round(0)
	words := (*[2]uint64)(unsafe.Pointer(&t))
	words[0] = 1<<63 | uint64(t.Unix()-year1885)<<30 | uint64(t.Nanosecond())
	words[1] = uint64(now.Sub(year2000) + 1)
	return t
}

var (
	year1885 = time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	year2000 = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Now implements [wire.Clock].
func (c *clock) Now() time.Time {
	if c.runs.Load() {
		return c.read()
	}
	c.mu.Lock()
	if c.reads > 0 {
		if c.reads--; c.reads == 0 {
			c.halt(c.long)
		}
	}
	t, d := c.read(), time.Until(c.until)
	if d <= 0 {
		c.runs.Store(c.reads == 0)
		c.mu.Unlock()
		return t
	}
	before := c.rng.IntN(2) == 0
	c.mu.Unlock()
	c.wait()
	if before {
		t = c.read()
	}
	return t
}

// left returns for how long the node still stands still.
func (c *clock) left() time.Duration {
	if c.runs.Load() {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until.IsZero() {
		return 0
	}
	return max(time.Until(c.until), 0)
}

// wait returns when the node goes on.
func (c *clock) wait() {
	for d := c.left(); d > 0; d = c.left() {
		time.Sleep(d)
	}
}

// holdsOld reports whether the node may have read its clock before a time that it has not lived
// through: it stood still until now, or its wall clock stepped.
func (c *clock) holdsOld(begin time.Time) bool { return c.stoodSince(begin, 0) || c.jumped() }

// stoodSince reports whether the node has stood still since a moment, and has not been running
// again for long.
func (c *clock) stoodSince(t time.Time, within time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.until.After(t) && time.Since(c.until) <= within
}
