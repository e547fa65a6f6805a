package coord

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/ring"
)

// watchOverdue looks at this process's waits and holds, and logs each long wait and each long hold
// once.
func (c *Coordinator) watchOverdue() {
	var waits, holds []lease.Overdue
	now := max(c.moment(), 1)
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		p.Overdue(now, p.letIn, c.opts.LongWait, c.opts.LongHold, func(x lease.Overdue) {
			if x.Waiting > 0 {
				waits = append(waits, x)
			} else {
				holds = append(holds, x)
			}
		})
		p.mu.Unlock()
	}
	isExpected := func(x lease.Overdue) bool { return c.tells.expected.has(x.Key) }
	waits = perKey(slices.DeleteFunc(waits, isExpected))
	for i := range waits {
		if key, m := fallback.Split(waits[i].Key); m.Reads() { // they wait together, as one
			n, _ := c.waitToRead(key)
			waits[i].Waiting = max(waits[i].Waiting, n)
		}
	}
	c.reportWaits(waits, now)
	c.reportHolds(perKey(slices.DeleteFunc(holds, isExpected)), now)
}

// perKey sorts by age, the oldest first, and merges the names of a key that are of the same kind:
// of permits a process may wait for several, and have several.
func perKey(all []lease.Overdue) []lease.Overdue {
	slices.SortFunc(all, func(a, b lease.Overdue) int { return cmp.Compare(a.Since, b.Since) })
	type kind struct {
		key            string
		reads, permits bool
	}
	first := make(map[kind]int)
	kept := all[:0]
	for _, x := range all {
		key, m := fallback.Split(x.Key)
		k := kind{key, m.Reads(), m.Kind == fallback.Permits}
		if i, known := first[k]; known {
			kept[i].Waiting += x.Waiting
			continue
		}
		first[k] = len(kept)
		kept = append(kept, x)
	}
	return kept
}

// detailed is how many keys of one look have a record each. The others share one.
const detailed = 10

func (c *Coordinator) reportWaits(waits []lease.Overdue, now lease.Moment) {
	var names map[string]string
	if slices.ContainsFunc(waits, func(x lease.Overdue) bool { return x.Session != "" }) {
		names = c.processes()
	}
	for _, x := range waits[:min(len(waits), detailed)] {
		holder := names[x.Session]
		if x.Here {
			holder = c.opts.Name
		}
		c.opts.Logger.Warn("holdfast: callers have waited for long", "key", logged(namedKey(x.Key)), "mode", optional(modeOf(x.Key)), "waiting", x.Waiting,
			"since", c.began.Add(x.Since), "waited", (now - x.Since).Round(time.Millisecond), "reason", orLocked(x.Reason),
			"holder", optional(holder), "held", optional(x.Held.Round(time.Millisecond)), "owner", optional(ring.Process(x.Owner)),
			"caller", optional(placeIn(x.Tag, 0)), "holder_caller", optional(placeIn(x.HeldTag, x.Fence)))
	}
	if more := len(waits) - detailed; more > 0 {
		c.opts.Logger.Warn("holdfast: callers have waited for long for more keys", "count", more)
	}
}

func (c *Coordinator) reportHolds(holds []lease.Overdue, now lease.Moment) {
	for _, x := range holds[:min(len(holds), detailed)] {
		c.opts.Logger.Warn("holdfast: a lock has been held for long", "key", logged(namedKey(x.Key)), "mode", optional(modeOf(x.Key)), "fence", Fence(x.Fence),
			"since", c.began.Add(x.Since), "held", (now - x.Since).Round(time.Millisecond), "caller", optional(placeIn(x.Tag, x.Fence)))
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
	ns := c.remote.namespace.Load()
	if ns == nil {
		return names
	}
	ctx, cancel := context.WithTimeout(c.life.ctx, c.opts.CallTimeout)
	defer cancel()
	start := c.now()
	all, err := (*ns).List(ctx)
	c.called(OpList, start, err)
	for session, info := range all.Sessions {
		if k := decodeCard(info); k.Name != "" {
			names[session] = k.Name
		}
	}
	return names
}
