package coord

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// claims is what the arbiter may not know of a partition: its owner, after a failover; and holds that have no row, or
// whose rows the server has lost.
type claims struct {
	p     *partition
	own   *ownership // a copy; nil: not this node
	holds []fallback.Claim
}

// asClaim returns the claim by which the arbiter is asked for the row of the hold.
func (h *hold) asClaim(key string) fallback.Claim {
	return fallback.Claim{Key: key, Row: h.row, Owned: h.epoch}
}

// inCalls splits claims into those that one call makes. Each partition's first call comes before any second one, so that
// a partition with many holds does not hold up the others.
func inCalls(all []claims) (calls []claims) {
	var later []claims
	for len(all) > 0 {
		for _, x := range all {
			if x.own != nil {
				calls = append(calls, claims{p: x.p, own: x.own})
			}
			n := min(len(x.holds), fallback.MaxClaims)
			if n > 0 {
				calls = append(calls, claims{p: x.p, holds: x.holds[:n]})
			}
			if n < len(x.holds) {
				later = append(later, claims{p: x.p, holds: x.holds[n:]})
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
		p    *partition // whose call has ended; nil: a call takes long
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
	if x.own != nil {
		v, err := c.ns.ReclaimOwner(ctx, x.p.number, x.own.session.id, x.own.epoch)
		c.called(OpReclaim, sent, err)
		if err == nil {
			x.p.ownerReclaimed(x.own, v, sent)
		}
		return err
	}
	got := c.ns.Restore(ctx, []fallback.Claims{{Partition: x.p.number, Holds: x.holds}})[0]
	c.called(OpReclaim, sent, got.Err)
	if got.Err != nil {
		x.p.notRestored(x.holds)
		return got.Err
	}
	x.p.restored(x.holds, got.Verdicts, sent)
	return nil
}

func (p *partition) ownerReclaimed(own *ownership, v fallback.Verdict, sent time.Time) {
	var a after
	p.mu.Lock()
	switch {
	case p.own == nil || p.own.epoch != own.epoch:
	case v == fallback.Granted:
		p.own.confirmed = sent
	default:
		p.letGo(p.c.now(), &a)
	}
	p.mu.Unlock()
	a.do(p.c)
}

// restored is when the arbiter has answered, which had been asked at a moment, whether holds have rows now.
func (p *partition) restored(holds []fallback.Claim, verdicts []fallback.Verdict, sent time.Time) {
	var a after
	p.mu.Lock()
	for i, h := range holds {
		e, there := p.holding(h.Key, h.Row), verdicts[i] == fallback.Granted
		switch {
		case e == nil && there:
			// Given back meanwhile: the release may have come before the row was back.
			a.releases = append(a.releases, p.release(h.Key, h.Row.Identity))
		case e == nil || e.hold.source == sourceHome:
		case there:
			e.hold.confirmed = sent
			p.oldest = earlier(p.oldest, sent)
		case e.hold.epoch != h.Owned: // its owner has answered for it since
		default:
			p.lose(e, Superseded, &a)
		}
	}
	p.mu.Unlock()
	a.do(p.c)
}

// notRestored notes that holds may get their rows yet, also when they have been given back.
func (p *partition) notRestored(holds []fallback.Claim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range holds {
		if e := p.holding(h.Key, h.Row); e != nil {
			e.hold.callPending = true // giveBack is to see to it
			continue
		}
		p.c.doubts.add(doubt{p, h.Key, h.Row.Identity, p.c.now().Add(p.c.opts.SessionTTL)})
	}
}
