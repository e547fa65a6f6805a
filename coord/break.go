package coord

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// maxReason is the length of the longest reason of Break, in bytes.
const maxReason = 256

// Break takes a lock away from the caller that has it: exactly that one with the token, as Inspect
// tells it. The holder's process does it: the lock's context ends there with a [*LossError] with
// the cause [Broken] and the reason, before another caller gets the key. It stops no code: a
// section that does not heed its context goes on, and only the resource can refuse its token. Both
// processes log it. Of a reason 256 bytes are told, and the name of this process.
//
// Readers of one process have one lock together, with the token that Inspect tells: all of them
// lose it.
//
// Errors: [ErrInvalidKey]; [ErrNotHeld]; [ErrUnavailable] as Inspect; [ErrNotBroken] if the
// holder's process refuses or does not answer, or the key's owner does not answer or does not serve
// the partition at present. Without a cluster only locks of this process can be broken. If a lock
// cannot be broken, the remedy is to end the holder's process: its locks are free after its
// SessionTTL, or Cluster.Takeover.
func (c *Coordinator) Break(ctx context.Context, key string, token Fence, reason string) error {
	info, err := c.Inspect(ctx, key)
	if err != nil {
		return err
	}
	return c.breakLock(ctx, &info, key, token, reason)
}

// Break is [Coordinator.Break] of a block of permits, by its token in [KeyInfo].Shared: all callers
// of that process with permits of the block lose them.
func (s *Semaphore) Break(ctx context.Context, token Fence, reason string) error {
	info, err := s.Inspect(ctx)
	if err != nil {
		return err
	}
	return s.c.breakLock(ctx, &info, semaphorePrefix+s.key, token, reason)
}

// breakLock breaks the lock or the permits with the token.
func (c *Coordinator) breakLock(ctx context.Context, info *KeyInfo, key string, token Fence, reason string) (err error) {
	h, name := info.Holder, key
	for i := range info.Shared {
		if x := &info.Shared[i]; x.Fence == token && token > 0 {
			h, name = x, x.name
		}
	}
	if h == nil && info.Unknown {
		o, does := info.Unanswered[0], "does not answer for it"
		if info.NotServing {
			does = "answers"
		}
		return fmt.Errorf("%w: key %s: its owner, %s on host %s, %s: %s", ErrNotBroken, quoted(info.Key), quoted(o.Name), quoted(o.Host), does, o.Reason)
	}
	if h == nil {
		return fmt.Errorf("%w: key %s, token %v", ErrNotHeld, quoted(info.Key), token)
	}
	reason = strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")
	q := question{About: "break", Keys: [][]byte{[]byte(name)}, Fence: token, Why: c.asking(reason)}
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
		return fmt.Errorf("%w: process %s on host %s: %w", ErrNotBroken, quoted(h.Name), quoted(h.Host), err)
	case !a.Broken:
		return fmt.Errorf("%w: key %s, token %v", ErrNotHeld, quoted(info.Key), token)
	}
	c.opts.Logger.Warn("holdfast: a lock of a process was broken on request of this one", "key", logged(info.Key), "fence", token,
		"holder", h.Name, "host", h.Host, "reason", optional(reason))
	return nil
}

// asking returns a reason, which may be empty, with the name of this process.
func (c *Coordinator) asking(reason string) string {
	return strings.TrimSpace(reason + " (" + c.opts.Name + ")")
}

// breakHere takes a lock away from a caller of this process.
func (c *Coordinator) breakHere(key string, fence Fence, why string) bool {
	var a after
	p := c.partitionNamed(key)
	now := p.lock()
	broken := p.Break(key, uint64(fence), lease.Broken, why, now, &a.Effects)
	p.unlock(&a)
	a.do(c)
	if broken {
		c.opts.Logger.Warn("holdfast: a lock of this process was broken", "key", logged(namedKey(key)), "fence", fence, "reason", why)
	}
	return broken
}
