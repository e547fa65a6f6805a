package coord

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/peer"
	"github.com/holdfast-go/holdfast/ring"
)

// yours tells the node that should own a partition that nobody does now.
func (x *cluster) yours(p uint32) {
	if l := x.route(p).link; l != nil {
		_ = l.s.Send(&peer.Frame{Kind: peer.Moved, Flags: flagYours, Partition: p})
	}
}

// balancers is how many partitions are taken or given back at the same time.
const balancers = 16

// balance brings what this node owns to what it should own, whenever something has changed, until the coordinator stops.
func (x *cluster) balance() {
	c := x.c
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-x.tick:
		case <-c.ctx.Done():
			return
		}
		next := c.opts.RenewEvery
		left := x.balanceOnce()
		if x.settle() || left { // streams come and go without a word
			next = c.opts.RetryEvery / 2
		}
		timer.Reset(next)
	}
}

// keepDoubting asks after the holders that are in the way of others, until the coordinator stops. It does not wait for the balance:
// a cluster that does not come to rest, or whose arbiter does not take a partition back, has its dead, too.
func (x *cluster) keepDoubting() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-x.dead:
		case <-x.c.ctx.Done():
			return
		}
		next := x.c.opts.RenewEvery
		if x.doubt() {
			next = x.c.opts.RetryEvery / 2
		}
		timer.Reset(next)
	}
}

// doubt asks after the holders that are in the way of others. It reports whether one cannot be asked.
func (x *cluster) doubt() (left bool) {
	c, now := x.c, x.c.now()
	var a after
	used := make(usage)
	defer func() { x.settleQuotas(used, now) }()
	for i := range c.parts {
		p := &c.parts[i]
		suspects, lonely := p.doubtful(now, used, &a)
		for _, id := range suspects {
			left = true
			if _, dead := c.liveness.ask(nil, c, id.Session); dead {
				p.bury(id.Session, &a)
				lonely = false
			}
		}
		if lonely {
			p.giveUp(0, 2*c.opts.RetryEvery)
		}
	}
	a.do(c)
	return left
}

// balanceOnce reports whether there is something left to do.
func (x *cluster) balanceOnce() (left bool) {
	c := x.c
	if x.leaving.Load() || c.sessions.current() == nil {
		return false
	}
	duties := x.duties()
	x.each(duties[dutyLook], func(p *partition) {
		if s := c.sessions.current(); s != nil {
			p.look(s)
		}
		p.mu.Lock()
		step(&p.checking, checkingNothing, nextCheckings[:])
		p.mu.Unlock()
	})
	x.each(duties[dutyGive], func(p *partition) { p.demote(c.ctx, 0) })
	x.each(x.takeable(duties[dutyTake]), func(p *partition) {
		p.mu.Lock()
		begun := p.idle() && p.ending == endingNot
		if begun {
			step(&p.phase, phaseAcquiring, nextPhases[:])
		}
		p.mu.Unlock()
		if begun {
			p.acquireOwnership()
		}
	})
	return len(duties[dutyLook])+len(duties[dutyTake])+len(duties[dutyWait]) > 0
}

// A duty is what the balance has to do with a partition.
type duty uint8

// The duties.
const (
	dutyNone duty = iota
	dutyLook      // to find out whether the record names this node
	dutyTake      // to acquire the partition
	dutyGive      // to demote it
	dutyWait      // for a call that is under way, or until a call is due
)

// duties lists the partitions by duty.
func (x *cluster) duties() (lists [dutyWait + 1][]*partition) {
	v, now := x.ring.View(), x.c.now()
	grace := x.c.sessions.sweepSince(now.Add(-x.c.graceTime()))
	for i := range x.c.parts {
		p := &x.c.parts[i]
		if d := x.duty(p, v, grace, now); d != dutyNone {
			lists[d] = append(lists[d], p)
		}
	}
	return lists
}

