package coord

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/ring"
)

// Close gives everything back. From now on Lock and TryLock return ErrClosed, also to those that
// wait. Close waits until ctx ends for the locks in use to be unlocked; those that are not are lost
// then, with the cause CoordClosed. With context.Background() it waits for ever for a lock that no
// caller unlocks: give it a context with a deadline. It also waits until no other session needs
// this node as a guardian: some milliseconds as a rule, and where a node has just died until that
// is buried; Cluster.Takeover and CallTimeout at most. On a Redis Cluster, and with AllReplicas, it
// waits where a node does not answer until that relies on this one no more: Cluster.Takeover and
// Margin at most, or SessionTTL without Takeover. It returns when every goroutine of the
// coordinator has ended: after ctx's end at most a few calls of the arbiter later, if functions
// that [Share] runs heed their contexts.
//
// It returns nil if everything was given back. Otherwise it returns an error that tells of the
// rest, which expires with the session. Further calls wait for the first and return the same.
func (c *Coordinator) Close(ctx context.Context) error {
	if c.life.closes.CompareAndSwap(false, true) { // no sync.Once: time stands still in a bubble of testing/synctest while a goroutine waits for one
		defer close(c.life.closed)
		c.life.closeErr = errCloseBroken
		defer c.abandon()
		if c.opts.Observe {
			c.life.closeErr = c.closeObserver()
		} else {
			c.life.closeErr = c.close(ctx)
		}
		return c.life.closeErr
	}
	<-c.life.closed
	return c.life.closeErr
}

var errCloseBroken = errors.New("coord: Close: it did not come to its end: a function of Options.Trace, or the Logger, panicked or ended its goroutine")

// abandon ends the goroutines and closes the connections if a function of the caller's has broken
// Close off. The session expires.
func (c *Coordinator) abandon() {
	if c.life.closeErr != errCloseBroken {
		return
	}
	c.life.stop(ErrClosed)
	c.awaitGoroutines()
	if s := c.sessions.current(); s != nil {
		s.stopListening()
	}
	if c.cluster != nil {
		_ = c.cluster.net.Close()
		_ = c.cluster.ring.Leave(c.life.ctx)
	}
	switch {
	case c.opts.Observe:
		_ = c.closeSpaces()
	case c.remote.ns != nil:
		_ = c.remote.ns.Close()
	}
}

func (c *Coordinator) close(ctx context.Context) error {
	close(c.life.closing)
	alone := c.lastAlone()
	c.callers.shares.close()
	for i := range c.parts {
		c.parts[i].close()
	}
	var errs []error
	if c.cluster != nil {
		if n, why := c.cluster.giveBackAll(ctx); n > 0 {
			c.debts.outlived = true
			errs = append(errs, fmt.Errorf("coord: Close: %d partitions could not be given back (%s): %w", n, why, ErrUnavailable))
		}
	}
	if n := c.awaitUnlocked(ctx); n > 0 {
		errs = append(errs, fmt.Errorf("coord: Close: %d locks were still in use: %w", n, context.Cause(ctx)))
	}
	if c.cluster != nil {
		if !c.cluster.farewell(ctx) && !c.awaitAnnounced(ctx) {
			c.debts.outlived = true
			errs = append(errs, fmt.Errorf("coord: Close: a node that has not answered may rely on what this one has announced: %w", context.Cause(ctx)))
		}
		c.cluster.outlast(ctx)
	}
	// The waiting contenders give up, and their leftovers are released.
	c.life.stop(ErrClosed)
	c.awaitGoroutines()
	// The session is not renewed any more, and to say that the node leaves may take for longer than
	// it lasts. The streams, which are not read any more, end after it: they carry messages of a
	// store that has none, and tell the guardians.
	err := c.endSession(c.lastReleases())
	if c.cluster != nil {
		_ = c.cluster.net.Close() // everything has been given away
	}
	c.forgetSession()
	if c.cluster != nil {
		_ = c.cluster.ring.Leave(ctx)
	}
	if c.remote.ns != nil {
		err = errors.Join(err, c.remote.ns.Close())
	}
	if err != nil {
		errs = append(errs, fmt.Errorf("coord: Close: %w", err))
	}
	if c.cluster != nil && len(errs) == 0 && alone {
		c.cluster.hide()
	}
	return errors.Join(errs...)
}

