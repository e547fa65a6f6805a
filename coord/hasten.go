package coord

import (
	"context"
	"crypto/rand"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/guard"
)

// hasten ends the Graces early that this process sees, until ctx ends.
func (x *rounds) hasten(ctx context.Context) {
	for {
		select {
		case <-x.sight:
		case <-ctx.Done():
			return
		}
		for ctx.Err() == nil && x.hastenOnce(ctx) {
		}
	}
}

// hastenOnce reports whether partitions may still be in Grace.
func (x *rounds) hastenOnce(ctx context.Context) bool {
	c := x.c
	begun, ends := c.now(), c.remote.graceSeenEnds.Load()
	x.mu.Lock()
	mine := slices.Sorted(maps.Keys(x.sighted))
	clear(x.sighted)
	x.mu.Unlock()
	still, sure := x.find(ctx, mine)
	if len(still) == 0 && sure {
		if c.remote.graceEnds.Load() == 0 {
			c.sessions.graceOver(begun)
			x.mu.Lock()
			if len(x.sighted) == 0 { // else it ends no earlier than that of another partition
				c.remote.graceSeenEnds.CompareAndSwap(ends, 0)
			}
			x.mu.Unlock()
		}
		return false
	}
	x.mu.Lock()
	for _, p := range mine { // until it is seen that they are not
		if !sure || slices.Contains(still, p) {
			x.sighted[p] = true
		}
	}
	x.mu.Unlock()
	round, since, changed := x.now()
	tableInGrace := c.remote.graceEnds.Load() != 0
	if tableInGrace && !x.by.Openings() && guard.TableGrace || round != "" && c.since(since) < x.lasts() && !x.over(ctx, round, since) {
		x.await(ctx, changed, c.opts.RenewEvery) // the table is in Grace, or another session ends them
		return true
	}
	// Others see it, too. One of them is enough.
	x.await(ctx, changed, time.Duration(mathrand.Int64N(int64(c.opts.RetryEvery/5))))
	if now, _, _ := x.now(); now == round {
		x.end(ctx, round)
	}
	return true
}

// lasts returns how long no other round begins: the round of a crashed process is over then. A
// session with many rows to reclaim has not spoken before, and would begin again with another one.
func (x *rounds) lasts() time.Duration {
	c := x.c
	return max(c.graceTime()/2, c.speaksApart()+c.renewEvery()+c.silence()+c.opts.RetryEvery)
}

// over reports whether a round is complete, and the session that began it has had the time to end
// its Graces. Those of a failover since then need another one.
func (x *rounds) over(ctx context.Context, round string, since time.Time) bool {
	if x.c.since(since) < x.c.roundAge()+2*x.c.opts.RetryEvery {
		return false
	}
	r, err := x.renew(ctx, fallback.RoundCall{Ask: true})
	return err == nil && r.Round.Name == round && r.Round.Complete
}

