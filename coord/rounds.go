package coord

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// rounds is a session's part in the rounds of the table of sessions, which end Grace early:
// docs/protocol.md has the rules. One loop speaks for the rounds that others begin, or this
// session; the other one begins them, and ends the Graces that it has seen before.
type rounds struct {
	c     *Coordinator
	s     *session
	by    fallback.Rounder
	hints chan struct{}   // capacity 1: the round may be another one
	sight chan struct{}   // capacity 1: sighted is not empty
	pass  chan chan error // for verify: to look at all that the session has
	calls chan struct{}   // capacity 1: a renewal is on its way

	mu      mutex[leafRank] // protects the fields below
	told    toldRound
	sighted map[uint32]bool // partitions that were seen in Grace
	missed  bool            // a renewal for a round's sake found no entry of the session
}

// A toldRound is the table's round, as renewals tell of it.
type toldRound struct {
	name    string // "" for none
	since   time.Time
	before  time.Time     // when it was told of the last other one
	apart   time.Time     // this session speaks for no round before (E3)
	changed chan struct{} // closed when it is another one, or a hint has come
}

// newRounds returns nil for an arbiter that has no rounds, or has all on one server with replicas
// that may lack sessions: there the table is in Grace for as long as the partitions. It does so,
// too, where a round would not be over before Grace. Such a session never speaks.
func (c *Coordinator) newRounds(s *session) *rounds {
	by, ok := c.endsEarly()
	if !ok {
		return nil
	}
	return &rounds{
		c: c, s: s, by: by, hints: make(chan struct{}, 1), sight: make(chan struct{}, 1), pass: make(chan chan error), calls: make(chan struct{}, 1),
		told: toldRound{changed: make(chan struct{})}, sighted: make(map[uint32]bool),
	}
}

// roundAge is how old a round is at least that is complete (E4): delta + M.
func (c *Coordinator) roundAge() time.Duration { return c.silence() + c.shown() }

// shown is for how long each session renews at a new server alone before a round counts: M, as
// long as there is time for renewals.
func (c *Coordinator) shown() time.Duration { return max(c.opts.Margin, time.Second/2) }

// speaksApart is how long a session waits before it speaks for a round that may follow another one
// (E3). The Graces of the other one may have ended early, until delta after the next failover. The
// epochs that were given out since are lost then: three of them, which are seconds of the server's
// clock. Clocks of servers differ by Margin. The next epochs are above those (I2).
func (c *Coordinator) speaksApart() time.Duration {
	return c.stretched(c.silence() + c.opts.Margin + lostEpochs*time.Second)
}

// lostEpochs is how many epochs of a partition may be lost after an early end of Grace.
const lostEpochs = 3

// endsEarly reports whether a round ends Grace early. It does so for arbiters with rounds, where a
// round is over before Grace. Half of Grace has to be long enough for the epochs that follow an
// early end: the next Grace may last for all of Q (I2). One server with replicas that may lack
// sessions has no rounds: the table is in Grace for as long as the partitions.
func (c *Coordinator) endsEarly() (fallback.Rounder, bool) {
	by, ok := c.remote.ns.(fallback.Rounder)
	return by, ok && (c.spreads() || by.Openings()) && c.silence()+c.roundAge() < c.graceTime() &&
		c.graceTime()/2 >= c.silence()+c.opts.Margin+lostEpochs*time.Second
}

// renewEvery is how often the session is renewed. Where a round counts in Grace of the table, each
// session has renewed at the new server before that: at the deposed one it can for delta at most.
// One that the table lacks has seen that (E8). Half of the time that is left then is for the call,
// and for one before it (alone).
func (c *Coordinator) renewEvery() time.Duration {
	if by, ok := c.endsEarly(); !ok || !by.Openings() || !guard.TableAge {
		return c.opts.RenewEvery
	}
	return min(c.opts.RenewEvery, c.shown()/2)
}

// newcomer waits after a session was opened, for as long as it must not take anything (E6).
func (c *Coordinator) newcomer(ctx context.Context, r fallback.Renewal) error {
	if !c.fresh(r) || !guard.Newcomer {
		return nil
	}
	if !sleep(ctx, c.silenced()) {
		return context.Cause(ctx)
	}
	return nil
}

