package coord

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// perRow is the estimated cost of a row in the arbiter's time, with several nodes that adopt at the
// same moment.
const perRow = 8 * time.Microsecond

// adoptionOf returns when a node adopts its holds that rest on owners. holds is their number. An
// adoption takes two calls, as long as calls take now, and one of them may fail.
func adoptionOf(o *Options, took time.Duration, silent bool, holds int) lease.Adoption {
	most, last := o.RenewEvery+2*o.CallTimeout, o.RetryEvery+o.CallTimeout
	if o.takeover() > 0 { // owners announce no more than Valid
		valid := o.promises().Valid()
		most, last = min(most, valid/2), min(last, valid/2)
	}
	return lease.Adoption{
		Silent: silent,
		Lead:   min(o.RetryEvery+2*took+time.Duration(holds)*perRow, most),
		Last:   last,
		Back:   o.pingEvery(),
	}
}

// leastGrant returns how long an owner's grant to another node is good at least. That is enough to
// write its row, as [cluster.keepAdopting] does when the owner announces no more. An owner that
// meets the arbiter and its guardians in time has more than that left at any time.
func (o *Options) leastGrant() time.Duration {
	if o.takeover() > 0 {
		return min(o.RetryEvery, o.promises().Valid()/4)
	}
	return o.RetryEvery
}

// probes is how many partitions' holds an arbiter that is away is asked to adopt at the same time.
const probes = 2

// passes is how many passes may be under way at the same time: holds may lose their owners while
// one waits for answers.
const passes = 3

// adopting is the passes that are under way.
type adopting struct {
	mu     mutex[leafRank] // protects the fields below
	begun  int             // the number of the last pass that has begun
	heard  int             // that of the last one with a call that was answered in time
	ended  int             // that of the last one that has ended
	passes int
	busy   map[*partition]underway
}

// underway is a pass about a partition, and in how many claims of its calls the holds are that are
// still to be answered.
type underway struct{ pass, claims int }

// begin begins a pass, and returns its number and its claims: those of partitions that no call of
// another pass is about. It begins none if there are most passes already, or no such claims.
func (x *adopting) begin(all []claims, most int) (int, []claims) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.passes >= most {
		return 0, nil
	}
	all = slices.DeleteFunc(all, func(k claims) bool { return x.busy[k.p].claims > 0 })
	if len(all) == 0 {
		return 0, nil
	}
	if x.busy == nil {
		x.busy = make(map[*partition]underway)
	}
	x.passes++
	x.begun++
	for _, k := range all {
		x.busy[k.p] = underway{x.begun, claimsFor(k)}
	}
	return x.begun, all
}

// called notes that a pass goes on after a call about partitions, or without it. A partition with
// holds in several calls waits for the last one: for so long they are due.
func (x *adopting) called(pass int, call []claims, answered bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if answered {
		x.heard = max(x.heard, pass)
	}
	for _, k := range call {
		u := x.busy[k.p]
		if u.pass != pass {
			continue
		}
		if u.claims--; u.claims > 0 {
			x.busy[k.p] = u
		} else {
			delete(x.busy, k.p)
		}
	}
}

// end notes that a pass has ended, with or without all of its calls.
func (x *adopting) end(pass int, all []claims) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, k := range all {
		if x.busy[k.p].pass == pass {
			delete(x.busy, k.p)
		}
	}
	x.passes--
	x.ended = max(x.ended, pass)
}

// vain reports whether no call of the last pass that has ended was answered in time.
func (x *adopting) vain() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ended > x.heard
}

// running reports whether a pass is under way.
func (x *adopting) running() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.passes > 0
}

// adoptTimeout is how long a pass of keepAdopting waits for the answer to a call before it goes on.
// With Cluster.Takeover owners announce no more than Valid: a call that is made again has to end
// before.
func (o *Options) adoptTimeout() time.Duration {
	if o.takeover() > 0 {
		return min(o.CallTimeout, o.promises().Valid()/2)
	}
	return o.CallTimeout
}

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

// adoptPass makes a pass. A claim that fails is still due.
func (x *cluster) adoptPass(ctx context.Context, pass int, these []claims) {
	under := &x.self.adopting
	defer x.streams.ended.look()
	defer under.end(pass, these)
	_ = x.c.reclaim(ctx, these, x.c.opts.adoptTimeout(), func(call []claims, answered bool) { under.called(pass, call, answered) })
}

// moment is the shortest wait of keepAdopting between two looks. It is less than the time that a
// hold is due, or is good after its grant.
func (o *Options) moment() time.Duration { return min(o.RetryEvery, o.pingEvery()) / 4 }

// keepAdopting gets rows for holds without an owner that answers for them, until the coordinator
// stops. It waits for a moment before it looks: a partition that is frozen is not the only one, and
// its owner is about to write the rows.
func (x *cluster) keepAdopting() {
	o := &x.c.opts
	moment := o.moment()
	timer, due := time.NewTimer(0), x.c.now()
	defer timer.Stop()
	under := &x.self.adopting
	for looking := true; ; {
		select {
		case <-x.wakes.adopts:
			if !looking {
				looking = true
				timer.Reset(min(moment, due.Sub(x.c.now())))
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
		// Other partitions first each time: where some servers of several are down, theirs are not
		// always in front.
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		most := passes
		if when.Silent && !x.c.spreads() { // to find out; keepAdopting is told when it answers again
			all, most = all[:min(len(all), probes)], 1
		} else if !x.c.spreads() && under.vain() { // more calls would be in the way of renewals when it is back
			most = 1
		}
		if pass, these := under.begin(all, most); len(these) > 0 {
			x.c.background(func() { x.adoptPass(x.c.life.ctx, pass, these) })
		}
		if under.running() {
			soon = min(soon, jitter(o.RetryEvery))
		}
		// An owner may answer, but for less and less. How long before its deadline a hold is
		// adopted is never less than a look.
		pause := max(min(soon, o.pingEvery()), moment)
		timer.Reset(pause)
		due = x.c.now().Add(pause)
	}
}
