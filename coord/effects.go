package coord

import (
	"slices"

	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/peer"
)

// after has the deferred effects of events, and the streams that carry their frames. It may serve
// several partitions, one after the other.
type after struct {
	lease.Effects
	in    *peer.Stream // that has the read loop in which this happens, or nil
	flush *peer.Stream // to be written
	rest  []*peer.Stream
	soon  *peer.Stream // to be written, but with the next frames if there are any soon
}

// carryOut carries out the ordered effects. p.mu is held.
func (a *after) carryOut(p *partition, o *lease.Ordered) {
	if o.Rare {
		carryOutRare(p, o)
	}
	for i := range o.Frames {
		a.send(o.Frames[i].To.(*link), &o.Frames[i].Frame)
	}
	p.Done()
}

// carryOutRare carries out all but the frames. p.mu is held.
func carryOutRare(p *partition, o *lease.Ordered) {
	for i := range o.Losses {
		o.Losses[i].End(lossOf(&o.Losses[i])) // safe, as it runs no code of the user's
	}
	if o.Acquire {
		p.startAcquiring()
	}
	for _, x := range o.Starts {
		p.newContender(x).start(0)
	}
	for _, x := range o.Ends {
		x.Runner.(*contender).end()
	}
	for _, x := range o.Pokes {
		x.Runner.(*contender).poke()
	}
	for _, d := range o.Doubts {
		p.c.debts.doubts.add(doubt{p, d.Key, d.ID, d.When})
	}
	if o.Linger != nil {
		p.c.debts.lingers.add(lingering{p: p, key: o.Linger})
	}
	if len(o.Rumors)+len(o.Again) > 0 {
		p.rumored(o.Rumors, o.Again)
	}
	if len(o.Disclaimed) > 0 {
		p.c.debts.disclaimed.add(o.Disclaimed...)
	}
}

// send puts a frame on a stream. Pass, Queue and Send of a stream append to one buffer, in the
// order of the calls, and differ in its writer: with Pass the read loop once its batch is done,
// with Queue the Flush or FlushSoon that do calls, with Send the caller. They fail where the stream
// has ended, or has so much to write that it ends now. cluster.Down is called then, and looks after
// the frames on their way, so no caller looks at their errors.
func (a *after) send(l *link, f *peer.Frame) {
	if a.in != nil {
		_ = a.in.Pass(l.s, f)
		return
	}
	_ = l.s.Queue(f)
	switch {
	case a.Idle && f.Kind == peer.Release && (a.soon == nil || a.soon == l.s):
		a.soon = l.s
	case a.flush == nil:
		a.flush = l.s
	case a.flush != l.s && !slices.Contains(a.rest, l.s):
		a.rest = append(a.rest, l.s)
	}
}

// do carries out the deferred effects. c's partitions must be unlocked. The user's functions come
// last: they may take long.
func (a *after) do(c *Coordinator) {
	if a.End != nil {
		a.End(ErrUnlocked)
	}
	if a.Wake != nil {
		a.Wake.Value.Ready <- struct{}{}
	}
	for _, w := range a.Wakes {
		w.Value.Ready <- struct{}{}
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
	if !a.Sooner.IsZero() {
		c.sooner.add(a.Sooner)
	}
	if c.cluster != nil && a.Adopt {
		c.cluster.adoptNow()
	}
	if c.cluster != nil && a.Balance {
		c.cluster.poke()
	}
	if c.cluster != nil && a.Absent {
		c.cluster.doubtSoon()
	}
	if len(a.Releases) > 0 {
		c.debts.releases.add(a.Releases...)
	}
	if len(a.Heard) > 0 {
		c.debts.releases.addHeard(a.Heard)
	}
	if len(a.Losses) > 0 {
		c.tellLosses(a.Losses)
	}
}

// tellLosses counts locks that were lost, and tells logger and trace. Their contexts have ended
// already.
func (c *Coordinator) tellLosses(losses []lease.Loss) {
	errs := make([]*LossError, len(losses))
	for i := range losses {
		errs[i] = lossOf(&losses[i])
	}
	c.tells.reports.add(errs)
	for _, l := range errs {
		c.tells.stats.lost[l.Cause].Add(1)
		if f := c.opts.Trace.Lost; f != nil {
			f(*l)
		}
	}
}

// lossOf returns the error of a loss.
func lossOf(l *lease.Loss) *LossError {
	return &LossError{Key: namedKey(l.Key), Fence: Fence(l.Fence), Cause: LossCause(l.Cause), Reason: l.Why}
}
