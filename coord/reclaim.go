package coord

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// claims is what the arbiter may not know of a partition.
type claims struct {
	p *partition
	lease.Claims
}

// inCalls splits claims into those that one call makes. Each partition's first call comes before any second one, so that
// a partition with many holds does not hold up the others.
func inCalls(all []claims) (calls []claims) {
	var later []claims
	for len(all) > 0 {
		for _, x := range all {
			if x.Own.Epoch > 0 {
				calls = append(calls, claims{x.p, lease.Claims{Own: x.Own}})
			}
			n := min(len(x.Holds), fallback.MaxClaims)
			if n > 0 {
				calls = append(calls, claims{x.p, lease.Claims{Holds: x.Holds[:n]}})
			}
			if n < len(x.Holds) {
				later = append(later, claims{x.p, lease.Claims{Holds: x.Holds[n:]}})
			}
		}
		all, later = later, nil
	}
	return calls
}

// reclaimers is how many calls that reclaim something are in flight at the same time, at most.
const reclaimers = 16

// window is how many calls may be in flight. It opens as answers come, and is shut when there is none: the calls that
// are in flight while the arbiter is away are executed when it is back, and are in the way of renewals then.
type window struct {
	size      int
	succeeded bool
	failed    bool
}

// open reports whether one more call may be made beside so many.
func (w *window) open(inFlight int) bool {
	return inFlight < max(w.size, 2) && (w.succeeded || !w.failed)
}

// ended notes how a call has ended.
func (w *window) ended(err error) {
	if err != nil {
		w.failed = true
		return
	}
	w.succeeded = true
	w.size = min(2*max(w.size, 2), reclaimers)
}

// reclaim makes the arbiter know what it may not. Each answer counts as soon as it comes. A call that takes long
// makes room for another one, as [patience] says, and a partition that does not answer is left alone: a server of
// several that is down does not hold up what others are to be told in time.
func (c *Coordinator) reclaim(ctx context.Context, all []claims) (err error) {
	calls := inCalls(all)
	if len(calls) == 0 {
		return nil
	}
	c.opts.Logger.Info("holdfast: reclaiming or adopting", "calls", len(calls))
	type event struct {
		p    *partition // its call has ended; nil: a call takes long
		err  error
		slow bool // it has made room before
	}
	events := make(chan event, 2*len(calls))
	patience := newPatience(&c.opts)
	start := func(x claims) {
		slow := time.AfterFunc(patience.wait(), func() { events <- event{} })
		c.pool.Go(func() {
			e := event{p: x.p, err: errNoAnswer}
			defer func() { // also if a trace function ends the goroutine
				e.slow = !slow.Stop()
				events <- e
			}()
			begun := c.now()
			e.err = c.reclaimOne(ctx, x)
			patience.ended(c.since(begun))
		})
	}
	var w window
	silent := make(map[*partition]bool)
	for room, running := 0, 0; ; {
		for ; len(calls) > 0 && w.open(room); calls = calls[1:] {
			if !silent[calls[0].p] { // else it is claimed again soon
				start(calls[0])
				room++
				running++
			}
		}
		if running == 0 {
			return err
		}
		e := <-events
		if e.p == nil {
			room--
			continue
		}
		running--
		if !e.slow {
			room--
		}
		if w.ended(e.err); e.err != nil {
			silent[e.p], err = true, e.err
		}
	}
}

func (c *Coordinator) reclaimOne(ctx context.Context, x claims) error {
	ctx, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	defer cancel()
	sent := c.now()
	var a after
	defer func() { a.do(c) }()
	if x.Own.Epoch > 0 {
		v, err := c.ns.ReclaimOwner(ctx, x.p.Number(), x.Own.Session.ID, x.Own.Epoch)
		c.called(OpReclaim, sent, err)
		if err == nil {
			now := x.p.lock()
			x.p.Reclaimed(x.Own, v == fallback.Granted, sent, now, &a.Effects)
			x.p.unlock(&a)
		}
		return err
	}
	got := c.ns.Restore(ctx, []fallback.Claims{{Partition: x.p.Number(), Holds: x.Holds}})[0]
	c.called(OpReclaim, sent, got.Err)
	now := x.p.lock()
	if got.Err != nil {
		x.p.NotRestored(x.Holds, now, &a.Effects)
	} else {
		x.p.Restored(x.Holds, got.Verdicts, sent, now, &a.Effects)
	}
	x.p.unlock(&a)
	return got.Err
}