// lastAlone reports whether the arbiter knows no session of before the present one: it has expired
// since, or there was none. A caller may be at work yet that has lost its lock with such a session.
func (c *Coordinator) lastAlone() bool {
	s := c.sessions.current()
	return s != nil && (c.tells.stats.sessions.Load() == 1 || c.since(s.opened) > c.opts.SessionTTL+c.opts.Margin)
}

// giveBackAll gives all partitions back, before the coordinator ends. It returns how many it could
// not. One that this node let go of before counts as well, until the deadlines that it has
// announced have passed. why is of the first.
func (x *cluster) giveBackAll(ctx context.Context) (failed int, why string) {
	x.self.leaving.Store(true)
	_ = x.ring.SetState(ring.Leaving)
	x.unplaced()
	var mine []*partition
	for i := range x.c.parts {
		p := &x.c.parts[i]
		p.mu.Lock()
		if p.Leave() {
			mine = append(mine, p)
		}
		p.mu.Unlock()
	}
	// After ctx's end each is asked for once, as long as that does not take many calls' time.
	in, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(2*x.c.opts.CallTimeout, cancel) })()
	// It does not wait for the next owners for long: it may have many partitions, or these be slow.
	wait := x.c.opts.CallTimeout
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end)/4)
	}
	paced, end := context.WithTimeout(ctx, wait)
	defer end()
	x.each(mine, leavers/2, func(p *partition) {
		if paced.Err() == nil {
			x.handOver(paced, p, func() { p.demote(ctx, 0) })
		}
	})
	x.each(mine, leavers, func(p *partition) { // the rest
		if in.Err() == nil {
			p.demote(ctx, 0)
		}
	})
	for i := range x.c.parts {
		p := &x.c.parts[i]
		for {
			p.mu.Lock()
			busy, owed := p.Left(x.c.now())
			coming := p.MayGiveUp(0) // on a busy machine its goroutine may have made room before it began
			p.mu.Unlock()
			if busy && ctx.Err() == nil || coming && in.Err() == nil { // busy: begun before, by another goroutine
				time.Sleep(time.Millisecond)
				continue
			}
			if busy && owed == "" {
				owed = "a call for it is under way"
			}
			if owed != "" {
				failed++
			}
			if owed != "" && why == "" {
				why = fmt.Sprintf("partition %d: %s", p.Number(), owed)
			}
			break
		}
	}
	return failed, why
}

// unplaced waits until this node's own ring is without it. Then each partition that is given back
// can be offered to the next node. It takes the ring a moment; it is not waited for any longer than
// that.
func (x *cluster) unplaced() {
	timer := time.NewTimer(unplacedWithin)
	defer timer.Stop()
	for {
		v := x.ring.View()
		if members := v.Placement().Members(); !slices.Contains(members, x.self.name) || len(members) == 1 {
			return
		}
		select {
		case <-v.Replaced():
		case <-timer.C:
			return
		}
	}
}

const unplacedWithin = 50 * time.Millisecond

// awaitUnlocked waits until no lock is in use, then takes away those that still are. It returns
// their number.
func (c *Coordinator) awaitUnlocked(ctx context.Context) (lost int) {
	var a after
	for i := range c.parts {
		p := &c.parts[i]
		select {
		case <-p.emptied():
		case <-ctx.Done():
			p.loseAll(nil, CoordClosed, &a)
		}
	}
	a.do(c)
	return len(a.Losses)
}

// outlast waits until no session needs this node as a guardian: each has another set recorded, or
// has died and is buried. Otherwise the votes that are left could be too few for one that has just
// died, and its keys would wait for its expiry. It does not wait in Grace, when none is buried, nor
// once the arbiter has not answered a call. It waits no longer than a burial takes, and leaves a
// CallTimeout of ctx for what follows.
func (x *cluster) outlast(ctx context.Context) {
	o := &x.c.opts
	most := o.takeover() + o.CallTimeout
	if end, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(end)-o.CallTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for ctx.Err() == nil {
		s, now := x.c.sessions.current(), x.outlook()
		if s == nil || s.guarded == nil || now.Silent || now.Grace || !s.guarded.needed() {
			return
		}
		sleep(ctx, o.takeover()/looksPerLeave)
	}
}

