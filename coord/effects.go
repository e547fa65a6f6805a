package coord

import (
	"context"
	"slices"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/peer"
)

// after collects what has to be done once the mutex is free again.
type after struct {
	wake     *waiter
	more     []*waiter // to be woken as well
	cancel   context.CancelCauseFunc
	releases []fallback.Release
	losses   []*LossError // their contexts have ended already

	in    *peer.Stream // in whose read loop this happens, or nil
	flush *peer.Stream // to be written
	rest  []*peer.Stream
	soon  *peer.Stream // to be written, but not before what comes next
	idle  bool         // nobody else is known to wait for what is given back
	adopt bool         // holds have lost their owner
}

// send puts a frame on a stream, in the order in which it was decided; it is written by do.
func (a *after) send(l *link, f peer.Frame) {
	if a.in != nil {
		_ = a.in.Pass(l.s, &f)
		return
	}
	_ = l.s.Queue(&f)
	switch {
	case a.idle && f.Kind == peer.Release && (a.soon == nil || a.soon == l.s):
		a.soon = l.s
	case a.flush == nil:
		a.flush = l.s
	case a.flush != l.s && !slices.Contains(a.rest, l.s):
		a.rest = append(a.rest, l.s)
	}
}

// wakeUp is for a waiter that has its turn, or an error.
func (a *after) wakeUp(w *waiter) {
	if a.wake == nil {
		a.wake = w
	} else {
		a.more = append(a.more, w)
	}
}

// do does it. c's partitions must be unlocked. The user's functions come last: they may take long.
func (a *after) do(c *Coordinator) {
	if a.cancel != nil {
		a.cancel(ErrUnlocked) // before the next holder begins
	}
	if a.wake != nil {
		a.wake.Value.ready <- struct{}{}
	}
	for _, w := range a.more {
		w.Value.ready <- struct{}{}
	}
	if a.flush != nil {
		a.flush.Flush()
	}
	for _, s := range a.rest {
		s.Flush()
	}
	if a.soon != nil {
		a.soon.FlushSoon()
	}
	if a.adopt && c.cluster != nil {
		c.cluster.adoptNow()
	}
	if len(a.releases) > 0 {
		c.releases.add(a.releases...)
	}
	c.reports.add(a.losses)
	for _, l := range a.losses {
		c.stats.lost[l.Cause].Add(1)
		if f := c.opts.Trace.Lost; f != nil {
			f(*l)
		}
	}
}
