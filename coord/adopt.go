package coord

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/peer"
)

// health is how the arbiter has answered of late.
type health struct {
	mu     mutex[leafRank] // protects what follows
	took   time.Duration
	silent bool // the last call was not answered
}

// note is called when a call has ended. It reports whether the arbiter answers again.
func (h *health) note(took time.Duration, answered bool) (again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	again = h.silent && answered
	h.took, h.silent = took, !answered
	return again
}

// adoption is when holds are adopted, and when they are given back to their owners. An arbiter that has been away is not to be
// met by everything that could be asked of it: by then most owners have renewed what they announce.
type adoption struct {
	silent bool          // the arbiter does not answer
	lead   time.Duration // how long before its deadline a hold is adopted whose owner is there
	last   time.Duration // the same, of every hold, while the arbiter does not answer
	back   time.Duration // how much longer than lead an owner must answer for a hold to be given back to it
}

// perRow is how much of an arbiter's time a row is reckoned to cost, with several nodes that adopt at the same moment.
const perRow = 8 * time.Microsecond

// adoptionOf returns that of a node with so many holds that rest on owners. Adopting them takes two calls, as long as
// calls take now, and one of them may fail.
func adoptionOf(o *Options, took time.Duration, silent bool, holds int) adoption {
	most := o.RenewEvery + 2*o.CallTimeout
	return adoption{
		silent: silent,
		lead:   min(o.RetryEvery+2*took+time.Duration(holds)*perRow, most),
		last:   o.RetryEvery + o.CallTimeout,
		back:   o.Cluster.Keepalive,
	}
}

// due reports whether a hold is to be adopted whose owner answers for it for so long. gone: not for any longer.
func (x adoption) due(gone bool, left time.Duration) bool {
	if x.silent {
		return left < x.last
	}
	return gone || left < x.lead
}

// at returns how long before its deadline a hold is adopted whose owner is there.
func (x adoption) at() time.Duration {
	if x.silent {
		return x.last
	}
	return x.lead
}

// rests reports whether the row of a hold need not be looked after, because its owner answers for it.
func (x adoption) rests(gone bool, left time.Duration) bool { return !gone && left > x.lead+x.back }

// ownerGone reports whether no owner extends the deadline of the hold.
func (h *hold) ownerGone() bool { return h.source != sourceOwner || h.from.down.Load() }

// probes is how many partitions' holds an arbiter that is away is asked to adopt at the same time.
const probes = 2

// adoption returns the present one.
func (x *cluster) adoption() adoption {
	h := &x.c.health
	h.mu.Lock()
	defer h.mu.Unlock()
	return adoptionOf(&x.c.opts, h.took, h.silent, int(x.resting.Load()))
}

func (c *Coordinator) adoption() adoption {
	if c.cluster == nil {
		return adoption{}
	}
	return c.cluster.adoption()
}

// adoptNow makes holds be adopted whose owner is gone.
func (x *cluster) adoptNow() {
	select {
	case x.adopts <- struct{}{}:
	default:
	}
}

// keepAdopting gets rows for holds whose owners do not answer for them any longer, until the coordinator stops. It waits
// for a moment before it looks: a partition that is frozen is not the only one, and its owner is about to write the rows.
func (x *cluster) keepAdopting() {
	o := &x.c.opts
	moment := min(o.RetryEvery, o.Cluster.Keepalive) / 4
	timer := time.NewTimer(0)
	defer timer.Stop()
	for looking := true; ; {
		select {
		case <-x.adopts:
			if !looking {
				looking = true
				timer.Reset(moment)
			}
			continue
		case <-timer.C:
		case <-x.c.ctx.Done():
			return
		}
		looking = false
		when, resting, soon := x.adoption(), 0, o.RenewEvery
		var all []claims
		for i := range x.c.parts {
			list, n, next := x.c.parts[i].orphans(when)
			resting, soon = resting+n, min(soon, next)
			if len(list.holds) > 0 {
				all = append(all, list)
			}
		}
		x.resting.Store(int64(resting))
		if soon < when.back { // the owner may have more to say by now
			x.pingAll()
		}
		if when.silent { // to find out; keepAdopting is told when it answers again
			all = all[:min(len(all), probes)]
		}
		if err := x.c.reclaim(x.c.ctx, all); err != nil {
			soon = min(soon, jitter(o.RetryEvery))
		}
		timer.Reset(max(soon, o.Cluster.Keepalive/4))
	}
}

