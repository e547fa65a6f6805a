package debug

import (
	"context"
	"time"
)

// looks asks the nodes once a second at most.
type looks struct {
	ask func(context.Context) *Overview

	turn  chan struct{} // has an element while the nodes are asked; protects what follows
	last  *Overview
	asked time.Time // the end of the questions of last, so that slow nodes are not asked again at once
}

// look asks the nodes, or returns what they have told within the last second; nil if ctx ends before.
func (l *looks) look(ctx context.Context) *Overview {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	defer func() { <-l.turn }()
	if l.last == nil || time.Since(l.asked) >= time.Second {
		l.last = l.ask(context.WithoutCancel(ctx)) // others get the same answer
		l.asked = time.Now()
	}
	return l.last
}
