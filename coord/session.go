package coord

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// openSession makes a new session: attached, listening, open.
func (c *Coordinator) openSession(ctx context.Context) (*session, error) {
	if c.remote.ns == nil {
		start := c.now()
		// Formatting takes some round trips.
		ctx, cancel := context.WithTimeout(ctx, c.opts.starting())
		defer cancel()
		ns, err := c.remote.arbiter.Attach(ctx, c.opts.settings())
		c.called(OpAttach, start, err)
		if err != nil {
			return nil, err
		}
		c.remote.ns = ns
		c.remote.namespace.Store(&ns)
		if x, ok := ns.(fallback.Prompter); ok {
			c.remote.prompt.Store(x.Prompt())
		}
		if x, ok := ns.(fallback.Queuer); ok {
			c.remote.queues.Store(x.Queues())
		}
		if x, ok := ns.(fallback.Courier); ok && silent(ns) {
			x.Carry(c.carry)
		}
		c.advise()
		if !ns.Guarded() {
			c.opts.Logger.Warn("holdfast: the arbiter does not tell its identity: failover is not guarded",
				"advice", "the server does not tell its identity: permit INFO, or a failover goes unnoticed, and two processes may have a lock")
		}
	}
	s := &session{Session: lease.NewSession(rand.Text(), time.Time{}), ended: make(chan struct{})}
	s.guarded, s.rounds = c.newGuarded(s), c.newRounds(s)
	start := c.now()
	// Before the first request, so that no message about it is missed. Both calls may have to make
	// a connection, and there is nothing yet that a late answer could harm.
	call, cancel := context.WithTimeout(ctx, lateCalls*c.opts.CallTimeout)
	stop, err := c.remote.ns.Listen(call, s.ID, func(m fallback.Message) { c.handle(s, m) })
	cancel()
	c.called(OpListen, start, err)
	if err != nil {
		return nil, err
	}
	sent := c.now()
	call, cancel = context.WithTimeout(ctx, lateCalls*c.opts.CallTimeout)
	r, err := c.remote.ns.Open(call, s.ID, c.registration())
	cancel()
	c.called(OpOpen, sent, err)
	s.opened = sent
	until := sent.Add(c.opts.lease())
	if err == nil && r.Alive {
		err = c.newcomer(ctx, r) // E6
	}
	if err == nil && (!r.Alive || lease.Past(until, c.now())) {
		err = errors.New("coord: the session was not opened in time")
	}
	if err != nil {
		stop()
		return nil, err
	}
	s.stopListening = sync.OnceFunc(stop)
	s.seen.told(r.Expiry, sent, c.now())
	s.rounds.opened(r.Round)
	c.seen(r, "")
	s.ending.sleeps(c.moment()) // until watch begins, it is late
	s.leased(until)
	if c.cluster != nil {
		c.cluster.session(s.ID) // before anything is asked for in its name
		c.cluster.ring.Search() // before, the other nodes may not have been known
	}
	c.tells.stats.sessions.Add(1) // before Stats names it
	c.sessions.set(s)
	if f := c.opts.Trace.Session; f != nil {
		f(SessionInfo{ID: s.ID})
	}
	return s, nil
}

func (c *Coordinator) closeSession(s *session) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.opts.CallTimeout)
	defer cancel()
	start := c.now()
	err := c.remote.ns.CloseSession(ctx, s.ID)
	c.called(OpCloseSession, start, err)
	return err
}

// keepSessions keeps a session alive, and makes a new one when it has died, until the coordinator
// stops.
func (c *Coordinator) keepSessions(s *session) {
	for warned := false; ; {
		if s == nil {
			var err error
			if s, err = c.openSession(c.life.ctx); err != nil {
				c.sessions.why.Store(&err)
				again := jitter(c.opts.RetryEvery)
				if errors.Is(err, fallback.ErrWait) {
					again = longerGrace
				}
				if !warned && c.life.ctx.Err() == nil {
					warned = true
					c.sayWhyNoSession(err)
				}
				select {
				case <-time.After(again):
					continue
				case <-c.life.ctx.Done():
					return
				}
			}
			warned = false
		}
		c.tells.reports.ofSession() // of before
		c.opts.Logger.Info("holdfast: session begins", "session", s.ID)
		if c.maintain(s) == nil {
			return // stopped: Close takes it from here
		}
		s = nil
	}
}

