package sim

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// Mute implements [fallback.Mute].
func (n *space) Mute() bool { return n.c.w.cfg.Mute || n.c.w.cfg.Observed }

// Carry implements [fallback.Courier]. A process knows the effects of its call when the call has
// been answered.
func (n *space) Carry(send fallback.Sender) {
	n.Namespace.(fallback.Courier).Carry(func(session string, m fallback.Message) {
		f := n.c.fate()
		if !f.message {
			return
		}
		n.c.w.carried.Add(1)
		time.AfterFunc(f.back, func() {
			if n.c.clock.wait(); !n.c.of.dead.Load() {
				send(session, m)
			}
		})
	})
}

// tell gives the node a message, if it listens.
func (c *client) tell(m fallback.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if hear := c.hear; hear != nil {
		go hear(m)
	}
}

// Listen ends the subscription that its caller does not hear of.
func (n *space) Listen(ctx context.Context, session string, handle func(fallback.Message)) (func(), error) {
	var begun func()
	stop, err := through(n.c, ctx, func(ctx context.Context) (stop func(), err error) {
		one := make(chan struct{}, 1) // messages come one at a time; time goes on for those that wait while the node stands still
		hear := func(m fallback.Message) {
			if n.c.fate().message {
				n.c.clock.wait()
				one <- struct{}{}
				defer func() { <-one }()
				handle(m)
			}
		}
		if begun = func() {}; !n.Mute() {
			begun, err = n.Namespace.Listen(ctx, session, hear)
		}
		n.c.mu.Lock()
		defer n.c.mu.Unlock()
		n.c.hear = hear
		return begun, err
	})
	if stop == nil && begun != nil {
		begun()
	}
	return stop, err
}
