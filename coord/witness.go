package coord

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/guard"
)

// saw notes a token that the arbiter has told of, or an epoch, as a token with the number 0. It is remembered for as long
// as the process lives: a lower one that the arbiter tells of later is old data. p.mu is held.
func (p *partition) saw(t fallback.Token) {
	if guard.Witness {
		p.seen = max(p.seen, t)
	}
}

// sawEpoch also forgets a token that an owner gave, if its epoch is not one that the arbiter knows: the owner was wrong.
func (p *partition) sawEpoch(r fallback.Record) {
	p.saw(fallback.MakeToken(r.Epoch, 0))
	if p.brought.Epoch() > r.Epoch {
		p.brought = 0
	}
}

// known returns what was seen by now. What is asked after that must not be answered with less.
func (p *partition) known() fallback.Token {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

// older reports whether an answer may be of a record with older data than this process had seen when it asked: it is of an
// earlier epoch, or lacks the row of a hold in force. The arbiter decides which of the two it is, as it knows the number.
func (p *partition) older(k check, s fallback.State) bool {
	if s.Record.Grace > 0 {
		return false
	}
	if s.Record.Epoch < k.known.Epoch() {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, key := range k.keys {
		if e := p.holding(key, k.rows[i]); e != nil && s.Rows[i] != k.rows[i] && !e.hold.confirmed.IsZero() {
			return true
		}
	}
	return false
}

// witness tells the arbiter of a token that this process has seen. If the arbiter has older data, Grace begins, and all
// partitions are looked at.
func (c *Coordinator) witness(ctx context.Context, p *partition, known fallback.Token) (fallback.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	defer cancel()
	sent := c.now()
	r, err := c.ns.Witness(ctx, p.number, known)
	c.called(OpVerify, sent, err)
	if err != nil || r.Grace == 0 {
		return r, err
	}
	c.sessions.sweep(c.graceBegan(sent, r.Grace))
	return r, nil
}

// contradict is witness after an answer that may be of older data, outside of Grace.
func (c *Coordinator) contradict(ctx context.Context, p *partition, known fallback.Token) (fallback.Record, error) {
	before := c.sessions.sweepSince(c.now().Add(-c.opts.Grace))
	r, err := c.witness(ctx, p, known)
	if err == nil && r.Grace > 0 && !before { // else it is the same incident
		c.opts.Logger.Warn("holdfast: the arbiter has older data than before, under the same identity: Grace",
			"partition", p.number, "seen", known.String(), "left", r.Grace)
	}
	return r, err
}

// outdated reports whether an answer is of older data than this process had seen when it made the request.
func (a *acquisition) outdated(ans fallback.LockAnswer) bool {
	return ans.Record.Grace == 0 &&
		(ans.Record.Epoch < a.known.Epoch() || ans.Verdict == fallback.Granted && ans.Token <= a.known)
}

// refuse gives back what was granted from older data, and tells the arbiter. It returns as judge does.
func (a *acquisition) refuse(ans fallback.LockAnswer) time.Duration {
	p := a.p
	if ans.Verdict == fallback.Granted {
		p.mu.Lock()
		id := a.id
		a.id = fallback.Identity{}
		p.mu.Unlock()
		if id != (fallback.Identity{}) {
			p.c.releases.add(p.release(a.key, id))
		}
	}
	o := &p.c.opts
	// Not ended by the caller's ctx, like the request.
	r, err := p.c.contradict(context.Background(), p, a.known)
	if err != nil {
		return a.settle(fmt.Errorf("%w: the arbiter has older data than before: %w", ErrUnavailable, err), tries, jitter(o.RetryEvery))
	}
	err = fmt.Errorf("%w: the arbiter has older data than before, nothing is granted for %v (Options.Grace)", ErrUnavailable, r.Grace)
	return a.settle(err, tries, min(r.Grace+time.Millisecond, o.RenewEvery))
}

// verifyOlder tells the arbiter of what was seen in the partitions where it may have older data, and then compares what it has
// answered to Verify, with Grace where that has begun.
func (c *Coordinator) verifyOlder(ctx context.Context, x *sweep, checks []check, states []fallback.State, which []int, sent time.Time) ([]claims, error) {
	var work sync.WaitGroup
	var mu mutex[leafRank] // protects missing, failed
	var missing []claims
	var failed error
	spread(c, &work, which, reclaimers, func(i int) {
		k, s := checks[i], states[i]
		r, err := c.contradict(ctx, k.p, k.known)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed = err
			return
		}
		if s.Record = r; !k.rest {
			x.saw(k.p.number, sent, r.Grace)
		}
		missing = append(missing, k.p.compare(k, s, sent))
	})
	work.Wait()
	return missing, failed
}
