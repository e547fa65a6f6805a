package coord

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// cleanEvery is the number of renewals between two looks for rows of dead sessions, and
// cleanPartitions the number of partitions of one look. With the defaults one process looks at
// 1,021 partitions in 16 minutes.
const cleanEvery, cleanPartitions = 12, 32

// cleanQuickly is the number of partitions of one look, at each renewal, after the arbiter has lost
// data.
const cleanQuickly = 256

// cleanSessions is the number of sessions that one look asks about. If there are more, it asks
// about those that are not listed. cleanReleases is the number of rows that one call removes.
const cleanSessions, cleanReleases = 16, 256

// cleanQueues is the number of queues in which one look reads the first cleanWaiters requests.
// cleanAsked is the number of sessions that it asks about for that.
const cleanQueues, cleanWaiters, cleanAsked = 16, 256, 64

// cleaner removes the rows that crashed processes left. A row in the way of a caller is removed at
// once, by that caller; this is for keys that have no caller any more. It also removes those of
// this process that it had removed before, where an arbiter without messages has lost that: no
// other process can know. And it removes the requests of crashed processes in the queues of held
// keys: a caller asks only about sessions in its way.
type cleaner struct {
	renewals int         // since the last look; used by one goroutine, as is quick
	quick    int         // partitions that are looked at without a pause
	lost     time.Time   // when the arbiter has lost data last
	busy     atomic.Bool // a look is under way
	next     []uint32    // partitions still to be looked at, in random order; used by one look at a time

	looking atomic.Bool // a look for one key is under way

	mu    mutex[leafRank]      // protects the fields below
	keys  map[string]time.Time // when the rows of a key that is wanted are to be looked at: see contender.lookAround
	swept time.Time            // when keys without callers were left out
}

// due reports whether the rows of a key are to be looked at now: first after a RenewEvery, and then
// once in half of SessionTTL. It counts for the process, as a caller that only tries does not wait
// for so long.
func (x *cleaner) due(key string, now time.Time, o *Options) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	at, known := x.keys[key]
	if known && now.Before(at) {
		return false
	}
	if x.keys == nil {
		x.keys = make(map[string]time.Time)
	}
	if len(x.keys) >= maxVerdicts && now.Sub(x.swept) >= o.SessionTTL {
		x.swept = now
		old := now.Add(-o.SessionTTL) // a key that is wanted still has been due for less: its callers come again, or its look is under way
		maps.DeleteFunc(x.keys, func(_ string, at time.Time) bool { return at.Before(old) })
	}
	if known {
		x.keys[key] = now.Add(o.SessionTTL / 2)
	} else {
		x.keys[key] = now.Add(o.RenewEvery)
	}
	return known
}

// clean begins a look in the background when it is time to. One goroutine calls it at a time.
func (c *Coordinator) clean() {
	x, n := &c.remote.cleaner, cleanPartitions
	if grace, _ := c.sessions.graces(); grace.After(x.lost) {
		x.lost, x.quick = grace, 2*len(c.parts) // the rest of a round, and a whole one
	}
	if x.renewals++; x.quick > 0 {
		x.quick -= cleanQuickly
		n = cleanQuickly
	} else if x.renewals < cleanEvery {
		return
	}
	x.renewals = 0
	ns, ok := c.remote.ns.(fallback.Lister)
	if !ok {
		return
	}
	c.background(func() {
		if !x.busy.CompareAndSwap(false, true) {
			return
		}
		defer x.busy.Store(false)
		c.cleanOnce(c.life.ctx, ns, n)
	})
}

// cleanOnce asks whether the sessions of rows are dead, as the arbiter says (rule 2), and removes
// the rows of those that are. An error ends the look: these partitions come again in the next pass
// over all.
func (c *Coordinator) cleanOnce(ctx context.Context, ns fallback.Lister, most int) {
	x := &c.remote.cleaner
	if len(x.next) == 0 {
		for _, p := range rand.Perm(len(c.parts)) {
			x.next = append(x.next, uint32(p))
		}
	}
	n := min(most, len(x.next))
	these := x.next[:n]
	x.next = x.next[n:]
	rows := c.cleanThese(ctx, ns, these, func(string) bool { return true })
	if most == cleanPartitions { // else rows come first
		c.cleanWaiting(ctx, these, rows)
	}
}

// lookAround has those rows of the key looked at that the arbiter does not name, now and then. Of
// several blocks of permits in the way it names one. That one may be used for long, and another one
// may be a dead session's.
func (a *contender) lookAround() {
	c, x := a.p.c, &a.p.c.remote.cleaner
	key, mode := fallback.Split(a.Name)
	if mode.Kind != fallback.Permits || !x.looking.CompareAndSwap(false, true) {
		return // one look at a time, however many keys are wanted
	}
	if ns, ok := c.remote.ns.(fallback.Lister); ok && x.due(key, c.now(), &c.opts) {
		c.background(func() { c.cleanKey(ns, a.p, key) })
		return
	}
	x.looking.Store(false)
}

// cleanKey looks at the rows of one key.
func (c *Coordinator) cleanKey(ns fallback.Lister, p *partition, key string) {
	defer c.remote.cleaner.looking.Store(false)
	c.cleanThese(c.life.ctx, ns, []uint32{p.Number()}, func(name string) bool {
		of, _ := fallback.Split(name)
		return of == key
	})
}

