package coord

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/peer"
	"github.com/holdfast-go/holdfast/ring"
)

// yours tells a node that it should own a partition, which as a rule has no owner now: it asks the
// arbiter. since is the epoch since which it has none, 0 if that is not known. With it that node
// need not look at the record first, and answers when it has the partition.
func (x *cluster) yours(p, since uint32) {
	flag := uint8(lease.FlagYours)
	if x.self.leaving.Load() {
		flag = lease.FlagLeft
	}
	if l, ok := x.route(p).Link.(*link); ok {
		if since > 0 {
			x.self.handovers.told(p, l)
		}
		_ = l.s.Send(&peer.Frame{Kind: peer.Moved, Flags: flag, Partition: p, Epoch: since})
	}
}

// balancers is how many partitions are taken at the same time. Fewer are given back, as each has no
// owner until its next one has made a call: leavers by a node that leaves, half of that while it
// waits for the next owners, and givers by all nodes together to one that comes.
const balancers, leavers, givers = 16, 4, 8

// balance makes this node own the partitions that it should own, whenever something has changed,
// until the coordinator stops.
func (x *cluster) balance() {
	c := x.c
	timer := time.NewTimer(0)
	defer timer.Stop()
	var gives giving
	for {
		select {
		case <-timer.C:
		case <-x.wakes.tick:
		case <-c.life.ctx.Done():
			return
		}
		next := c.opts.RenewEvery
		left := x.balanceOnce(&gives)
		if x.tellSettled() || left { // callers of Settled are left, or something to do: streams come and go without a word
			next = c.opts.RetryEvery / 2
		}
		timer.Reset(next)
	}
}

// balanceOnce reports whether there is something left to do.
func (x *cluster) balanceOnce(gives *giving) (left bool) {
	c := x.c
	if x.self.leaving.Load() || c.sessions.current() == nil {
		return false
	}
	duties := x.duties()
	x.each(duties[lease.DutyLook], balancers, func(p *partition) {
		defer func() { // also if a trace function ends the goroutine
			p.mu.Lock()
			defer p.mu.Unlock()
			p.EndLook()
		}()
		if s := c.sessions.current(); s != nil {
			p.look(s)
		}
	})
	left = x.give(gives, duties[lease.DutyGive], 0)
	for _, chunk := range inTurns(wantedFirst(duties[lease.DutyTake])) {
		takeable, reads := x.takeable(chunk)
		x.each(takeable, balancers, func(p *partition) {
			p.mu.Lock()
			begun := p.BeginAcquire(reads[p.Number()])
			p.mu.Unlock()
			if begun {
				p.acquireOwnership()
			}
		})
	}
	return left || len(duties[lease.DutyLook])+len(duties[lease.DutyTake])+len(duties[lease.DutyWait]) > 0
}

// firstReads is how many partitions are read, and taken, before all others: callers may wait for the
// first ones.
const firstReads = 64

// inTurns splits partitions into those that are read with one call.
func inTurns(list []*partition) (chunks [][]*partition) {
	n := min(firstReads, len(list))
	if n > 0 {
		chunks = append(chunks, list[:n])
	}
	return slices.AppendSeq(chunks, slices.Chunk(list[n:], readsPerCall))
}

// wantedFirst puts the partitions in front that callers wait for.
func wantedFirst(list []*partition) []*partition {
	var wanted, others []*partition
	for _, p := range list {
		p.mu.Lock()
		waits := p.HasWaiters()
		p.mu.Unlock()
		if waits {
			wanted = append(wanted, p)
		} else {
			others = append(others, p)
		}
	}
	return append(wanted, others...)
}

// duties lists the partitions by duty.
func (x *cluster) duties() (lists [lease.Duties][]*partition) {
	v, now := x.ring.View(), x.c.now()
	outlook := x.outlook()
	agreed := make(map[string]bool) // by node
	for i := range x.c.parts {
		p := &x.c.parts[i]
		at := lease.Placement{Outlook: outlook}
		if n, ok := v.Owner(p.Number()); ok {
			at.Known, at.Mine = true, n.Name == x.self.name && x.takes()
			if _, known := agreed[n.Name]; !known {
				agreed[n.Name] = v.Stable() && x.agreed(n, v)
			}
			at.Agreed = agreed[n.Name]
		}
		p.mu.Lock()
		d := p.Duty(at, now)
		p.mu.Unlock()
		if d != lease.DutyNone {
			lists[d] = append(lists[d], p)
		}
	}
	return lists
}

// agreed reports whether a node has the same placement as this one, and does not leave (rule 4).
func (x *cluster) agreed(n *ring.Node, v *ring.View) bool {
	s := x.net.Stream(n.Name)
	if s == nil {
		return false
	}
	l, ok := s.Data.(*link)
	return ok && x.agreedWith(l, v.Fingerprint())
}

func (x *cluster) agreedWith(l *link, ring uint64) bool {
	return l.agrees(ring) && !x.members.gone(l.Node())
}

// takeable leaves out partitions with an owner that is not known to be dead: one read for many
// tells. records are of those that need not be looked at again.
func (x *cluster) takeable(list []*partition) (good []*partition, records map[uint32]fallback.Expect) {
	c := x.c
	records = make(map[uint32]fallback.Expect, len(list))
	reads := make([]fallback.Read, len(list))
	for i, p := range list {
		reads[i].Partition = p.Number()
	}
	ctx, cancel := context.WithTimeout(c.life.ctx, c.opts.CallTimeout)
	defer cancel()
	start := x.c.now()
	var failed error
	bad := 0
	for i, s := range c.remote.ns.Verify(ctx, reads) {
		p := list[i]
		switch {
		case s.Err != nil:
			failed = s.Err
			bad++
		case s.Record.Grace > 0:
		case s.Record.Owner == c.sessions.id():
			good = append(good, p)
		case s.Record.Owner == "":
			good, records[p.Number()] = append(good, p), fallback.Expect{Epoch: s.Record.Epoch}
		default:
			if _, dead := c.sessions.others.ask(nil, c, s.Record.Owner); dead {
				good, records[p.Number()] = append(good, p), fallback.Expect{Epoch: s.Record.Epoch, Owner: s.Record.Owner, OwnerDead: true}
			} else {
				p.pressOwner(s.Record)
			}
		}
	}
	c.calledMany(OpVerify, len(reads), bad, start, failed)
	return good, records
}

// each does not wait for calls that do not come to an end.
func (x *cluster) each(list []*partition, n int, f func(*partition)) {
	spread(x.c, &x.c.life.work, list, n, f)
}