func (c *Coordinator) sayWhyNoSession(err error) {
	wait := errors.Is(err, fallback.ErrWait)
	switch {
	case wait && errors.Is(err, fallback.ErrRefused):
		c.opts.Logger.Warn("holdfast: no session yet: the table of sessions is full, until it is known which of them have ended", "error", err)
	case errors.Is(err, fallback.ErrMismatch) || errors.Is(err, fallback.ErrRefused) || errors.Is(err, fallback.ErrDenied): // trying again does not help
		c.opts.Logger.Error("holdfast: no session: a setting is wrong", "error", err)
	case wait:
		c.opts.Logger.Info("holdfast: no session yet: other processes take over a longer Grace first", "error", err)
	case errors.Is(err, fallback.ErrReplicas):
		c.opts.Logger.Warn("holdfast: no session: too few replicas of the arbiter are there", "error", err)
	default:
		c.opts.Logger.Warn("holdfast: no session: the arbiter cannot be reached", "error", err)
	}
}

// maintain renews and verifies until the session has died or the coordinator stops. When it returns
// with an error, every hold of the session has been lost.
func (c *Coordinator) maintain(s *session) error {
	ctx, cancel := context.WithCancelCause(c.life.ctx)
	defer cancel(nil)
	var loops sync.WaitGroup
	defer loops.Wait()
	loops.Go(func() { c.verify(ctx, s) })
	loops.Go(func() { c.watch(ctx, s, cancel) })
	if s.rounds != nil {
		loops.Go(func() { s.rounds.speak(ctx) })
		loops.Go(func() { s.rounds.hasten(ctx) })
	}
	if s.guarded != nil {
		loops.Go(func() { s.guarded.run(ctx) })
	}
	err := c.renew(ctx, s)
	if c.life.ctx.Err() != nil && err == nil {
		return nil
	}
	c.sessions.why.Store(&err)
	var a after
	frozen, left := c.loseSession(s, err, &a) // after a step of the wall clock: partitions that are to be demoted, for so long at most (stepped.go)
	cancel(err)
	a.do(c)
	if c.cluster != nil {
		c.cluster.session("")
	}
	c.demoteStepped(frozen, left)
	c.opts.Logger.Warn("holdfast: session lost, and all locks with it", "session", s.ID, "locks", c.tells.reports.ofSession(), "error", err)
	s.stopListening()
	if f := c.opts.Trace.Session; f != nil {
		f(SessionInfo{ID: s.ID, Ended: true, Err: err})
	}
	return err
}

// Reasons for a session's end; [Coordinator.because] adds what is known.
var (
	errExpired  = errors.New("coord: no renewal was acknowledged in time")
	errForsaken = errors.New("coord: the promises of its guardians have passed")
)

var errTooLittleLeft = errors.New("coord: the arbiter is another server now, and the session was not renewed in time before: the server before " +
	"may tell others that it is dead")

// dataOf tells in words whether the server has the data of before. missed: it had no entry of the
// session.
func dataOf(missed bool) string {
	if missed {
		return "lost, or older than this session"
	}
	return "kept"
}

// seen notices that another server has answered, and Grace. data tells of the server's data, if
// that is known. It is called by one goroutine at a time.
func (c *Coordinator) seen(r fallback.Renewal, data string) {
	was, now := c.remote.server, c.now()
	c.remote.server = server{name: r.Server, met: was.met, grace: r.Grace > 0}
	if r.Server != was.name || was.met.IsZero() {
		c.remote.server.met = now
	}
	if was.name != "" && r.Server != was.name {
		c.opts.Logger.Warn("holdfast: the arbiter was restarted, or another server has taken over", "was", was.name, "is", r.Server, "data", optional(data))
		c.sessions.replaced(now, now.Add(c.silenced()))
		c.advise() // its settings may be others
	}
	c.adviseNowAndThen()
	c.clean()
	switch {
	case r.Grace > 0 && !was.grace:
		if was.name == r.Server { // the data were lost, or older ones are there: of the partitions as well
			c.sessions.replaced(now, now.Add(c.silenced()))
		}
		c.opts.Logger.Warn("holdfast: Grace: nothing new is granted by the arbiter", "left", r.Grace)
	case r.Grace == 0 && was.grace:
		c.opts.Logger.Info("holdfast: Grace is over")
	}
	if r.Grace > 0 {
		c.remote.graceEnds.Store(int64(c.since(c.began) + r.Grace))
	} else {
		c.remote.graceEnds.Store(0)
	}
	if c.cluster != nil {
		c.cluster.toldSecrets(r.Secrets)
		c.cluster.heard.registered.Store(int64(r.Sessions))
		c.cluster.heard.graceLeft.Store(int64(r.Grace))
	}
}