// looksPerLeave is how often in Takeover outlast looks.
const looksPerLeave = 300

// farewell asks the other nodes for an answer, and waits for it until ctx ends, for one CallTimeout
// at most. With the answers this node has read their messages from before they knew that it serves
// nothing any more: a hold that was given back meanwhile may have got a row, which is this node's
// to remove. And it asks once more: with the second answers its replies to those messages have left
// it. It reports whether each node that lives has answered: then no grant is on its way to one.
func (x *cluster) farewell(ctx context.Context) (all bool) {
	ctx, cancel := context.WithTimeout(ctx, x.c.opts.CallTimeout)
	defer cancel()
	answered := make(map[string]bool)
	for range 2 {
		for l, parted := range x.pingToPart() {
			select {
			case <-parted:
				answered[l.Node()] = !l.Down()
			case <-ctx.Done():
				return false
			}
		}
	}
	return !slices.ContainsFunc(x.ring.View().Nodes(), func(n ring.Node) bool {
		return n.Name != x.self.name && !n.Unlisted && !n.Incompatible && !answered[n.Name] && !x.members.gone(n.Name)
	})
}

// awaitAnnounced waits until no holder relies on what this node has announced, before its session
// is closed: no round waits for a session that is closed (E3). It reports false if ctx ends
// earlier: then the session is left to be buried, or to expire.
func (c *Coordinator) awaitAnnounced(ctx context.Context) bool {
	s := c.sessions.current()
	if s == nil || s.rounds == nil || c.debts.outlived || !guard.PassWaits {
		return true
	}
	for until := c.announcedEnds(); !lease.Over(until, c.now()); {
		if !sleep(ctx, max(until.Sub(c.now()), time.Millisecond)) {
			return false
		}
	}
	return true
}

// pingToPart pings all nodes, and returns a channel for each that is closed when it has answered,
// or its stream has ended.
func (x *cluster) pingToPart() map[*link]chan struct{} {
	parted := make(map[*link]chan struct{})
	for _, l := range x.all() {
		done := make(chan struct{})
		l.mu.Lock()
		l.pingNow()
		l.beat.last, l.beat.parted = l.beat.pings, done
		if l.down.Load() { // Down may have been there before
			l.part()
		}
		l.mu.Unlock()
		l.s.Flush()
		parted[l] = done
	}
	return parted
}

// lastReleases gives back the remaining holds, when no goroutine is left to do it.
func (c *Coordinator) lastReleases() error {
	if c.remote.ns == nil {
		return nil
	}
	for _, d := range c.debts.doubts.all() {
		c.debts.releases.add(d.p.ReleaseOf(d.key, d.id))
	}
	if c.sessions.current() == nil { // the rest has ended with its session
		return nil
	}
	if err := c.flushReleases(); err != nil {
		return fmt.Errorf("not all locks could be given back: %w: %w", ErrUnavailable, err)
	}
	return nil
}

// endSession ends the session, unless not all could be given back, as err says. One that is not
// closed is buried by its guardians, or expires: so they are told last.
func (c *Coordinator) endSession(err error) error {
	s := c.sessions.current()
	if s == nil {
		return err
	}
	s.stopListening()
	if err != nil || c.debts.outlived {
		return err
	}
	for range 2 { // else its node is taken for alive until it expires
		if err = c.closeSession(s); err == nil {
			s.guarded.leave()
			return nil
		}
	}
	return fmt.Errorf("the session could not be closed: %w: %w", ErrUnavailable, err)
}

// forgetSession forgets the session, when no other node can ask for anything in its name.
func (c *Coordinator) forgetSession() {
	s := c.sessions.current()
	if s == nil {
		return
	}
	c.releaseDisclaimed(s)
	c.sessions.set(nil)
	if f := c.opts.Trace.Session; f != nil {
		f(SessionInfo{ID: s.ID, Ended: true})
	}
}
