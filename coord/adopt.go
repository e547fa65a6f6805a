package coord

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// perRow is how much of an arbiter's time a row is reckoned to cost, with several nodes that adopt
// at the same moment.
const perRow = 8 * time.Microsecond

// adoptionOf returns when a node with so many holds that rest on owners adopts them. That takes two
// calls, as long as calls take now, and one of them may fail.
func adoptionOf(o *Options, took time.Duration, silent bool, holds int) lease.Adoption {
	most, last := o.RenewEvery+2*o.CallTimeout, o.RetryEvery+o.CallTimeout
	if o.takeover() > 0 { // owners announce no more than Valid
		valid := o.promises().Valid()
		most, last = min(most, valid/3), min(last, valid/2)
	}
	return lease.Adoption{
		Silent: silent,
		Lead:   min(o.RetryEvery+2*took+time.Duration(holds)*perRow, most),
		Last:   last,
		Back:   o.pingEvery(),
	}
}

// probes is how many partitions' holds an arbiter that is away is asked to adopt at the same time.
const probes = 2

// adoption returns when holds are adopted now, as calls of the arbiter take so long.
func (x *cluster) adoption() lease.Adoption {
	h := &x.c.remote.health
	h.mu.Lock()
	defer h.mu.Unlock()
	return adoptionOf(&x.c.opts, h.took, h.silent, int(x.heard.resting.Load()))
}

// adoptNow makes holds be adopted after their owner is gone.
func (x *cluster) adoptNow() {
	select {
	case x.wakes.adopts <- struct{}{}:
	default:
	}
}

// keepAdopting gets rows for holds that their owners do not answer for any longer, until the
// coordinator stops. It waits for a moment before it looks: a partition that is frozen is not the
// only one, and its owner is about to write the rows.
func (x *cluster) keepAdopting() {
	o := &x.c.opts
	moment := min(o.RetryEvery, o.Cluster.Keepalive) / 4
	timer := time.NewTimer(0)
	defer timer.Stop()
	for looking := true; ; {
		select {
		case <-x.wakes.adopts:
			if !looking {
				looking = true
				timer.Reset(moment)
			}
			continue
		case <-timer.C:
		case <-x.c.life.ctx.Done():
			return
		}
		looking = false
		when, resting, soon := x.adoption(), 0, o.RenewEvery
		var all []claims
		for i := range x.c.parts {
			p := &x.c.parts[i]
			now := p.lock()
			holds, n, next := p.Orphans(when, now)
			p.mu.Unlock()
			resting, soon = resting+n, min(soon, next)
			if len(holds) > 0 {
				all = append(all, claims{p, lease.Claims{Holds: holds}})
			}
		}
		x.heard.resting.Store(int64(resting))
		if soon < when.Back { // the owner may have more to say by now
			x.pingAll()
		}
		if when.Silent { // to find out; keepAdopting is told when it answers again
			all = all[:min(len(all), probes)]
		}
		if err := x.c.reclaim(x.c.life.ctx, all); err != nil {
			soon = min(soon, jitter(o.RetryEvery))
		}
		// An owner may answer, but for less and less.
		timer.Reset(max(min(soon, o.pingEvery()), o.Cluster.Keepalive/4))
	}
}