// leased notes that the arbiter has acknowledged the session until a time.
func (s *session) leased(until time.Time) {
	if s.guarded != nil {
		s.guarded.leased(until)
		return
	}
	s.Extend(until)
}

// leaseEnds is until when the arbiter has acknowledged the session. With guardians its deadline may
// be earlier.
func (s *session) leaseEnds() time.Time {
	if s.guarded != nil {
		return s.guarded.leaseEnds()
	}
	return s.Deadline()
}

// whyEnded returns why a session has ended. Its deadline has passed.
func (c *Coordinator) whyEnded(s *session) error {
	if s.guarded != nil {
		return s.guarded.why()
	}
	return c.because(errExpired, s, s.leaseEnds().Add(-c.opts.lease()))
}

// over ends the session for every reader.
func (s *session) over() {
	if s.guarded != nil {
		s.guarded.over()
		return
	}
	s.Extend(time.Time{})
}

// soonest is when watch looks next. A hold that lapses before that says so, and no other: an owner
// answers for little longer than RenewEvery at a time, so nearly each grant of another node would
// wake watch.
type soonest struct {
	signal chan struct{} // capacity 1: at is earlier than watch knows

	mu mutex[leafRank] // protects at
	at time.Time       // zero: watch is looking, and does not know yet
}

// add notes that a hold lapses at a time.
func (x *soonest) add(at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.at.IsZero() && !at.Before(x.at) {
		return
	}
	x.at = at
	select {
	case x.signal <- struct{}{}:
	default:
	}
}

// looks is called before watch looks at the holds.
func (x *soonest) looks() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.at = time.Time{}
}

// next is called when watch is to look at a time. It returns that, or when a hold lapses that was
// added meanwhile.
func (x *soonest) next(at time.Time) time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.at.IsZero() || at.Before(x.at) {
		x.at = at
	}
	return x.at
}

// watch takes lapsed holds and ownerships away, at the moment when they lapse: one timer for the
// session and all holds.
func (c *Coordinator) watch(ctx context.Context, s *session, end context.CancelCauseFunc) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for next := c.now(); ; {
		s.ending.sleeps(c.at(next))
		select {
		case <-timer.C:
		case <-c.sooner.signal:
			next = c.sooner.next(next)
			timer.Reset(max(c.left(next), time.Millisecond))
			s.ending.wakes(c.moment())
			continue
		case <-ctx.Done():
			return
		}
		now := c.now()
		s.ending.wakes(c.at(now))
		if lease.Past(s.Deadline(), now) {
			end(c.whyEnded(s))
			return
		}
		// A hold that begins later lapses later than in RenewEvery, or says so by sooner.
		next = now.Add(c.opts.RenewEvery)
		if d := s.Deadline(); d.Before(next) {
			next = d
		}
		c.sooner.looks()
		var a after
		for i := range c.parts {
			if d := c.parts[i].lapsed(&a); !d.IsZero() && d.Before(next) {
				next = d
			}
		}
		a.do(c)
		next = c.sooner.next(next)
		timer.Reset(max(c.left(next), time.Millisecond))
	}
}

// lapsed takes lapsed holds and the lapsed ownership away. It returns the earliest time of the next
// lapse, zero if there is none.
func (p *partition) lapsed(a *after) time.Time {
	now := p.lock()
	next := p.Lapsed(now, &a.Effects)
	p.unlock(a)
	return next
}
