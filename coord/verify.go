package coord

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
)

// check is what this process believes to hold in a partition at some moment.
type check struct {
	p    *partition
	keys []string
	rows []fallback.Row
	own  *ownership // a copy; nil: this node does not serve it
	busy int        // the first ones have been in use since they were last verified
}

// check lists the holds of a session.
func (p *partition) check(s *session) check {
	k := check{p: p}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own != nil && p.own.session == s {
		o := *p.own
		k.own = &o
	}
	if p.holds == 0 {
		return k
	}
	k.keys, k.rows = make([]string, 0, p.holds), make([]fallback.Row, 0, p.holds)
	for key, e := range p.entries {
		if e.q.State() == handoff.Idle || e.hold.session != s || e.hold.confirmed.IsZero() {
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

// claim is something that the arbiter does not know of: a row, or without a key an ownership, that it lost in a failover;
// or a hold that has had no row.
type claim struct {
	p     *partition
	key   string
	row   fallback.Row
	adopt bool // it has had none

	session string // of an ownership
	epoch   uint32
}

// compare confirms the holds that the arbiter knows, as of the moment when it was asked. Those that it does not know are
// to be reclaimed in Grace, and lost otherwise.
func (p *partition) compare(k check, s fallback.State, sent time.Time) (claims []claim) {
	var a after
	p.mu.Lock()
	if k.own != nil && p.own != nil && p.own.epoch == k.own.epoch {
		switch r := s.Record; {
		case r.Owner == k.own.session.id && r.Epoch == k.own.epoch:
			p.own.confirmed = sent
			if r.Revoked {
				defer p.revoked(r.Epoch)
			}
		case r.Grace > 0:
			claims = append(claims, claim{p: p, epoch: k.own.epoch, session: k.own.session.id})
		default:
			p.letGo(p.c.now(), &a)
		}
	}
	for i, key := range k.keys {
		e := p.holding(key, k.rows[i])
		switch {
		case e == nil: // given back meanwhile
		case s.Rows[i] == k.rows[i]:
			e.hold.confirmed = sent
			if i < k.busy && s.Wanted[i] && e.q.Recall(p.c.now()) == handoff.GiveBack {
				p.giveBack(e, &a)
			}
		case s.Record.Grace > 0:
			claims = append(claims, claim{p: p, key: key, row: k.rows[i]})
		default:
			p.lose(e, Superseded, &a)
		}
	}
	p.age()
	p.mu.Unlock()
	a.do(p.c)
	if s.Record.Grace > 0 {
		p.c.sessions.sweep(p.c.graceBegan(sent, s.Record.Grace))
	}
	return claims
}

// holding returns the key's entry if it has that very hold.
func (p *partition) holding(key string, row fallback.Row) *entry {
	if e := p.entries[key]; e != nil && e.q.State() != handoff.Idle && e.hold.row == row {
		return e
	}
	return nil
}

// age finds out anew which hold was confirmed longest ago.
func (p *partition) age() {
	first := true
	for _, e := range p.entries {
		if e.q.State() != handoff.Idle && !e.hold.confirmed.IsZero() && (first || e.hold.confirmed.Before(p.oldest)) {
			p.oldest, first = e.hold.confirmed, false
		}
	}
	if first {
		p.oldest = time.Time{}
	}
}

// reclaimers is how many rows are reclaimed at the same time.
const reclaimers = 32

// reclaim restores rows after a failover. It takes partitions by turns, and leaves one that does not answer alone, so that a
// server that is down does not hold up what others are to be told in time.
func (c *Coordinator) reclaim(ctx context.Context, claims []claim) error {
	if len(claims) == 0 {
		return nil
	}
	c.opts.Logger.Info("holdfast: reclaiming or adopting", "count", len(claims))
	var work sync.WaitGroup
	var mu mutex // protects failed
	failed := make(map[*partition]error)
	spread(c, &work, byTurns(claims), reclaimers, func(x claim) {
		mu.Lock()
		err := failed[x.p]
		mu.Unlock()
		if err != nil {
			return // it is claimed again soon
		}
		if err := c.reclaimOne(ctx, x); err != nil {
			mu.Lock()
			failed[x.p] = err
			mu.Unlock()
		}
	})
	work.Wait()
	for _, err := range failed {
		return err // one is enough
	}
	return nil
}

// byTurns puts the first claim of each partition first, then the second ones, and so on.
func byTurns(claims []claim) []claim {
	var turns [][]claim
	seen := make(map[*partition]int)
	for _, x := range claims {
		n := seen[x.p]
		if seen[x.p]++; n == len(turns) {
			turns = append(turns, nil)
		}
		turns[n] = append(turns[n], x)
	}
	return slices.Concat(turns...)
}

// unsure notes that a hold may get its row yet, also when it has been given back.
func (p *partition) unsure(x claim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.holding(x.key, x.row); e != nil {
		e.hold.unsure = true // giveBack is to see to it
		return
	}
	p.c.doubts.add(doubt{p, x.key, x.row.Identity, p.c.now().Add(p.c.opts.SessionTTL)})
}

func (c *Coordinator) reclaimOne(ctx context.Context, x claim) error {
	ctx, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	defer cancel()
	sent := c.now()
	var v fallback.Verdict
	var err error
	switch {
	case x.key == "":
		v, err = c.ns.ReclaimOwner(ctx, x.p.number, x.session, x.epoch)
	case x.adopt:
		v, err = c.ns.Adopt(ctx, x.p.number, x.key, x.row)
	default:
		v, err = c.ns.ReclaimRow(ctx, x.p.number, x.key, x.row)
	}
	c.called(OpReclaim, sent, err)
	if err != nil {
		if x.key != "" {
			x.p.unsure(x)
		}
		return err
	}
	var a after
	x.p.mu.Lock()
	if x.key == "" {
		if x.p.own != nil && x.p.own.epoch == x.epoch {
			if v == fallback.Granted {
				x.p.own.confirmed = sent
			} else {
				x.p.letGo(c.now(), &a)
			}
		}
		x.p.mu.Unlock()
		a.do(c)
		return nil
	}
	e := x.p.holding(x.key, x.row)
	switch {
	case e == nil && v == fallback.Granted:
		// Given back meanwhile: the release may have come before the row was back.
		a.releases = append(a.releases, x.p.release(x.key, x.row.Identity))
	case e == nil:
	case v == fallback.Granted:
		e.hold.confirmed = sent
		x.p.age()
	default:
		x.p.lose(e, Superseded, &a)
	}
	x.p.mu.Unlock()
	a.do(c)
	return nil
}