// wanted returns the channel that asks verify to look at all that the session has; nil without
// rounds.
func (x *rounds) wanted() <-chan chan error {
	if x == nil {
		return nil
	}
	return x.pass
}

// inGrace notes that a partition was seen in Grace.
func (x *rounds) inGrace(p uint32) {
	if x == nil {
		return
	}
	x.mu.Lock()
	x.sighted[p] = true
	x.mu.Unlock()
	signal(x.sight)
}

// hint is told that the round may be another one.
func (x *rounds) hint() {
	if x != nil {
		signal(x.hints)
	}
}

// opened is called when the session has been opened, with the round that the table told of.
func (x *rounds) opened(r fallback.Round) {
	if x == nil {
		return
	}
	x.mu.Lock()
	x.told.apart = x.c.now().Add(x.c.speaksApart())
	x.mu.Unlock()
	x.heard(r)
}

// heard notes the round that a renewal has told of.
func (x *rounds) heard(r fallback.Round) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	t := &x.told
	if r.Name == t.name {
		return
	}
	now := x.c.now()
	if t.name != "" {
		t.before = t.since
	}
	// A round ends Graces for one Grace at most, and its epochs are half of one ahead.
	if r.Name != "" && !t.before.IsZero() && now.Sub(t.before) < 2*x.c.graceTime() {
		t.apart = lease.Later(t.apart, now.Add(x.c.speaksApart()))
	}
	t.name, t.since = r.Name, now
	x.news()
}

// news is called with x.mu held.
func (x *rounds) news() {
	close(x.told.changed)
	x.told.changed = make(chan struct{})
}

// now returns the round, the time since when it is known, and a channel that is closed when that
// changes.
func (x *rounds) now() (round string, since time.Time, changed <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.told.name, x.told.since, x.told.changed
}

// renew is a renewal for the round's sake. Only the other renewals extend the lease.
func (x *rounds) renew(ctx context.Context, r fallback.RoundCall) (fallback.Renewal, error) {
	c := x.c
	call, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	defer cancel()
	defer x.alone(call)()
	reg := c.renewing(x.s)
	reg.Round = r
	sent := c.now()
	if lease.Past(x.s.Deadline(), sent) { // rule 3
		return fallback.Renewal{}, c.whyEnded(x.s)
	}
	a, err := c.remote.ns.Renew(call, x.s.ID, reg)
	c.called(OpRenew, sent, err)
	if err == nil && !a.Alive {
		err = errors.New("coord: the arbiter says that the session is dead")
	}
	if err == nil {
		x.s.seen.told(a.Expiry, sent, c.now())
		x.heard(a.Round)
	}
	if err == nil && a.Missed {
		x.mu.Lock()
		x.missed = true
		x.mu.Unlock()
	}
	return a, err
}

