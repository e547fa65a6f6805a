package singleflight

import (
	"context"
	"sync"
	"time"
)

// flightContext is the context of a flight. It is made when fn asks for it: it would be most of the
// cost of a short fn that never looks at it.
type flightContext struct {
	values context.Context // the first member's

	mu    sync.Mutex // protects the fields below
	real  context.Context
	end   context.CancelCauseFunc
	ended bool
	cause error // if ended
}

func (c *flightContext) made() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real == nil {
		c.real, c.end = context.WithCancelCause(context.WithoutCancel(c.values))
		if c.ended {
			c.end(c.cause)
		}
	}
	return c.real
}

// cancel ends the context; the first cause counts.
func (c *flightContext) cancel(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended, c.cause = true, cause
	if c.real != nil {
		c.end(cause)
	}
}

func (c *flightContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (c *flightContext) Done() <-chan struct{}       { return c.made().Done() }
func (c *flightContext) Value(key any) any           { return c.made().Value(key) }

func (c *flightContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return context.Canceled
	}
	return nil
}