// cleanThese is cleanOnce for these partitions, and for those rows that which chooses. It returns
// all rows of the partitions, nil after an error.
func (c *Coordinator) cleanThese(ctx context.Context, ns fallback.Lister, these []uint32, which func(name string) bool) (rows []map[string]fallback.Row) {
	call, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	sent := c.now()
	rows, err := ns.Rows(call, these)
	cancel()
	c.called(OpRows, sent, err)
	if err != nil {
		return nil
	}
	own := c.sessions.id()
	dead := make(map[string]bool)
	alive, err := c.listed(ctx, rows, own, which)
	if err != nil {
		return nil
	}
	for session := range alive {
		dead[session] = false
	}
	asked := 0
	for i, p := range these {
		var left []fallback.Release
		for key, row := range rows[i] {
			if !which(key) {
				continue
			}
			if row.Session == own {
				c.parts[p].message(hintUnknown, key, row.Identity)
				continue
			}
			gone, known := dead[row.Session]
			if !known && asked < cleanSessions {
				asked++
				gone = c.isDead(ctx, row.Session)
				dead[row.Session] = gone
			}
			if gone {
				left = append(left, fallback.Release{Partition: p, Key: key, Identity: row.Identity})
			}
		}
		if c.cleanUp(ctx, left) != nil {
			return nil
		}
	}
	return rows
}

// cleanUp removes the rows and requests that dead sessions have left.
func (c *Coordinator) cleanUp(ctx context.Context, left []fallback.Release) error {
	for these := range slices.Chunk(left, cleanReleases) {
		call, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
		sent := c.now()
		errs := c.remote.ns.Unlock(call, these)
		cancel()
		err := errors.Join(errs...)
		failed := 0
		for _, err := range errs {
			if err != nil {
				failed++
			}
		}
		c.calledMany(OpUnlock, len(these), failed, sent, err)
		if err != nil {
			return err
		}
	}
	return nil
}

// cleanWaiting removes the requests that dead sessions have in the queues of keys that are held, as
// rows tell.
func (c *Coordinator) cleanWaiting(ctx context.Context, these []uint32, rows []map[string]fallback.Row) {
	waiting := c.waitingFor(ctx, these, rows)
	if len(waiting) == 0 {
		return
	}
	call, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	sent := c.now()
	all, err := c.remote.ns.List(call) // after the queues: sessions that wait there were opened before
	cancel()
	c.called(OpList, sent, err)
	if err != nil {
		return
	}
	var left []fallback.Release
	dead := make(map[string]bool)
	for _, r := range waiting {
		if _, ok := all.Sessions[r.Identity.Session]; ok {
			continue
		}
		gone, known := dead[r.Identity.Session]
		if !known && len(dead) < cleanAsked {
			gone = c.isDead(ctx, r.Identity.Session) // as the request may have become a row meanwhile (rule 13)
			dead[r.Identity.Session] = gone
		}
		if gone {
			left = append(left, r)
		}
	}
	_ = c.cleanUp(ctx, left) // after an error they come again
}

// waitingFor returns requests of other sessions for some of the keys that have rows.
func (c *Coordinator) waitingFor(ctx context.Context, these []uint32, rows []map[string]fallback.Row) (waiting []fallback.Release) {
	ns, ok := c.remote.ns.(fallback.WaiterLister)
	if !ok {
		return nil
	}
	own := c.sessions.id()
	asked := make(map[string]bool)
	for i := range rows {
		for name := range rows[i] {
			key, _ := fallback.Split(name)
			switch {
			case asked[key]:
				continue
			case len(asked) == cleanQueues:
				return waiting
			}
			asked[key] = true
			call, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
			sent := c.now()
			all, err := ns.Waiters(call, these[i], key, cleanWaiters)
			cancel()
			c.called(OpRows, sent, err)
			if err != nil {
				return nil
			}
			for _, w := range all {
				if w.Session != own {
					waiting = append(waiting, w)
				}
			}
		}
	}
	return waiting
}

// listed returns the sessions that the arbiter lists, if more others than may be asked about one by
// one have rows that are looked at.
func (c *Coordinator) listed(ctx context.Context, rows []map[string]fallback.Row, own string, which func(name string) bool) (alive map[string]string, err error) {
	all := make(map[string]struct{})
	for _, part := range rows {
		for name, row := range part {
			if row.Session != own && which(name) {
				all[row.Session] = struct{}{}
			}
		}
	}
	if len(all) <= cleanSessions {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	defer cancel()
	sent := c.now()
	l, err := c.remote.ns.List(ctx)
	c.called(OpList, sent, err)
	return l.Sessions, err
}

// isDead asks the arbiter, and reports false where it does not answer.
func (c *Coordinator) isDead(ctx context.Context, session string) bool {
	return c.isDeadBy(ctx, session, c.stamp())
}

// isDeadBy is isDead of a process that has no session any more: its stamp is empty.
func (c *Coordinator) isDeadBy(ctx context.Context, session string, by fallback.Stamp) bool {
	ctx, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	defer cancel()
	sent := c.now()
	l, err := c.remote.ns.Dead(ctx, session, by)
	c.called(OpDead, sent, err)
	return err == nil && l.Dead
}
