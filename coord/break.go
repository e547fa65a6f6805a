package coord

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// maxReason is the length of the longest reason of Break, in bytes.
const maxReason = 256

// Break takes a lock away from the caller that has it: exactly that one with the token, as Inspect tells it. The holder's
// process does it: the lock's context ends there with a [*LossError] with the cause [Broken] and the reason, before another
// caller gets the key. It stops no code: a section that does not heed its context goes on, and only the resource can refuse its
// token. Both processes log it. Of a reason 256 bytes are told, and the name of this process.
//
// Errors: [ErrInvalidKey]; [ErrNotHeld]; [ErrUnavailable] as Inspect; [ErrNotBroken] if the holder's process does not permit it or
// does not answer. Without a cluster only locks of this process can be broken. What helps then is to end that process: its
// locks are free after its SessionTTL, or Cluster.Takeover.
func (c *Coordinator) Break(ctx context.Context, key string, token Fence, reason string) error {
	info, err := c.Inspect(ctx, key)
	if err != nil {
		return err
	}
	h := info.Holder
	if h == nil {
		return fmt.Errorf("%w: key %s is free", ErrNotHeld, show(key))
	}
	reason = strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")
	q := question{About: "break", Keys: [][]byte{[]byte(key)}, Fence: token, Why: reason + " (" + c.opts.Name + ")"}
	var a reply
	if h.Session == c.sessions.id() {
		if a = c.answer(ctx, q); a.Error != "" {
			err = fmt.Errorf("it answers: %s", a.Error)
		}
	} else if l := c.cluster.linkTo(h.Session); l == nil {
		err = errNoNode
	} else {
		a, err = c.askLink(ctx, l, q)
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w: process %s on host %s: %w", ErrNotBroken, show(h.Name), show(h.Host), err)
	case !a.Broken:
		return fmt.Errorf("%w: key %s, token %v", ErrNotHeld, show(key), token)
	}
	c.opts.Logger.Warn("holdfast: a lock of a process was broken on request of this one", "key", show(key), "fence", token,
		"holder", h.Name, "host", h.Host, "reason", show(reason))
	return nil
}

// breakHere takes a lock away from a caller of this process.
func (c *Coordinator) breakHere(key string, fence Fence, why string) bool {
	var a after
	p := c.partitionOf(key)
	now := p.lock()
	broken := p.Break(key, uint64(fence), lease.Broken, why, now, &a.Effects)
	p.unlock(&a)
	a.do(c)
	if broken {
		c.opts.Logger.Warn("holdfast: a lock of this process was broken", "key", show(key), "fence", fence, "reason", show(why))
	}
	return broken
}
