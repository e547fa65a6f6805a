package coord

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/handoff"
)

// An overdue is a key that a caller of this process has waited for, or held, for longer than Options.LongWait or LongHold.
type overdue struct {
	key    string
	since  moment // when the wait or the lock began, or was first seen
	callAt string // the place in the program, if that is recorded

	// Of a wait.
	waiting int           // callers that have waited for so long and were not told of before
	reason  error         // why the key is not to be had
	here    bool          // this process holds it
	session string        // that holds it; empty if unknown
	held    time.Duration // for so long, if this process holds it and that is known
	heldAt  string        // and where it was locked
	owner   string        // node that was asked for the key, and knows who has it

	fence uint64 // of a lock
}

// told marks what a record has been written of: no moment is as late.
const told moment = 1<<63 - 1

// watchOverdue looks at what this process waits for and holds, and logs each long wait and each long hold once. It stamps
// what it sees for the first time, so that Lock and Unlock need not.
func (c *Coordinator) watchOverdue() {
	var waits, holds []overdue
	now := max(c.moment(), 1)
	for i := range c.parts {
		c.parts[i].overdue(now, &waits, &holds)
	}
	isExpected := func(x overdue) bool { return c.expected.has(x.key) }
	c.reportWaits(slices.DeleteFunc(waits, isExpected), now)
	c.reportHolds(slices.DeleteFunc(holds, isExpected), now)
}

// overdue appends the partition's keys.
func (p *partition) overdue(now moment, waits, holds *[]overdue) {
	wait, hold := p.c.opts.LongWait, p.c.opts.LongHold
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.entries {
		if e.q.State() == handoff.Turn {
			t := e.turn
			if t.seen != t.fence {
				t.seen, e.since = t.fence, now
				if t.began != unmeasured {
					e.since = t.began
				}
			}
			if hold > 0 && e.since != told && now-e.since >= hold {
				*holds = append(*holds, overdue{key: e.key, since: e.since, fence: t.fence, callAt: p.callers[e].place(t.fence)})
				e.since = told
			}
		}
		if wait > 0 && e.q.Waiting() > 0 {
			if x := p.longWaits(e, now); x.waiting > 0 {
				*waits = append(*waits, x)
			}
		}
	}
}

// longWaits counts the callers that have waited for too long since it was called last.
func (p *partition) longWaits(e *entry, now moment) overdue {
	x := overdue{key: e.key, since: now, reason: e.reason()}
	e.q.Any(func(w *waiter) bool {
		switch s := w.Value; {
		case s.since == 0:
			s.since = now
		case s.since != told && now-s.since >= p.c.opts.LongWait:
			if x.waiting == 0 {
				x.since, x.callAt = s.since, s.call.place(0)
			}
			x.waiting++
			s.since = told
		}
		return false
	})
	if x.waiting == 0 {
		return x
	}
	switch {
	case e.q.State() == handoff.Turn:
		x.here, x.heldAt = true, p.callers[e].place(e.turn.fence)
		if e.since != told {
			x.held = now - e.since
		}
	case e.g != nil:
		x.session = e.g.holder.Session
	case e.forward.link != nil:
		x.owner = e.forward.link.s.Node()
	case e.acq != nil:
		x.session = e.acq.holder
	}
	return x
}

// detailed is how many keys of one look have a record each. The others share one.
const detailed = 10

func (c *Coordinator) reportWaits(waits []overdue, now moment) {
	slices.SortFunc(waits, func(a, b overdue) int { return cmp.Compare(a.since, b.since) })
	var names map[string]string
	if slices.ContainsFunc(waits, func(x overdue) bool { return x.session != "" }) {
		names = c.processes()
	}
	for _, x := range waits[:min(len(waits), detailed)] {
		holder := names[x.session]
		if x.here {
			holder = c.opts.Name
		}
		c.opts.Logger.Warn("holdfast: callers have waited for long", "key", show(x.key), "waiting", x.waiting,
			"since", c.began.Add(x.since), "waited", (now - x.since).Round(time.Millisecond), "reason", x.reason,
			"holder", holder, "held", x.held.Round(time.Millisecond), "owner", processName(x.owner), "caller", x.callAt, "holder_caller", x.heldAt)
	}
	if more := len(waits) - detailed; more > 0 {
		c.opts.Logger.Warn("holdfast: callers have waited for long for more keys", "count", more)
	}
}

func (c *Coordinator) reportHolds(holds []overdue, now moment) {
	slices.SortFunc(holds, func(a, b overdue) int { return cmp.Compare(a.since, b.since) })
	for _, x := range holds[:min(len(holds), detailed)] {
		c.opts.Logger.Warn("holdfast: a lock has been held for long", "key", show(x.key), "fence", Fence(x.fence),
			"since", c.began.Add(x.since), "held", (now - x.since).Round(time.Millisecond), "caller", x.callAt)
	}
	if more := len(holds) - detailed; more > 0 {
		c.opts.Logger.Warn("holdfast: more locks have been held for long", "count", more)
	}
}

// processes returns the names of the processes, by session, as far as they are known.
func (c *Coordinator) processes() map[string]string {
	names := make(map[string]string)
	for _, n := range c.Nodes() {
		names[n.Session] = n.Name
	}
	ns := c.namespace.Load()
	if ns == nil {
		return names
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.opts.CallTimeout)
	defer cancel()
	start := c.now()
	all, err := (*ns).List(ctx)
	c.called(OpList, start, err)
	for session, info := range all {
		if k := decodeCard(info); k.Name != "" {
			names[session] = k.Name
		}
	}
	return names
}
