package coord

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
)

// check is what this process believes to hold in a partition at some moment.
type check struct {
	p     *partition
	keys  []string
	rows  []fallback.Row
	own   *ownership     // a copy; nil: this node does not serve it
	busy  int            // the first ones have been in use since they were last verified
	rest  bool           // there is another check of the partition, with more of its keys
	known fallback.Token // what was seen before the arbiter is asked
}

// check lists the holds of a session.
func (p *partition) check(s *session) check {
	k := check{p: p}
	p.mu.Lock()
	defer p.mu.Unlock()
	k.known = p.seen
	if p.own != nil && p.own.session == s {
		o := *p.own
		k.own = &o
	}
	if p.holds == 0 {
		return k
	}
	now, when := p.c.now(), p.c.adoption()
	for key, e := range p.entries {
		if e.q.State() == handoff.Idle || e.hold.session != s || e.hold.confirmed.IsZero() || p.settleDown(&e.hold, when, now) {
			continue
		}
		k.keys, k.rows = append(k.keys, key), append(k.rows, e.hold.row)
		if e.used {
			// A process that gets no messages has to find out in this way that somebody else waits.
			last := len(k.keys) - 1
			k.keys[k.busy], k.keys[last] = k.keys[last], k.keys[k.busy]
			k.rows[k.busy], k.rows[last] = k.rows[last], k.rows[k.busy]
			k.busy++
			e.used = false
		}
	}
	return k
}

// compare confirms the holds that the arbiter knows, as of the moment when it was asked. Those that it does not know are
// to be reclaimed in Grace, and lost otherwise.
func (p *partition) compare(k check, s fallback.State, sent time.Time) claims {
	var a after
	missing := claims{p: p}
	p.mu.Lock()
	p.sawEpoch(s.Record)
	if k.own != nil && p.own != nil && p.own.epoch == k.own.epoch {
		switch r := s.Record; {
		case r.Owner == k.own.session.id && r.Epoch == k.own.epoch:
			p.own.confirmed = sent
			if r.Revoked {
				defer p.revoked(r.Epoch)
			}
		case r.Grace > 0:
			missing.own = k.own
		default:
			p.letGo(p.c.now(), &a)
		}
	}
	for i, key := range k.keys {
		e := p.holding(key, k.rows[i])
		switch {
		case e == nil || e.hold.confirmed.IsZero(): // given back meanwhile, or it rests on its owner
		case s.Rows[i] == k.rows[i]:
			e.hold.confirmed = sent
			if i < k.busy && s.Wanted[i] && e.q.Recall(p.c.now()) == handoff.GiveBack {
				p.giveBack(e, &a)
			}
		case s.Record.Grace > 0:
			missing.holds = append(missing.holds, e.hold.asClaim(key))
		default:
			p.lose(e, Superseded, &a)
		}
	}
	p.offer(k, s.Record, &a)
	p.mu.Unlock()
	a.do(p.c)
	if s.Record.Grace > 0 {
		p.c.sessions.sweep(p.c.graceBegan(sent, s.Record.Grace))
	}
	return missing
}

// holding returns the key's entry if it has that very hold.
func (p *partition) holding(key string, row fallback.Row) *entry {
	if e := p.entries[key]; e != nil && e.q.State() != handoff.Idle && e.hold.row == row {
		return e
	}
	return nil
}

// verify reads every RenewEvery what the arbiter knows of this process's holds.
func (c *Coordinator) verify(ctx context.Context, s *session) {
	timer := time.NewTimer(c.opts.RenewEvery)
	defer timer.Stop()
	begun := c.now()
	late := c.sessions.sweepSince(begun.Add(-c.graceTime())) // the last session may not have come to it
	x := newSweep(len(c.parts), begun, !late)
	verified, due := begun, begun.Add(c.opts.RenewEvery)
	if late {
		timer.Reset(0)
	}
	for {
		select {
		case <-timer.C:
		case <-c.sessions.sweeps:
		case <-ctx.Done():
			return
		}
		begin := c.now()
		_, other := c.sessions.graces()
		list, more := c.toSweep(x)
		held := !begin.Before(due) || other.After(verified)
		if held || len(list) > 0 {
			err := c.verifyOnce(ctx, s, x, held, list)
			switch {
			case held && err != nil:
				due = c.now().Add(c.opts.RetryEvery)
			case held:
				verified, due = begin, c.now().Add(c.opts.RenewEvery)
			}
			more = more || err != nil
		}
		next := c.left(due)
		if more {
			next = min(next, c.opts.RetryEvery)
		}
		timer.Reset(max(next, 0))
	}
}

// readsPerCall bounds one call, so that it ends in time and others come in between; verifyCalls is how many are under way
// at the same time, without those that a server holds up.
const readsPerCall, verifyCalls = 256, 8

// verifyOnce looks at what the session has, if held, and at the partitions listed.
func (c *Coordinator) verifyOnce(ctx context.Context, s *session, x *sweep, held bool, list []uint32) error {
	slices.Sort(list)
	if c.cluster != nil {
		c.cluster.asks.Store(asksPerPeriod)
	}
	var checks []check
	for i := range c.parts {
		listed := contains(list, uint32(i))
		if !held && !listed {
			continue
		}
		if k := c.parts[i].check(s); listed || len(k.keys) > 0 || k.own != nil {
			checks = append(checks, k)
		}
	}
	var work sync.WaitGroup
	var mu mutex[leafRank] // protects errs
	var errs []error
	spread(c, &work, inReads(checks), verifyCalls, func(these []check) {
		err := c.verifyThese(ctx, x, these)
		mu.Lock()
		errs = append(errs, err)
		mu.Unlock()
	})
	work.Wait()
	c.noteConfirmations()
	return errors.Join(errs...)
}

// noteConfirmations finds out which ownership was confirmed longest ago.
func (c *Coordinator) noteConfirmations() {
	if c.cluster == nil {
		return
	}
	c.confirmations.begin()
	var oldest time.Time
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		if p.own != nil {
			oldest = earlier(oldest, p.own.confirmed)
		}
		p.mu.Unlock()
	}
	c.confirmations.end(oldest)
}

// verifyThese verifies holds in some partitions. What one server does not answer does not spoil what others do.
func (c *Coordinator) verifyThese(ctx context.Context, x *sweep, checks []check) error {
	reads := make([]fallback.Read, len(checks))
	for i, k := range checks {
		reads[i] = fallback.Read{Partition: k.p.number, Keys: k.keys, Busy: k.busy}
	}
	call, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	sent := c.now()
	states := c.ns.Verify(call, reads)
	cancel()
	var missing []claims
	var failed error
	var doubtful []int
	n := 0
	for i, k := range checks {
		switch err := states[i].Err; {
		case err != nil:
			failed = err
			n++
		case k.p.older(k, states[i]):
			doubtful = append(doubtful, i)
		default:
			if !k.rest {
				x.saw(k.p.number, sent, states[i].Record.Grace)
			}
			missing = append(missing, k.p.compare(k, states[i], sent))
		}
	}
	c.calledMany(OpVerify, len(checks), n, sent, failed)
	more, err := c.verifyOlder(ctx, x, checks, states, doubtful, sent)
	return errors.Join(failed, err, c.reclaim(ctx, append(missing, more...)))
}