// await waits until the round is another one, or a hint comes, for a while at most.
func (x *rounds) await(ctx context.Context, changed <-chan struct{}, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// end begins a round after another one, and ends the Graces that it has seen before, when it is
// complete.
func (x *rounds) end(ctx context.Context, after string) {
	c := x.c
	began := c.now()
	graces, sure := x.graces(ctx)
	// A moment after a failover some calls go to the server before: a Grace that is left out has to
	// wait for the next round.
	for !sure && c.since(began) < c.opts.RetryEvery && sleep(ctx, c.opts.RetryEvery/4) {
		graces, sure = x.graces(ctx)
	}
	seen := c.now()
	if len(graces) == 0 {
		sleep(ctx, c.opts.RenewEvery)
		return
	}
	round, r, err := x.begin(ctx, after)
	if err != nil || r.Round.Name != round || r.Grace > 0 && !x.by.Openings() && guard.TableGrace {
		sleep(ctx, c.opts.RetryEvery)
		return
	}
	x.tell(ctx)
	if !x.complete(ctx, round, c.now()) {
		return
	}
	if !guard.SightedBefore {
		graces, _ = x.graces(ctx)
	}
	for {
		ended, failed := x.endGraces(ctx, graces)
		if len(failed) < len(graces) { // or a call has ended them that was not answered
			x.askAgain()
			x.tell(ctx)
		}
		if ended > 0 {
			c.opts.Logger.Info("holdfast: Grace ends early", "partitions", ended, "after", c.since(seen))
		}
		if graces = failed; len(graces) == 0 || c.since(seen) > c.graceTime() || !sleep(ctx, c.opts.RetryEvery) || !x.still(ctx, round) {
			return
		}
	}
}

// graces returns the named Graces that partitions are in. sure reports whether all were looked at.
func (x *rounds) graces(ctx context.Context) (all []fallback.NamedGrace, sure bool) {
	c := x.c
	every := make([]uint32, len(c.parts))
	for i := range every {
		every[i] = uint32(i)
	}
	inGrace, sure := x.find(ctx, every)
	call, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	defer cancel()
	for _, g := range x.by.Graces(call, inGrace) {
		if g.Err != nil {
			sure = false
		} else if g.Name != "" {
			all = append(all, g)
		}
	}
	return all, sure
}

// begin begins a round after another one, and returns the table's answer. Without an answer it asks
// for the present round: one that was begun all the same would be waited for as another session's.
// It does not begin it again, as the name is for one round.
func (x *rounds) begin(ctx context.Context, after string) (round string, r fallback.Renewal, err error) {
	round = rand.Text()
	if !guard.RoundUnique {
		round = "round"
	}
	r, err = x.renew(ctx, fallback.RoundCall{Begin: round, After: after})
	for try := 0; try < 2 && err != nil && sleep(ctx, x.c.opts.RetryEvery/4); try++ {
		r, err = x.renew(ctx, fallback.RoundCall{})
	}
	return round, r, err
}

// tell gives all sessions the hint.
func (x *rounds) tell(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, x.c.opts.CallTimeout)
	defer cancel()
	_ = x.by.TellRound(call) // they look by themselves with their next renewals
}

// complete waits until all sessions have spoken for a round that began then, or are dead. It
// reports false if another one has begun, or Grace is over.
func (x *rounds) complete(ctx context.Context, round string, begun time.Time) bool {
	c := x.c
	if guard.CompleteOld && !sleep(ctx, c.roundAge()) {
		return false
	}
	for c.since(begun) < c.graceTime() {
		r, err := x.renew(ctx, fallback.RoundCall{Ask: true})
		switch {
		case err == nil && r.Round.Name != round:
			return false
		case err == nil && r.Round.Complete:
			return true
		}
		if !sleep(ctx, c.opts.RetryEvery/2) {
			return false
		}
	}
	return false
}

// endGraces returns how many it has ended, and those without an answer. Each is ended by its name,
// so it may be asked for again.
func (x *rounds) endGraces(ctx context.Context, graces []fallback.NamedGrace) (ended int, failed []fallback.NamedGrace) {
	c := x.c
	for these := range slices.Chunk(graces, readsPerCall) {
		call, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
		sent := c.now()
		before := len(failed)
		var last error
		for i, a := range x.by.EndGraces(call, these) {
			if a.Err != nil {
				failed, last = append(failed, these[i]), a.Err
			} else if a.Ended {
				ended++
			}
		}
		cancel()
		c.calledMany(OpOwnership, len(these), len(failed)-before, sent, last)
	}
	return ended, failed
}

// find reads partitions, and returns those that are in Grace. sure reports whether all were read.
func (x *rounds) find(ctx context.Context, all []uint32) (inGrace []uint32, sure bool) {
	c := x.c
	var work sync.WaitGroup
	var mu mutex[leafRank] // protects inGrace, sure
	sure = true
	spread(c, &work, slices.Collect(slices.Chunk(all, readsPerCall)), verifyCalls, func(these []uint32) {
		reads := make([]fallback.Read, len(these))
		for i, p := range these {
			reads[i].Partition = p
		}
		call, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
		defer cancel()
		sent := c.now()
		n := 0
		var last error
		states := c.remote.ns.Verify(call, reads)
		mu.Lock()
		for i, s := range states {
			switch {
			case s.Err != nil:
				last, sure = s.Err, false
				n++
			case s.Record.Grace > 0:
				inGrace = append(inGrace, these[i])
			}
		}
		mu.Unlock()
		c.calledMany(OpVerify, len(reads), n, sent, last)
	})
	work.Wait()
	return inGrace, sure
}
