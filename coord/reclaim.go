package coord

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// claims are facts about a partition that the arbiter may not know: that this node owns it (Own),
// and the holds of this process (Holds).
type claims struct {
	p *partition
	lease.Claims
}

// claimsPerCall is how many holds one call claims at most: several steps of [fallback.MaxClaims].
const claimsPerCall = 4 * fallback.MaxClaims

// inCalls splits claims into those of single calls. All claims of owners are of one session. Owners
// come first, as the holds of other nodes rest on them. Each partition's first call comes before
// any second one, so that a partition with many holds does not hold up the others.
func inCalls(all []claims, spread bool) (calls [][]claims) {
	partitions, holds := readsPerCall, claimsPerCall
	if spread { // each partition by itself: a server that is silent holds up no other
		partitions, holds = 1, fallback.MaxClaims
	}
	var owners []claims
	for _, x := range all {
		if x.Own.Epoch > 0 {
			owners = append(owners, claims{x.p, lease.Claims{Own: x.Own}})
		}
	}
	calls = slices.AppendSeq(calls, slices.Chunk(owners, partitions))
	var call, later []claims
	n := 0
	for len(all) > 0 {
		for _, x := range all {
			m := min(len(x.Holds), fallback.MaxClaims)
			if m == 0 {
				continue
			}
			if len(call) == partitions || n+m > holds {
				calls, call, n = append(calls, call), nil, 0
			}
			call, n = append(call, claims{x.p, lease.Claims{Holds: x.Holds[:m]}}), n+m
			if m < len(x.Holds) {
				later = append(later, claims{x.p, lease.Claims{Holds: x.Holds[m:]}})
			}
		}
		all, later = later, nil
	}
	if len(call) > 0 {
		calls = append(calls, call)
	}
	return calls
}

// claimsFor returns into how many claims the holds of a partition are split.
func claimsFor(x claims) int { return (len(x.Holds) + fallback.MaxClaims - 1) / fallback.MaxClaims }

// reclaimers is how many calls that reclaim something are in flight at the same time, at most,
// where the arbiter is one server.
const reclaimers = 16

// window is how many calls may be in flight. It opens as answers come, and is shut when there is
// none: the calls that are in flight while the arbiter is away are executed when it is back, and
// are in the way of renewals then. One call that fails tells so of one server. Of several the one
// may be down that has the partitions of the first calls: there are more of them.
type window struct {
	size, most int // calls
	failures   int
	patient    int // so many failures shut it, before the first success
	succeeded  bool
}

func newWindow(spread bool) *window {
	if spread {
		return &window{size: reclaimers / 2, most: 4 * reclaimers, patient: reclaimers}
	}
	return &window{size: 2, most: reclaimers, patient: 1}
}

// open reports whether one more call may be made beside so many.
func (w *window) open(inFlight int) bool {
	return inFlight < w.size && (w.succeeded || w.failures < w.patient)
}

// ended notes how a call has ended.
func (w *window) ended(err error) {
	if err != nil {
		w.failures++
		return
	}
	w.succeeded = true
	w.size = min(2*w.size, w.most)
}

// reclaiming is a call of reclaim.
type reclaiming struct {
	call       []claims
	room, late bool // it takes none any more; the pass goes on without it
}

// reclaimed is an event of such a call.
type reclaimed struct {
	*reclaiming
	kind   reclaimedKind
	failed []*partition // that were not answered
	err    error
}

type reclaimedKind byte

const (
	callIsSlow reclaimedKind = iota // it makes room for another one, as [patience] says
	callIsLate                      // its answer still counts, but the pass goes on
	callHasEnded
)

