package coord

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// renewal is the outcome of a call of Renew.
type renewal struct {
	fallback.Renewal
	sent time.Time
	err  error
}

// renew keeps the session alive. It returns why it died, or nil when the coordinator stops. A call
// that is not answered within CallTimeout is made again, beside it: the answer to either counts.
func (c *Coordinator) renew(ctx context.Context, s *session) error {
	answers, done := make(chan renewal), make(chan struct{})
	defer close(done)
	timer := time.NewTimer(c.renewEvery() - c.since(s.opened)) // a newcomer has waited
	defer timer.Stop()
	waiting := false              // for the answer to a call
	var last, confirmed time.Time // when the last call was sent, zero if it has failed, and the one that was answered
	var wanted time.Time          // since when a renewal is wanted out of turn, zero if it is not
	x := trouble{c: c, s: s}
	for {
		select {
		case <-timer.C:
			if waiting {
				waiting = false
				c.goOn()
				x.fails(ctx, errNoAnswer)
				timer.Reset(c.opts.renewAgain())
				continue
			}
		case since := <-s.guarded.asked(): // its guardians are to change: a renewal is wanted now
			// The longer it has been wanted, the less often: calls that are not answered must not
			// pile up.
			if !last.Before(since) && c.since(last) < min(c.opts.CallTimeout, last.Sub(since)) {
				continue
			}
			wanted = since
		case r := <-answers:
			// The old deadline decides whether the answer still counts (rule 3).
			switch {
			case guard.Renewal && lease.Past(s.Deadline(), c.now()):
				return c.whyEnded(s)
			case r.err != nil:
				if r.sent.Equal(last) {
					last = time.Time{}
					if !waiting {
						continue
					}
					waiting = false
					x.fails(ctx, r.err)
					timer.Reset(c.retryAfter(r.sent, wanted))
				}
				continue
			case r.sent.Before(confirmed):
				continue
			case !r.Alive:
				return errors.New("coord: the arbiter says that the session is dead")
			// The server before may say that the session is dead once the last renewal there has
			// expired: it has to be silent by then (rule 3).
			case guard.LeaseLeft && c.fresh(r.Renewal) && lease.Left(s.leaseEnds(), c.now()) < c.silence():
				return errTooLittleLeft
			}
			x.succeeds()
			waiting, confirmed = false, r.sent
			if !r.sent.Before(wanted) {
				wanted = time.Time{}
			}
			s.ending.renewed(c.at(r.sent))
			s.leased(r.sent.Add(c.opts.lease()))
			s.guarded.recorded(r.Renewal, r.sent)
			s.rounds.heard(r.Round)
			c.seen(r.Renewal, dataOf(s.rounds.takeMissed() || r.Missed))
			c.clearDoubts()
			timer.Reset(c.renewEvery() - c.since(r.sent))
			continue
		case <-ctx.Done():
			if c.life.ctx.Err() != nil {
				return nil
			}
			return context.Cause(ctx)
		}
		sent := c.now()
		if lease.Past(s.Deadline(), sent) {
			return c.whyEnded(s)
		}
		if !waiting { // else the call before has its time
			timer.Reset(c.opts.CallTimeout)
		}
		waiting, last = true, sent
		c.life.pool.Go(func() { c.renewOnce(ctx, s, sent, answers, done) })
	}
}

// renewAgain is in how long a renewal that has failed is made again. The lease ends while a server
// that is back has not been asked, so it is sooner than other calls are.
func (o *Options) renewAgain() time.Duration {
	return max(min(o.RetryEvery, o.RenewEvery/20), time.Millisecond)
}

// retryAfter is renewAgain, or sooner at first where the guardians are to change, as that takes two
// renewals that succeed while the last promise lasts.
func (c *Coordinator) retryAfter(sent, wanted time.Time) time.Duration {
	again := c.opts.renewAgain()
	if wanted.IsZero() {
		return again
	}
	return min(again, max(sent.Sub(wanted), c.opts.takeover()/24))
}

// renewOnce makes a call of Renew.
func (c *Coordinator) renewOnce(ctx context.Context, s *session, sent time.Time, to chan<- renewal, done <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, lateCalls*c.opts.CallTimeout)
	defer cancel()
	r, asked, err := c.renewAlone(ctx, s)
	if !asked.IsZero() {
		c.called(OpRenew, asked, err) // the next renewal does not wait for the caller's Trace
	}
	select {
	case to <- renewal{r, sent, err}:
	case <-done:
	}
}

// renewAlone makes the call when no other renewal is on its way, and returns when: the zero time if
// the session was over by then.
func (c *Coordinator) renewAlone(ctx context.Context, s *session) (r fallback.Renewal, asked time.Time, err error) {
	defer s.rounds.alone(ctx)()
	asked = c.now()
	if lease.Past(s.Deadline(), asked) { // rule 3
		return r, time.Time{}, c.whyEnded(s)
	}
	r, err = c.remote.ns.Renew(ctx, s.ID, c.renewing(s))
	if err == nil {
		s.seen.told(r.Expiry, asked, c.now())
	}
	return r, asked, err
}

// renewing returns the registration that a session sends with each renewal.
func (c *Coordinator) renewing(s *session) fallback.Registration {
	r := c.registration()
	r.Seen, r.Guardians = s.seen.last(), s.guarded.registers()
	return r
}

// trouble tells of renewals that fail, once.
type trouble struct {
	c       *Coordinator
	s       *session
	failing bool
}

func (x *trouble) fails(ctx context.Context, err error) {
	x.s.ending.failure.Store(&err)
	if !x.failing && ctx.Err() == nil {
		// Pings make an earlier end of the promises later.
		x.c.opts.Logger.Warn("holdfast: renewal failed, trying again", "session", x.s.ID, "error", err, "deadline", x.s.leaseEnds())
	}
	x.failing = true
}

func (x *trouble) succeeds() {
	if x.failing {
		x.failing = false
		x.c.opts.Logger.Info("holdfast: renewals succeed again", "session", x.s.ID)
	}
}