// takeMissed reports whether such a renewal found no entry since the last call.
func (x *rounds) takeMissed() (missed bool) {
	if x == nil {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	missed, x.missed = x.missed, false
	return missed
}

// aloneFor is how much a hanging renewal takes of the time that the next one has (E8).
func (x *rounds) aloneFor() time.Duration { return x.c.shown() / 4 }

// alone waits for the renewal that is on its way, for aloneFor at most. Then the next one knows the
// answer to that one: otherwise the table of Options.AllReplicas may take the session for a missing
// one.
func (x *rounds) alone(ctx context.Context) (over func()) {
	if x == nil {
		return func() {}
	}
	timer := time.NewTimer(min(x.c.opts.RetryEvery, x.aloneFor()))
	defer timer.Stop()
	select {
	case x.calls <- struct{}{}:
		return func() { <-x.calls }
	case <-timer.C:
	case <-ctx.Done():
	}
	return func() {}
}

// speak says for each round that all which the session has is reclaimed, once that is so, until ctx
// ends (E3).
func (x *rounds) speak(ctx context.Context) {
	spoken := ""
	for ctx.Err() == nil {
		round, _, changed := x.now()
		if round != "" && round != spoken {
			if x.reclaimed(ctx, round) && x.say(ctx, round) {
				x.c.opts.Logger.Debug("holdfast: all that this session has is reclaimed", "session", x.s.ID, "round", round)
				spoken = round
			}
			continue
		}
		select {
		case <-changed:
		case <-x.hints:
			x.look(ctx)
		case <-ctx.Done():
		}
	}
}

// look follows a hint: it asks for the round, and makes waiting callers ask again.
func (x *rounds) look(ctx context.Context) {
	_, _ = x.renew(ctx, fallback.RoundCall{})
	x.askAgain()
	x.mu.Lock()
	x.news()
	x.mu.Unlock()
	sleep(ctx, x.c.opts.RetryEvery/4) // any client that may publish can make hints
}

// askAgain makes callers that wait ask at once.
func (x *rounds) askAgain() {
	for i := range x.c.parts {
		x.c.parts[i].gap()
	}
}

// still reports whether a round is the present one.
func (x *rounds) still(ctx context.Context, round string) bool {
	now, _, _ := x.now()
	return now == round && ctx.Err() == nil
}

// reclaimed makes the pass of a round. It reports false if another one has begun.
func (x *rounds) reclaimed(ctx context.Context, round string) bool {
	c := x.c
	if guard.RoundOld && !sleep(ctx, c.silenced()) {
		return false
	}
	if guard.SpeaksApart && !x.apart(ctx, round) {
		return false
	}
	if guard.AnswersIn && !c.flights.settled(ctx) {
		return false
	}
	for guard.PassAll {
		done := make(chan error, 1)
		select {
		case x.pass <- done:
		case <-ctx.Done():
			return false
		}
		again := c.opts.RetryEvery
		if <-done == nil && x.adopted(ctx) == nil {
			if again = x.settling(); again <= 0 {
				break
			}
		}
		if !sleep(ctx, again) || !x.still(ctx, round) {
			return false
		}
	}
	for until := c.announcedEnds(); guard.PassWaits && !lease.Over(until, c.now()); until = c.announcedEnds() {
		if !sleep(ctx, max(until.Sub(c.now()), time.Millisecond)) || !x.still(ctx, round) {
			return false
		}
	}
	return x.still(ctx, round)
}

// apart waits until the session may speak. It reports false if another round has begun.
func (x *rounds) apart(ctx context.Context, round string) bool {
	for x.still(ctx, round) {
		x.mu.Lock()
		until, changed := x.told.apart, x.told.changed
		x.mu.Unlock()
		left := until.Sub(x.c.now())
		if left <= 0 {
			return true
		}
		x.await(ctx, changed, left)
	}
	return false
}

// settling is for how long yet a pass does not count, as a server has taken over a moment ago: the
// pass may have found records there that the server before lacks. That one answers others yet, and
// they may end its Grace.
func (x *rounds) settling() time.Duration {
	if !guard.PassOld {
		return 0
	}
	return x.c.sessions.settledBy().Sub(x.c.now())
}

// adopted gets rows for holds that rest on an owner, where the arbiter may not have that owner: it
// may have left in an orderly way, by a server that was deposed, and no session speaks for it then.
func (x *rounds) adopted(ctx context.Context) error {
	if !guard.PassAdopts {
		return nil
	}
	c := x.c
	var resting []uint32
	orphans := func(p *partition) []fallback.Claim {
		now := p.lock()
		defer p.mu.Unlock()
		holds, _, _ := p.Orphans(lease.Adoption{Lead: unlimited}, now)
		return holds
	}
	for i := range c.parts {
		if len(orphans(&c.parts[i])) > 0 {
			resting = append(resting, uint32(i))
		}
	}
	inGrace, sure := x.find(ctx, resting)
	if !sure {
		return errNoAnswer
	}
	var all []claims
	for _, i := range inGrace {
		p := &c.parts[i]
		if holds := orphans(p); len(holds) > 0 {
			all = append(all, claims{p, lease.Claims{Holds: holds}})
		}
	}
	return c.reclaim(ctx, all, c.opts.CallTimeout, nil)
}

// announcedEnds is when the last deadline has passed that was announced for a partition which this
// node has let go.
func (c *Coordinator) announcedEnds() (last time.Time) {
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		last = lease.Later(last, p.AnnouncedEnds())
		p.mu.Unlock()
	}
	return last
}

// say says it, until that is acknowledged or another round has begun.
func (x *rounds) say(ctx context.Context, round string) bool {
	for x.still(ctx, round) {
		if _, err := x.renew(ctx, fallback.RoundCall{Spoke: round}); err == nil {
			return true
		}
		sleep(ctx, x.c.opts.RetryEvery)
	}
	return false
}
