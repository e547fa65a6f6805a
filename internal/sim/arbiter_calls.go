package sim

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// fate is the outcome of one call.
type fate struct {
	there, back   time.Duration
	lost, unheard bool
	again         time.Duration // executed again after that; 0: not
	message       bool
	lucky         bool // an answer that has come while the node stood still is read, though the time is over
}

func (c *client) fate() fate {
	c.mu.Lock()
	w, dead := c.weather, c.dead
	c.mu.Unlock()
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	r := c.s.rng
	f := fate{
		there: latency(r, w.latency), back: latency(r, w.latency) + w.late,
		lucky:   r.IntN(2) == 0,
		lost:    w.away || dead || c.s.down || r.Float64() < w.lost,
		unheard: r.Float64() < w.unheard,
		message: !w.away && !dead && r.Float64() >= w.unmessage,
	}
	if r.Float64() < w.repeated {
		f.again = time.Duration(r.Int64N(int64(w.echo)))
	}
	return f
}

// through makes a call. A request that was sent is executed although no caller waits for the answer
// any more.
func through[T any](c *client, ctx context.Context, do func(context.Context) (T, error)) (none T, err error) {
	c.clock.wait()
	defer c.clock.wait()
	f := c.fate()
	if err := pause(ctx, f.there); err != nil {
		return none, err
	}
	if f.lost {
		return none, c.nothing(ctx)
	}
	execute := func() (T, error) {
		if c.s.books != nil { // reads and writes are steps of their own
			return do(observedIn(context.WithoutCancel(ctx)))
		}
		c.s.swap.RLock()
		defer c.s.swap.RUnlock()
		return do(context.WithoutCancel(ctx))
	}
	v, err := execute()
	if f.again > 0 && !once(v) {
		time.AfterFunc(f.again, func() { _, _ = execute() })
	}
	if f.unheard || c.fate().lost { // it may have become unreachable meanwhile
		return none, c.nothing(ctx)
	}
	if late := pause(ctx, f.back); late != nil && (!f.lucky || c.clock.left() == 0) {
		return none, late
	}
	return v, err
}

// nothing returns the error of an unanswered call: at once, where connections are refused.
func (c *client) nothing(ctx context.Context) error {
	if c.w.cfg.Refused {
		return errLost
	}
	<-ctx.Done()
	return errors.Join(errLost, ctx.Err())
}

// once reports whether no client library would send the answered request again.
func once(answer any) bool {
	switch answer.(type) {
	case fallback.Namespace, func():
		return true
	}
	return false
}

// about is through for a call about one partition.
func about[T any](c *client, ctx context.Context, p uint32, do func(context.Context) (T, error)) (none T, err error) {
	if c.away(p) {
		return none, c.nothing(ctx)
	}
	return through(c, ctx, do)
}

func (c *client) away(p uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.weather.shard[p]
}
