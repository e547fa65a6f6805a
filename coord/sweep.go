package coord

import (
	"math/rand/v2"
	"slices"
	"time"
)

// sweep has a session's last sight of each partition. After a failover each is looked at, as Grace
// begins when one is. A partition that was answered once is not asked for again.
type sweep struct {
	mu        mutex[leafRank] // protects the fields below
	seen      []time.Time     // by partition: when the last read was sent that was answered
	graceEnds []time.Time     // the end of the Grace that it was seen in
}

// newSweep returns that of a session that begins. looked: nothing was to be noticed until now.
func newSweep(partitions int, now time.Time, looked bool) *sweep {
	x := &sweep{seen: make([]time.Time, partitions), graceEnds: make([]time.Time, partitions)}
	if looked {
		for i := range x.seen {
			x.seen[i] = now
		}
	}
	return x
}

// saw notes an answer, unless it is one to an earlier call than another one.
func (x *sweep) saw(p uint32, sent time.Time, grace time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !sent.Before(x.seen[p]) {
		x.seen[p], x.graceEnds[p] = sent, sent.Add(grace)
	}
}

// stale lists the partitions to be looked at: those last seen before the arbiter became another
// server, or before some Grace began that they are not known to be in.
func (x *sweep) stale(now, grace, other time.Time) (list []uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for p, seen := range x.seen {
		if other.After(seen) || grace.After(seen) && now.After(x.graceEnds[p]) {
			list = append(list, uint32(p))
		}
	}
	return list
}

// lookAt chooses from a list the partitions to look at now: all of this node's, and so many of the
// others, which other nodes look at.
func lookAt(list []uint32, mine func(uint32) bool, others int) (now []uint32) {
	var rest []uint32
	for _, p := range list {
		if mine(p) {
			now = append(now, p)
		} else {
			rest = append(rest, p)
		}
	}
	rand.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	return append(now, rest[:min(others, len(rest))]...)
}

// sweepOthers is the part of Grace, one in so many, in which a node looks also at the others'
// partitions.
const sweepOthers = 4

// toSweep lists the partitions to look at now, and reports whether there are more.
func (c *Coordinator) toSweep(x *sweep) (list []uint32, more bool) {
	grace, other := c.sessions.graces()
	all := x.stale(c.now(), grace, other)
	if len(all) == 0 || c.cluster == nil {
		return all, false
	}
	v := c.cluster.ring.View()
	mine := func(p uint32) bool {
		n, ok := v.Owner(p)
		return !ok || n.Gone || n.Name == c.cluster.self.name
	}
	list = lookAt(all, mine, int(time.Duration(len(c.parts))*sweepOthers*c.opts.RetryEvery/c.graceTime())+1)
	return list, len(list) < len(all)
}

// contains reports whether a sorted list has a partition.
func contains(list []uint32, p uint32) bool {
	_, ok := slices.BinarySearch(list, p)
	return ok
}