// duty decides about one partition. In Grace nothing is demoted: the arbiter would refuse it.
func (x *cluster) duty(p *partition, v *ring.View, grace bool, now time.Time) duty {
	n, ok := v.Owner(p.number)
	mine := ok && n.Name == x.name
	p.mu.Lock()
	defer p.mu.Unlock()
	idle := p.idle()
	switch {
	case idle && p.naming != namedElsewhere && past(p.announcedEnds, now) && (!mine || now.Before(p.notBefore)):
		if now.Sub(p.lookedAt) <= x.c.opts.RetryEvery {
			return dutyWait
		}
		p.lookedAt = now
		step(&p.checking, checkingRecord, nextCheckings[:])
		return dutyLook
	case idle && mine && now.After(p.notBefore):
		return dutyTake
	case idle && mine:
		return dutyWait
	case p.own != nil && !grace && p.own.seq >= lastSeq:
		return dutyGive
	case ok && !mine && p.own != nil && !grace && v.Stable() && x.agreed(n, v) && x.confirmedLately(p.own, now):
		return dutyGive
	case ok && !mine && p.own != nil, mine && p.own == nil:
		return dutyWait
	}
	return dutyNone
}

// idle tells whether this node has nothing to do with the partition, and is not about to. p.mu is held.
func (p *partition) idle() bool {
	return p.phase == phaseUnowned && p.checking == checkingNothing
}

// confirmedLately reports whether the arbiter has confirmed the ownership of late. If it has not, the partition is not given
// back now: no node could serve it until the arbiter answers again.
func (x *cluster) confirmedLately(o *ownership, now time.Time) bool {
	return now.Sub(o.confirmed) < x.c.opts.RenewEvery+2*x.c.opts.CallTimeout
}

// agreed tells whether a node has the same placement as this one (rule 4).
func (x *cluster) agreed(n *ring.Node, v *ring.View) bool {
	s := x.net.Stream(n.Name)
	if s == nil {
		return false
	}
	l, ok := s.Data.(*link)
	return ok && l.agrees(v.Fingerprint())
}

// takeable leaves out partitions that somebody owns who is not known to be dead: one read for many tells.
func (x *cluster) takeable(list []*partition) []*partition {
	c := x.c
	var good []*partition
	for chunk := range slices.Chunk(list, readsPerCall) {
		reads := make([]fallback.Read, len(chunk))
		for i, p := range chunk {
			reads[i].Partition = p.number
		}
		ctx, cancel := context.WithTimeout(c.ctx, c.opts.CallTimeout)
		start := x.c.now()
		var failed error
		bad := 0
		for i, s := range c.ns.Verify(ctx, reads) {
			p := chunk[i]
			switch {
			case s.Err != nil:
				failed = s.Err
				bad++
			case s.Record.Grace > 0:
			case s.Record.Owner == "" || s.Record.Owner == c.sessions.id():
				good = append(good, p)
			default:
				if _, dead := c.liveness.ask(nil, c, s.Record.Owner); dead {
					good = append(good, p)
				} else {
					p.pressOwner(s.Record)
				}
			}
		}
		cancel()
		c.calledMany(OpVerify, len(reads), bad, start, failed)
	}
	return good
}

// each does not wait for calls that do not come to an end.
func (x *cluster) each(list []*partition, f func(*partition)) {
	spread(x.c, &x.c.work, list, balancers, f)
}

// giveBackAll gives all partitions back, before the coordinator ends. It returns how many it could not, or could not have before they
// lapsed: others must not get them before what this node has announced has passed.
func (x *cluster) giveBackAll(ctx context.Context) (failed int) {
	x.leaving.Store(true)
	_ = x.ring.SetState(ring.Leaving)
	var mine []*partition
	for i := range x.c.parts {
		p := &x.c.parts[i]
		p.mu.Lock()
		step(&p.ending, endingLeaving, nextEndings[:])
		if p.own != nil {
			mine = append(mine, p)
		}
		p.mu.Unlock()
	}
	// After ctx's end each is asked for once, as long as that does not take many calls' time.
	in, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(2*x.c.opts.CallTimeout, cancel) })()
	x.each(mine, func(p *partition) {
		if in.Err() == nil {
			p.demote(ctx, 0)
		}
	})
	for i := range x.c.parts {
		p := &x.c.parts[i]
		for {
			p.mu.Lock()
			busy, owed := p.phase == phaseDemoting || p.phase == phaseAcquiring, p.naming == namedSurely || p.own != nil || !past(p.reliedUntil, x.c.now())
			p.mu.Unlock()
			if busy && ctx.Err() == nil { // begun before, by somebody else
				time.Sleep(time.Millisecond)
				continue
			}
			if busy || owed {
				failed++
			}
			break
		}
	}
	return failed
}
