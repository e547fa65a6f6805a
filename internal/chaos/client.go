//go:build linux

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// client is a goroutine of a node that locks its key, works, and unlocks, all the time.
type client struct {
	n    *node
	id   int
	key  string
	pace pace
	now  aim
	r    *access
	err  error // of writing things down, or of the resource: nothing that a fault may bring about
}

// How long a client holds a lock.
type pace int

const (
	brief    pace = iota // milliseconds
	slow                 // a second, or longer than T
	forever              // until it is lost
	fleeting             // milliseconds, a key that no client uses before or after
)

// How a holder looks after its lock.
type manner int

const (
	attentive manner = iota // it looks every 25 ms, and stops when the lock is lost
	trusting                // it waits for the lock's context to end, and looks at the end
	careless                // it does not look: the fence guards against it
)

func (c *client) run(ctx context.Context) error {
	r, err := openResource(c.n.job.Resource)
	if err != nil {
		return err
	}
	defer r.c.Close()
	c.r = r
	for c.err == nil && sleep(ctx, c.rest()) {
		c.once(ctx)
	}
	return c.err
}

func (c *client) pick(s span) time.Duration { return s.From + rand.N(s.To-s.From+1) }

func (c *client) rest() time.Duration { return c.pick(c.n.job.Rest) }

func (c *client) patience() time.Duration {
	if c.pace == forever {
		return time.Hour
	}
	if c.pace == slow || rand.IntN(2) == 0 {
		return c.pick(span{2 * time.Second, 10 * time.Second})
	}
	return c.pick(span{100 * time.Millisecond, 2 * time.Second})
}

func (c *client) hold() time.Duration {
	t := c.n.job.Times.TTL
	switch {
	case c.pace == forever:
		return time.Hour
	case c.pace == slow && rand.IntN(4) == 0:
		return c.pick(span{t, t * 3 / 2})
	case c.pace == slow:
		return c.pick(span{100 * time.Millisecond, 800 * time.Millisecond})
	}
	return c.pick(span{0, 15 * time.Millisecond})
}

func (c *client) note(o op, fence uint64, text string) {
	c.write(event{Op: o, Fence: fence, Text: text})
}

func (c *client) write(e event) {
	e.Client, e.Key, e.Mode, e.N = c.id, c.now.key, c.now.mode, c.now.n
	if err := c.n.out.write(e); err != nil && c.err == nil {
		c.err = err
	}
}

// once is one lock, or a failed one.
func (c *client) once(ctx context.Context) {
	c.now = c.aim()
	patience := c.patience()
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c.note(opLock, 0, patience.String())
	l, err := c.take(waiting)
	if err != nil {
		c.failed(ctx, err)
		return
	}
	c.note(opGranted, uint64(l.Fence()), "")
	c.have(ctx, l)
}

func (c *client) failed(ctx context.Context, err error) {
	text := err.Error()
	if ctx.Err() != nil {
		text = "closing: " + text
	}
	c.note(opFailed, 0, text)
}

// have uses a granted lock, and gives it back.
func (c *client) have(ctx context.Context, l lease) {
	how := manner(rand.IntN(3))
	if c.pace == forever {
		how = trusting
	}
	c.ask("begin", l)
	if c.visit(ctx, l, how) || how == careless {
		c.ask("end", l)
	}
	l = c.turn(ctx, l)
	c.note(opUnlock, uint64(l.Fence()), "")
	if err := l.Unlock(); err != nil {
		if how == careless || !errors.Is(err, coord.ErrLost) {
			c.note(opLost, uint64(l.Fence()), err.Error())
		}
		c.note(opUnlocked, uint64(l.Fence()), err.Error())
		return
	}
	c.note(opUnlocked, uint64(l.Fence()), "")
}

// visit holds the lock for a while, and says whether it is still in force at the end.
func (c *client) visit(ctx context.Context, l lease, how manner) bool {
	left := c.hold()
	if how == careless {
		sleep(ctx, left)
		return true
	}
	done := l.Context().Done()
	for end := now().add(left); ; {
		pause := end.sub(now())
		if how == attentive {
			pause = min(pause, 25*time.Millisecond)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		case <-done:
		}
		// The lock is in force now if it is found to be so later.
		before := now()
		if err := l.Context().Err(); err != nil { // looks at the clock, too
			c.note(opLost, uint64(l.Fence()), context.Cause(l.Context()).Error())
			return false
		}
		c.write(event{Op: opHeld, Fence: uint64(l.Fence()), Valid: int64(before)})
		if before >= end || ctx.Err() != nil || c.err != nil {
			return true
		}
	}
}

// ask begins or ends a section at the resource, which knows nothing of permits.
func (c *client) ask(what string, l lease) {
	if c.now.mode == counted {
		return
	}
	before := now()
	r, err := c.r.ask(request{Op: what, Key: c.now.key, Fence: uint64(l.Fence()), Node: c.n.job.Node, Read: c.now.mode == reading})
	if err != nil && c.err == nil {
		c.err = err
	}
	if r.Refused {
		c.write(event{At: int64(before), Op: opRefused, Fence: uint64(l.Fence()), Text: what})
	}
}
