package coord

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// unreached is the sessions of owners that this node has no stream to, and since when. It outlives
// the single request, so that callers that wait for moments only get through in the end.
type unreached struct {
	mu mutex[leafRank] // protects m
	m  map[string]silence
}

type silence struct {
	since  time.Time
	broken bool // there was a stream
}

// lost notes that a stream has ended.
func (u *unreached) lost(session string, now time.Time) { u.put(session, silence{now, true}) }

// found notes that there is one.
func (u *unreached) found(session string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.m, session)
}

// long tells whether there has been no stream to a session for so long that its partitions should
// go key by key. After one that broke this is when a new one would have come; a node that has only
// just been heard of may still be about to connect.
func (u *unreached) long(session string, now time.Time, o *Options) bool {
	u.mu.Lock()
	s, ok := u.m[session]
	u.mu.Unlock()
	if !ok {
		s = silence{since: now}
		u.put(session, s)
	}
	if s.broken {
		return now.Sub(s.since) > o.RetryEvery
	}
	return now.Sub(s.since) > o.RenewEvery
}

// maxUnreached is when to forget those that are silent for longest: sessions end.
const maxUnreached = 256

func (u *unreached) put(session string, s silence) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.m == nil {
		u.m = make(map[string]silence)
	}
	if len(u.m) >= maxUnreached {
		oldest, since := "", s.since
		for id, x := range u.m {
			if x.since.Before(since) {
				oldest, since = id, x.since
			}
		}
		delete(u.m, oldest)
	}
	u.m[session] = s
}

// makeShared makes a partition Shared that a session of a cluster owns, in the background: this
// process cannot ask the owner for keys, as one without a cluster.
func (p *partition) makeShared(a *contender, r fallback.Record) {
	s := p.c.sessions.current()
	_, dead := p.c.sessions.others.ask(a, p.c, r.Owner)
	p.mu.Lock()
	defer p.mu.Unlock()
	if s == nil || !p.BeginFreeing() {
		return
	}
	p.c.background(func() {
		defer func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.EndFreeing()
		}()
		p.c.freeOwned(s, p.Number(), r, dead)
	})
}

// freeOwned asks the owner to demote, once, or takes the partition and demotes it if the owner is
// dead. An owner that lives finds in the record that it was asked.
func (c *Coordinator) freeOwned(s *session, p uint32, r fallback.Record, dead bool) {
	ctx, cancel := context.WithTimeout(c.life.ctx, c.opts.CallTimeout)
	defer cancel()
	start := c.now()
	var err error
	switch {
	case r.Owner == s.ID: // a process without a cluster, which has announced nothing: an earlier call was not answered (rule 6)
		if !c.parts[p].forswear(r.Epoch) { // so that it is never served (acquire.go)
			return
		}
		_, err = c.remote.ns.DemoteUnserved(ctx, p, s.ID, r.Epoch)
	case !dead && r.Revoked:
		return
	case !dead:
		err = c.remote.ns.Revoke(ctx, p, r.Epoch, s.ID)
	default:
		var got fallback.Acquisition
		got, err = c.remote.ns.Acquire(ctx, p, s.ID, fallback.Expect{Epoch: r.Epoch, Owner: r.Owner, OwnerDead: true})
		if err == nil && got.Verdict == fallback.Granted && c.parts[p].forswear(got.Record.Epoch) {
			_, err = c.remote.ns.DemoteUnserved(ctx, p, s.ID, got.Record.Epoch)
		}
	}
	c.called(OpOwnership, start, err)
}