// orphans lists the holds that need a row now. It counts those that have none, and tells when the next one may need one.
func (p *partition) orphans(when adoption) (list claims, resting int, next time.Duration) {
	list.p, next = p, p.c.opts.RenewEvery
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.remote == 0 || p.phase == phaseDemoting {
		return list, p.remote, next
	}
	now := p.c.now()
	for key, e := range p.entries {
		h := &e.hold
		if e.q.State() == handoff.Idle || !h.remote() || !h.confirmed.IsZero() {
			continue
		}
		gone, left := h.ownerGone(), h.announcedUntil().Sub(now)
		if when.due(gone, left) {
			if gone {
				h.freeze()
			}
			list.holds = append(list.holds, h.asClaim(key))
		} else {
			next = min(next, left-when.at())
		}
	}
	return list, p.remote, next
}

// settleDown makes a hold that has a row rest on its owner again, if that answers for it for long enough (rule 17). It
// reports whether it does.
func (p *partition) settleDown(h *hold, when adoption, now time.Time) bool {
	if !h.remote() || !when.rests(h.ownerGone(), h.announcedUntil().Sub(now)) {
		return false
	}
	h.confirmed, h.rowed = time.Time{}, true
	return true
}

// asksPerPeriod is how many holds are offered to their owners per RenewEvery at most.
const asksPerPeriod = 1 << 15

// offer asks the owner of the partition to answer for holds that rest on their rows (rule 17).
func (p *partition) offer(k check, r fallback.Record, a *after) {
	x := p.c.cluster
	if x == nil || r.Owner == "" || r.Grace > 0 || p.own != nil {
		return
	}
	l := x.linkTo(r.Owner)
	if l == nil || l.down.Load() {
		return
	}
	for i, key := range k.keys {
		e := p.holding(key, k.rows[i])
		if e == nil || e.hold.confirmed.IsZero() || !e.hold.ownerGone() && e.hold.from == l {
			continue
		}
		if x.asks.Add(-1) < 0 {
			return
		}
		f := p.frame(peer.Resume, key, k.rows[i].Identity)
		f.Token = uint64(k.rows[i].Token)
		a.send(l, f)
	}
}

// vouch answers offer: if the hold is in this node's table, it is granted once more, at the present epoch.
func (p *partition) vouch(l *link, e *entry, now time.Time, a *after) {
	if !p.serves(now) {
		return
	}
	ping, left := l.offer(p.ownedUntil())
	if left == 0 {
		return
	}
	e.g.vouched = true
	f := p.frame(peer.Grant, e.key, e.g.holder)
	f.Epoch, f.Token, f.Count, f.Ping, f.Left = p.own.epoch, uint64(e.g.token), 0, ping, left
	a.send(l, f)
}

// vouched: the owner answers for a hold that this node has (rule 17). From now on the hold rests on that, and its row, which
// stays, is looked after no more.
func (p *partition) vouched(l *link, h *hold, epoch uint32, deadline time.Time, pongs uint64, now time.Time) {
	s := p.c.sessions.current()
	if h.source == sourceOwn || h.source == sourceHome || p.own != nil || h.session != s || epoch < h.epoch || past(deadline, now) {
		return
	}
	next := hold{source: sourceOwner, from: l, announced: deadline, pongs: pongs}
	if !p.c.cluster.adoption().rests(false, next.announcedUntil().Sub(now)) {
		return // not worth it
	}
	if !h.remote() {
		p.remote++
	}
	step(&h.source, sourceOwner, nextSources[:])
	h.from, h.epoch, h.announced, h.pongs = l, epoch, deadline, pongs
	h.confirmed, h.rowed = time.Time{}, true
}

// comeHome makes a hold that has a row rest on this node's own partition.
func (p *partition) comeHome(h *hold) {
	if h.remote() {
		p.remote--
	}
	step(&h.source, sourceHome, nextSources[:])
	h.rowed, h.from, h.epoch, h.confirmed = true, nil, 0, time.Time{}
}

// leaveHome is for a hold that rested on this node's own partition, which is not served any more.
func (p *partition) leaveHome(h *hold, epoch uint32, until time.Time) {
	step(&h.source, sourceFrozen, nextSources[:])
	h.epoch, h.announced = epoch, until
	p.remote++
}
