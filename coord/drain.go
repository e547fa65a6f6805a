package coord

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/ring"
)

var errAlone = errors.New("no other node is there to take the partitions")

// Drain makes this node give its partitions to other nodes, and take none any more, until the
// coordinator is closed. It returns when the node owns none, or ctx ends, which does not end the
// draining. Locks in use stay in force, and callers of this process go on to lock, as a process
// that owns nothing: call it before a node is stopped, and [Coordinator.Close] after it. The holds
// that the process keeps for its next callers are given back.
//
// Without a cluster only these holds are given back. Errors: [ErrClosed]; [ErrObserver]; ctx's,
// with the number of partitions that are left; that there is no other node, and then nothing is
// done.
func (c *Coordinator) Drain(ctx context.Context) error {
	if c.opts.Observe {
		return fmt.Errorf("coord: Drain: %w", ErrObserver)
	}
	if c.cluster == nil {
		c.giveKept()
		return nil
	}
	if err := c.beginDrain("Drain was called"); err != nil {
		return fmt.Errorf("coord: Drain: %w", err)
	}
	t := time.NewTicker(c.opts.RetryEvery / 8)
	defer t.Stop()
	for {
		left := c.owned()
		if left == 0 {
			c.giveKept()
			return nil
		}
		select {
		case <-t.C:
		case <-c.life.closing:
			return ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("coord: Drain: %d partitions are left: %w", left, ended(ctx))
		}
	}
}

// DrainNode asks a node to drain, as [Coordinator.Drain] does there, and returns when the node has
// begun. [Coordinator.Report] tells how many partitions are left. node is as in Held; the reason is
// logged there. Errors: as Held; of the node, such as that Options.Unbreakable is set, or that
// there is no other node.
func (c *Coordinator) DrainNode(ctx context.Context, node, reason string) error {
	reason = c.asking(strings.ToValidUTF8(reason[:min(len(reason), maxReason)], ""))
	a, err := c.askNode(ctx, node, question{About: "drain", Why: reason})
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	if err != nil {
		return fmt.Errorf("coord: DrainNode: node %s: %w", quoted(node), err)
	}
	return nil
}

// beginDrain lets the others, and this node's own balance, know that this node gives its partitions
// away.
func (c *Coordinator) beginDrain(why string) error {
	x := c.cluster
	if x == nil {
		return errNoCluster
	}
	select {
	case <-c.life.closing:
		return ErrClosed
	default:
	}
	others := 0
	for _, name := range ring.Placeable(x.ring.View().Live()) {
		if name != x.self.name {
			others++
		}
	}
	if others == 0 {
		return errAlone
	}
	if x.self.draining.CompareAndSwap(false, true) {
		c.opts.Logger.Warn("holdfast: this node gives its partitions away, and takes none any more", "reason", optional(why), "partitions", c.owned())
	}
	_ = x.ring.SetState(ring.Leaving)
	x.poke()
	return nil
}

// owned returns how many partitions this node owns, is giving away, or may be given by a call that
// is under way.
func (c *Coordinator) owned() (n int) {
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		if ph := p.Phase(); ph != lease.Unowned {
			n++
		}
		p.mu.Unlock()
	}
	return n
}

// giveKept gives back the holds that this process keeps for its next callers.
func (c *Coordinator) giveKept() {
	var a after
	for i := range c.parts {
		p := &c.parts[i]
		now := p.lock()
		p.GiveKept(now, &a.Effects)
		p.unlock(&a)
	}
	a.do(c)
}
