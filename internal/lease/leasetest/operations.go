package leasetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

func (n *Node) sendContend(key string) *call {
	i := slices.IndexFunc(n.running, func(x *lease.Contender) bool { return x.Name == key })
	if i < 0 || n.dead {
		return nil
	}
	c := &call{contender: n.running[i], session: n.session}
	n.event(func(_ time.Time, fx *lease.Effects) {
		id, _, wait, ok := n.P.Begin(c.contender, n.session, fx)
		if !ok {
			c = nil
			return
		}
		c.lock = fallback.LockRequest{Key: key, Me: id, Block: lease.Block, Wait: wait}
	})
	return c
}

// executeContend locks a key, and evicts the holder if its session is dead (rule 2).
func executeContend(w *World, n *Node, c *call) {
	ans := w.record.Lock(w.moment(), c.lock, nil)
	if ans.Verdict == fallback.Held && w.isDead(ans.Holder.Session) {
		c.lock.Evict = ans.Holder.Identity
		ans = w.record.Lock(w.moment(), c.lock, nil)
	}
	c.answer = ans
}

func (n *Node) answerContend(c *call, now time.Time, fx *lease.Effects) {
	n.hears("%v %s", c.answer.Verdict, c.key)
	x := c.contender
	switch r := c.answer.Record; c.answer.Verdict {
	case fallback.Granted:
		n.P.Install(x, c.session, c.answer.Token, c.answer.Contended, c.sent, now, fx)
	case fallback.Owned:
		n.P.AwaitStream(x, r)
		if l := (view{n}).LinkTo(r.Owner); l != nil {
			n.P.Redirect(x, l, now, fx)
		} else if r.Owner == n.session.ID {
			n.P.Home(x, now, fx)
		} else {
			n.P.Settle(x, errNoStream, false, now, fx)
		}
	case fallback.Held, fallback.Promised:
		n.P.HeldBy(x, c.answer.Holder.Session, 0, c.sent)
		n.P.AwaitRoute()
		n.P.Settle(x, nil, false, now, fx)
	default:
		n.P.Settle(x, errGrace, false, now, fx)
	}
}

// failContend: the request may be executed yet, or was.
func (n *Node) failContend(c *call, now time.Time, fx *lease.Effects) {
	n.doubts = append(n.doubts, lease.Doubt{Key: c.key, ID: c.lock.Me, When: c.sent.Add(n.w.Times.TTL)})
	n.P.Settle(c.contender, errNoAnswer, false, now, fx)
}

// sendAcquire begins to acquire the partition, unless the node has begun to. It looks at the
// record first, unless it has been told of it. A record that names the node is not acquired.
func (n *Node) sendAcquire(string) *call {
	if n.dead || n.P.Phase() != lease.Acquiring && !n.P.BeginAcquire(fallback.Expect{}) {
		return nil
	}
	if told, ok := n.P.Expected(); ok {
		n.w.say("%s expects Shared, epoch %d, and does not look", n.Name, told.Epoch)
		return &call{session: n.session, expect: told}
	}
	r := n.w.record.Load(n.w.moment())
	if r.Owner == n.session.ID {
		if n.P.MayForswear(true, n.w.now) {
			n.unserved(r.Epoch)
		}
		n.event(n.P.EndAcquire)
		return nil
	}
	n.P.InTheWay(r.Owner)
	return &call{session: n.session, expect: fallback.Expect{Epoch: r.Epoch, Owner: r.Owner, OwnerDead: n.w.isDead(r.Owner)}}
}

func executeAcquire(w *World, _ *Node, c *call) {
	c.got = w.record.Acquire(w.moment(), c.session.ID, c.expect)
}

func (n *Node) answerAcquire(c *call, now time.Time, fx *lease.Effects) {
	n.hears("%v, epoch %d", c.got.Verdict, c.got.Record.Epoch)
	if c.got.Verdict == fallback.Granted {
		if n.P.Serve(c.session, c.got, c.sent, now, fx) {
			n.w.say("%s SERVES epoch %d", n.Name, c.got.Record.Epoch)
		} else if n.P.MayForswear(true, now) {
			n.unserved(c.got.Record.Epoch)
		}
	}
	n.P.EndAcquire(now, fx)
}

func (n *Node) failAcquire(_ *call, now time.Time, fx *lease.Effects) { n.P.EndAcquire(now, fx) }

// sendDemote freezes the partition, if that was not done, and asks for it to become Shared.
func (n *Node) sendDemote(string) *call {
	if !n.demoting {
		n.freeze()
	}
	if !n.demoting {
		return nil
	}
	n.demoting = false
	return &call{frozen: n.frozen}
}

func executeDemote(w *World, _ *Node, c *call) {
	c.demotion = w.record.Demote(w.moment(), c.frozen.Session.ID, c.frozen.Epoch, c.frozen.Holds)
}

func (n *Node) answerDemote(c *call, now time.Time, fx *lease.Effects) {
	d := c.demotion
	n.hears("%v, epoch %d", d.Verdict, d.Record.Epoch)
	n.P.EndDemote(c.frozen, d.Verdict == fallback.Granted, d.Verdict == fallback.Stale, c.sent, now, fx)
}

func (n *Node) failDemote(c *call, now time.Time, fx *lease.Effects) {
	n.P.EndDemote(c.frozen, false, false, c.sent, now, fx)
}