// reclaim tells the arbiter of the claims. Each answer counts as soon as it comes. A call that
// takes long makes room for another one, as [patience] says, and a partition that does not answer
// is left alone: a server of several that is down does not make the claims for others late. It goes
// on without the answer to a call after the time limit. It calls after, if that is not nil,
// whenever it goes on after a call, and for the claims that it leaves out of one; answered says
// that it had an answer about a partition.
func (c *Coordinator) reclaim(ctx context.Context, all []claims, limit time.Duration, after func(call []claims, answered bool)) (err error) {
	calls := inCalls(all, c.spreads())
	if len(calls) == 0 {
		return nil
	}
	if after == nil {
		after = func([]claims, bool) {}
	}
	locks, owned := 0, 0
	for _, x := range all {
		if locks += len(x.Holds); x.Own.Epoch > 0 {
			owned++
		}
	}
	c.opts.Logger.Info("holdfast: locks and partitions are written to the arbiter again", "locks", locks, "partitions", owned)
	events := make(chan reclaimed, 3*len(calls))
	patience := newPatience(&c.opts)
	w := newWindow(c.spreads())
	silent := make(map[*partition]bool)
	for room, running := 0, 0; ; {
		for ; len(calls) > 0 && w.open(room); calls = calls[1:] {
			var call, dropped []claims
			for _, x := range calls[0] {
				if silent[x.p] { // it is claimed again soon
					dropped = append(dropped, x)
				} else {
					call = append(call, x)
				}
			}
			after(dropped, false)
			if len(call) > 0 {
				c.startReclaim(ctx, &reclaiming{call: call}, patience, limit, events)
				room++
				running++
			}
		}
		if running == 0 {
			return err
		}
		e := <-events
		if !e.room {
			e.room = true
			room--
		}
		switch {
		case e.kind == callIsSlow:
			continue
		case !e.late:
			e.late = true
			running--
			after(e.call, len(e.failed) < len(e.call)) // one that fails may do so for ever
		}
		if w.ended(e.err); e.err != nil {
			err = e.err
		}
		for _, p := range e.failed {
			silent[p] = true
		}
	}
}

// startReclaim makes a call, and sends its events.
func (c *Coordinator) startReclaim(ctx context.Context, x *reclaiming, patience *patience, limit time.Duration, to chan<- reclaimed) {
	all := make([]*partition, len(x.call))
	for i, k := range x.call {
		all[i] = k.p
	}
	slow := time.AfterFunc(patience.wait(), func() { to <- reclaimed{reclaiming: x, kind: callIsSlow} })
	late := time.AfterFunc(limit, func() { to <- reclaimed{x, callIsLate, all, errNoAnswer} })
	away := time.AfterFunc(c.opts.CallTimeout, c.goOn) // until then the arbiter may only be slow
	c.life.pool.Go(func() {
		e := reclaimed{x, callHasEnded, all, errNoAnswer}
		defer func() { // also if a trace function ends the goroutine
			slow.Stop()
			late.Stop()
			away.Stop()
			to <- e
		}()
		begun := c.now()
		e.failed, e.err = c.reclaimOne(ctx, x.call)
		patience.ended(c.since(begun))
	})
}

// reclaimOne makes a call of inCalls. It returns the partitions that were not answered.
func (c *Coordinator) reclaimOne(ctx context.Context, call []claims) (failed []*partition, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.answers())
	defer cancel()
	sent := c.now()
	flight := c.flights.begin()
	defer c.flights.end(flight)
	var a after
	defer func() { a.do(c) }()
	if call[0].Own.Epoch > 0 {
		failed, err = c.reclaimOwners(ctx, call, sent, &a)
	} else {
		failed, err = c.restore(ctx, call, sent, &a)
	}
	c.calledMany(OpReclaim, len(call), len(failed), sent, err)
	return failed, err
}

// reclaimOwners reclaims the records of partitions that one session owns.
func (c *Coordinator) reclaimOwners(ctx context.Context, call []claims, sent time.Time, a *after) (failed []*partition, err error) {
	owned := make([]fallback.Ownership, len(call))
	for i, x := range call {
		owned[i] = fallback.Ownership{Partition: x.p.Number(), Epoch: x.Own.Epoch}
	}
	for i, got := range c.remote.ns.ReclaimOwners(ctx, call[0].Own.Session.ID, owned) {
		x := call[i]
		if got.Err != nil {
			failed, err = append(failed, x.p), got.Err
			continue
		}
		now := x.p.lock()
		x.p.Reclaimed(x.Own, got.Verdict == fallback.Granted, sent, now, &a.Effects)
		x.p.unlock(a)
		c.graceSeen(x.p.Number(), sent, got.Grace)
	}
	return failed, err
}

// restore makes the arbiter write rows of holds.
func (c *Coordinator) restore(ctx context.Context, call []claims, sent time.Time, a *after) (failed []*partition, err error) {
	list := make([]fallback.Claims, len(call))
	for i, x := range call {
		list[i] = fallback.Claims{Partition: x.p.Number(), Holds: x.Holds}
	}
	for i, got := range c.remote.ns.Restore(ctx, list) {
		x := call[i]
		now := x.p.lock()
		if got.Err != nil {
			failed, err = append(failed, x.p), got.Err
			x.p.NotRestored(x.Holds, now, &a.Effects)
		} else {
			x.p.Restored(x.Holds, got.Verdicts, c.settles(got.Grace), sent, now, &a.Effects)
		}
		x.p.unlock(a)
		c.graceSeen(x.p.Number(), sent, got.Grace)
	}
	return failed, err
}
