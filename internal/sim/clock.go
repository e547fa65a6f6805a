package sim

import (
	"math/rand/v2"
	"sync"
	"time"
)

// clock is a node's own: it may run fast or slow, and the node may stand still. Package coord looks at it whenever it wants
// to know the time; what else a node does is delayed where it meets the network, the arbiter, and its clients.
type clock struct {
	begin time.Time
	rate  float64 // seconds of this clock per second
	still func(from, until time.Time)

	mu    sync.Mutex // protects what follows
	rng   *rand.Rand
	until time.Time     // the node stands still
	reads int           // after so many readings of the clock the node stands still; 0: not
	long  time.Duration // for so long
}

func newClock(rate float64, seed1, seed2 uint64) *clock {
	return &clock{begin: time.Now(), rate: rate, rng: rand.New(rand.NewPCG(seed1, seed2)), still: func(_, _ time.Time) {}}
}

// stand makes the node stand still, at once or when it has read its clock so many times: then that is the moment between
// the check of a deadline and what is done because of it.
func (c *clock) stand(d time.Duration, reads int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if reads == 0 {
		c.halt(d)
	} else {
		c.reads, c.long = reads, d
	}
}

// halt begins it. c.mu is held.
func (c *clock) halt(d time.Duration) {
	now := time.Now()
	if now.Add(d).After(c.until) {
		c.until = now.Add(d)
		c.still(now, c.until)
	}
}

func (c *clock) read() time.Time {
	now := time.Now()
	if c.rate == 1 {
		return now
	}
	return c.begin.Add(time.Duration(c.rate * float64(now.Sub(c.begin))))
}

// Now implements [wire.Clock].
func (c *clock) Now() time.Time {
	c.mu.Lock()
	if c.reads > 0 {
		if c.reads--; c.reads == 0 {
			c.halt(c.long)
		}
	}
	t, d := c.read(), time.Until(c.until)
	if d <= 0 {
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

// left is for how long the node still stands still.
func (c *clock) left() time.Duration {
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

// stoodSince tells whether the node has stood still since a moment, and has not been running again for long.
func (c *clock) stoodSince(t time.Time, within time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.until.After(t) && time.Since(c.until) <= within
}
