package coord

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// snapshot is this process's view of its holds in a partition at some moment.
type snapshot struct {
	p *partition
	lease.Snapshot
}

// snapshot lists the holds of a session; all: for a round.
func (p *partition) snapshot(s *session, all bool) snapshot {
	now := p.lock()
	defer p.mu.Unlock()
	return snapshot{p, p.Snapshot(s.Session, lease.Look{All: all, Silent: silent(p.c.remote.ns)}, now)}
}

// older reports whether an answer may be of a record with older data than this process had seen
// when it asked.
func (p *partition) older(k snapshot, s fallback.State) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Older(k.Snapshot, s)
}

// compare confirms the holds that the arbiter knows, as of the moment when it was asked. It returns
// the claims to be reclaimed.
func (p *partition) compare(k snapshot, s fallback.State, sent time.Time) claims {
	var a after
	now := p.lock()
	missing, revoked := p.Compare(k.Snapshot, s, sent, now, &a.Effects)
	p.unlock(&a)
	a.do(p.c)
	p.c.graceSeen(p.Number(), sent, s.Record.Grace)
	if revoked > 0 {
		p.revoked(revoked)
	}
	return claims{p, missing}
}

// verify reads the arbiter's records of this process's holds every RenewEvery.
func (c *Coordinator) verify(ctx context.Context, s *session) {
	timer := time.NewTimer(c.opts.RenewEvery)
	defer timer.Stop()
	begun := c.now()
	late := c.sessions.graceSince(begun.Add(-c.graceTime())) // the last session may not have come to it
	x := newSweep(len(c.parts), begun, !late)
	verified, due := begun, begun.Add(c.opts.RenewEvery)
	if late {
		timer.Reset(0)
	}
	for {
		var passed chan<- error // the session is to speak for a round
		select {
		case <-timer.C:
		case <-c.sessions.sweeps:
		case passed = <-s.rounds.wanted():
		case <-ctx.Done():
			return
		}
		begin := c.now()
		_, other := c.sessions.graces()
		list, more := c.toSweep(x)
		held := !begin.Before(due) || other.After(verified) || passed != nil
		if held || len(list) > 0 {
			err := c.verifyOnce(ctx, s, x, looks{held, passed != nil, list})
			switch {
			case held && err != nil:
				due = c.now().Add(c.opts.RetryEvery)
			case held:
				verified, due = begin, c.now().Add(c.opts.RenewEvery)
			}
			more = more || err != nil
			if passed != nil {
				passed <- err
			}
		}
		next := c.left(due)
		if more {
			next = min(next, c.opts.RetryEvery)
		}
		timer.Reset(max(next, 0))
	}
}

// keysPerCall bounds the rows that one call reads.
const keysPerCall = 4096

// inReads splits snapshots into those that one call makes.
func inReads(all []snapshot) (calls [][]snapshot) {
	var call []snapshot
	keys := 0
	next := func() {
		if len(call) > 0 {
			calls, call, keys = append(calls, call), nil, 0
		}
	}
	for _, k := range all {
		for first := true; first || len(k.Keys) > 0; first = false {
			part := k
			part.Further = !first
			n := min(len(k.Keys), keysPerCall)
			part.Keys, part.Rows, part.Busy = k.Keys[:n], k.Rows[:n], min(k.Busy, n)
			k.Keys, k.Rows, k.Busy, k.Own = k.Keys[n:], k.Rows[n:], k.Busy-part.Busy, lease.Tenure{}
			if len(call) == readsPerCall || keys+n > keysPerCall {
				next()
			}
			call, keys = append(call, part), keys+n
		}
	}
	next()
	return calls
}

// looks is the scope of a look: the session's holds, if held, and without exceptions for a round;
// and the partitions listed.
type looks struct {
	held, round bool
	list        []uint32
}

// asksPerPeriod is how many holds are offered to their owners per RenewEvery at most (rule 17).
const asksPerPeriod = 1 << 15

// verifyOnce looks.
func (c *Coordinator) verifyOnce(ctx context.Context, s *session, x *sweep, at looks) error {
	slices.Sort(at.list)
	if c.cluster != nil {
		c.debts.offers.Store(asksPerPeriod)
	}
	var snapshots []snapshot
	for i := range c.parts {
		listed := contains(at.list, uint32(i))
		if !at.held && !listed {
			continue
		}
		if k := c.parts[i].snapshot(s, at.round); listed || len(k.Keys) > 0 || k.Own.Epoch > 0 {
			snapshots = append(snapshots, k)
		}
	}
	var work sync.WaitGroup
	var mu mutex[leafRank] // protects errs
	var errs []error
	spread(c, &work, inReads(snapshots), verifyCalls, func(these []snapshot) {
		err := c.verifyThese(ctx, x, these)
		mu.Lock()
		errs = append(errs, err)
		mu.Unlock()
	})
	work.Wait()
	c.noteConfirmations()
	return errors.Join(errs...)
}

// verifyThese verifies holds in some partitions. A server that does not answer does not spoil the
// answers of the others.
func (c *Coordinator) verifyThese(ctx context.Context, x *sweep, snapshots []snapshot) error {
	return c.answered(ctx, func(ctx context.Context, there func()) error { return c.verifyNow(ctx, x, snapshots, there) })
}

// verifyNow calls there when it has an answer.
func (c *Coordinator) verifyNow(ctx context.Context, x *sweep, snapshots []snapshot, there func()) error {
	reads := make([]fallback.Read, len(snapshots))
	for i, k := range snapshots {
		reads[i] = fallback.Read{Partition: k.p.Number(), Keys: k.Keys, Busy: k.Busy}
	}
	call, cancel := context.WithTimeout(ctx, c.answers())
	sent := c.now()
	states := c.remote.ns.Verify(call, reads)
	cancel()
	there()
	var missing []claims
	var failed error
	var doubtful []int
	n := 0
	for i, k := range snapshots {
		switch err := states[i].Err; {
		case err != nil:
			failed = err
			n++
		case k.p.older(k, states[i]):
			doubtful = append(doubtful, i)
		default:
			if !k.Further {
				x.saw(k.p.Number(), sent, states[i].Record.Grace)
			}
			missing = append(missing, k.p.compare(k, states[i], sent))
		}
	}
	c.calledMany(OpVerify, len(snapshots), n, sent, failed)
	more, err := c.verifyOlder(ctx, x, snapshots, states, doubtful, sent)
	return errors.Join(failed, err, c.reclaim(ctx, append(missing, more...), c.opts.CallTimeout, nil))
}

// verifyOlder tells the arbiter of the records that were seen in the partitions where it may have
// older data. Then it compares the holds with the answers to Verify, with Grace where that has
// begun.
func (c *Coordinator) verifyOlder(ctx context.Context, x *sweep, snapshots []snapshot, states []fallback.State, which []int, sent time.Time) ([]claims, error) {
	var work sync.WaitGroup
	var mu mutex[leafRank] // protects missing, failed
	var missing []claims
	var failed error
	spread(c, &work, which, reclaimers, func(i int) {
		k, s := snapshots[i], states[i]
		err := errNoAnswer
		defer func() { // also if a trace function ends the goroutine
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = err
			}
		}()
		r, said := c.contradict(ctx, k.p, k.Known)
		if err = said; err != nil {
			return
		}
		if s.Record = r; !k.Further {
			x.saw(k.p.Number(), sent, r.Grace)
		}
		m := k.p.compare(k, s, sent)
		mu.Lock()
		defer mu.Unlock()
		missing = append(missing, m)
	})
	work.Wait()
	return missing, failed
}