// sendLook looks at the record. One that names this node, which does not serve it, is demoted, if
// it may be (rule 6).
func (n *Node) sendLook(string) *call {
	switch r := n.w.record.Load(n.w.moment()); {
	case r.Owner != n.session.ID:
		n.P.NotNamed()
		n.w.say("the record does not name %s", n.Name)
	case !n.P.MayForswear(false, n.w.now):
		n.w.say("%s has to wait", n.Name)
	case n.P.Forswear(r.Epoch):
		return &call{epoch: r.Epoch}
	}
	return nil
}

func executeLook(w *World, n *Node, c *call) {
	c.demotion = w.record.DemoteUnserved(w.moment(), n.session.ID, c.epoch)
}

func (n *Node) answerLook(c *call, _ time.Time, _ *lease.Effects) {
	n.hears("%v, epoch %d", c.demotion.Verdict, c.demotion.Record.Epoch)
}

func (n *Node) failLook(*call, time.Time, *lease.Effects) {}

// unserved demotes at once a record that names this node.
func (n *Node) unserved(epoch uint32) {
	if n.P.Forswear(epoch) {
		d := n.w.record.DemoteUnserved(n.w.moment(), n.session.ID, epoch)
		n.hears("%v, epoch %d", d.Verdict, d.Record.Epoch)
	}
}

// sendVerify reads the arbiter's data of the holds.
func (n *Node) sendVerify(string) *call {
	return &call{snapshot: n.P.Snapshot(n.session, lease.Look{}, n.w.now)}
}

func executeVerify(w *World, _ *Node, c *call) {
	c.state = w.record.Verify(w.moment(), fallback.Read{Keys: c.snapshot.Keys, Busy: c.snapshot.Busy})
}

func (n *Node) answerVerify(c *call, now time.Time, fx *lease.Effects) {
	if n.P.Older(c.snapshot, c.state) { // the arbiter decides, as in package coord
		c.state.Record = n.w.record.Witness(n.w.moment(), c.snapshot.Known)
		n.hears("grace for %v, after a witness", c.state.Record.Grace)
	}
	missing, revoked := n.P.Compare(c.snapshot, c.state, c.sent, now, fx)
	if revoked > 0 && n.P.MayGiveUp(revoked) {
		n.w.say("%s is to give epoch %d back", n.Name, revoked)
	}
	n.missing = missing
}

// sendAdopt asks for rows of holds if their owner does not answer for them.
func (n *Node) sendAdopt(string) *call {
	holds, _, _ := n.P.Orphans(view{n}.Adoption(), n.w.now)
	if len(holds) == 0 {
		return nil
	}
	slices.SortFunc(holds, func(a, b fallback.Claim) int { return strings.Compare(a.Key, b.Key) })
	return &call{session: n.session, claims: lease.Claims{Holds: holds}}
}

// sendReclaim asks for the claims that the last verify has found missing.
func (n *Node) sendReclaim(string) *call {
	c := &call{session: n.session, claims: n.missing}
	n.missing = lease.Claims{}
	if c.claims.Own.Epoch == 0 && len(c.claims.Holds) == 0 {
		return nil
	}
	return c
}

func executeRestore(w *World, _ *Node, c *call) {
	if own := c.claims.Own; own.Epoch > 0 {
		c.verdict = w.record.ReclaimOwner(w.moment(), own.Session.ID, own.Epoch).Verdict
	}
	c.restored = w.record.Restore(w.moment(), c.claims.Holds)
}

func (n *Node) answerRestore(c *call, now time.Time, fx *lease.Effects) {
	if c.claims.Own.Epoch > 0 {
		n.hears("ownership %v", c.verdict)
		n.P.Reclaimed(c.claims.Own, c.verdict == fallback.Granted, c.sent, now, fx)
	}
	grace := ""
	if c.restored.Grace > 0 {
		grace = fmt.Sprintf(", Grace for %v", c.restored.Grace)
	}
	for i, h := range c.claims.Holds {
		n.hears("row of %s %v%s", h.Key, c.restored.Verdicts[i], grace)
	}
	n.P.Restored(c.claims.Holds, c.restored.Verdicts, n.w.settles(c.restored.Grace), c.sent, now, fx)
}

func (n *Node) failRestore(c *call, now time.Time, fx *lease.Effects) {
	n.P.NotRestored(c.claims.Holds, now, fx)
}

// sendRelease sends the releases of holds that were given back.
func (n *Node) sendRelease(string) *call {
	if len(n.releases) == 0 {
		return nil
	}
	c := &call{releases: n.releases}
	n.releases = nil
	return c
}

func executeRelease(w *World, _ *Node, c *call) {
	for _, r := range c.releases {
		w.record.Unlock(w.moment(), r.Key, r.Identity, nil)
	}
}

// failRelease: a release that was not acknowledged is sent again (rule 9).
func (n *Node) failRelease(c *call, _ time.Time, _ *lease.Effects) {
	n.releases = append(c.releases, n.releases...)
}

// sendRumors reads the records behind the rumors.
func (n *Node) sendRumors(string) *call {
	if len(n.rumors) == 0 {
		return nil
	}
	c := &call{rumors: n.rumors}
	n.rumors = nil
	return c
}

func executeRumors(w *World, _ *Node, c *call) {
	var read fallback.Read
	for _, r := range c.rumors {
		if r.Key != "" {
			read.Keys = append(read.Keys, r.Key)
		}
	}
	c.state = w.record.Verify(w.moment(), read)
}

func (n *Node) answerRumors(c *call, now time.Time, fx *lease.Effects) {
	if revoked := n.P.Heard(c.rumors, c.state, now, fx); revoked > 0 && n.P.MayGiveUp(revoked) {
		n.w.say("%s is to give epoch %d back", n.Name, revoked)
	}
}
