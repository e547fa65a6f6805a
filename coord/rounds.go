package coord

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// rounds is a session's part in the rounds of the table of sessions, by which Grace ends early: docs/protocol.md has the rules. One
// loop speaks for the rounds that others begin, or this session; the other one begins them, and ends the Graces that it has
// seen before.
type rounds struct {
	c     *Coordinator
	s     *session
	by    fallback.Rounder
	hints chan struct{}   // capacity 1: the round may be another one
	sight chan struct{}   // capacity 1: sighted is not empty
	pass  chan chan error // for verify: to look at all that the session has

	mu      mutex[leafRank] // protects what follows
	round   string          // of the table, as it was told last; "" for none
	since   time.Time       // when it was first told
	changed chan struct{}   // closed when round is another one, or a hint has come
	sighted map[uint32]bool // partitions that were seen in Grace
}

// newRounds returns nil for an arbiter that has no rounds, or has all on one server with replicas that may lack sessions: there the table is in
// Grace for as long as the partitions. It does so, too, where a round would not be over before Grace. Such a session never speaks.
func (c *Coordinator) newRounds(s *session) *rounds {
	by, ok := c.remote.ns.(fallback.Rounder)
	if !ok || !c.spreads() && !by.Openings() {
		return nil
	}
	x := &rounds{
		c: c, s: s, by: by, hints: make(chan struct{}, 1), sight: make(chan struct{}, 1), pass: make(chan chan error),
		changed: make(chan struct{}), sighted: make(map[uint32]bool),
	}
	if c.silence()+c.roundAge() >= c.graceTime() {
		return nil
	}
	return x
}

// roundAge is how old a round is at least that is complete (E4). Epochs are the seconds of a
// server's clock, and clocks of servers differ by Margin: so those that a server gave out after one
// failover are lower than those after the next (I2).
func (c *Coordinator) roundAge() time.Duration { return c.silence() + c.opts.Margin + time.Second }

// renewEvery is how often the session is renewed. Where a round counts in Grace of the table each
// session has renewed at the new server before that, at the deposed one for delta at most: one that
// the table lacks has seen that (E8). Half a second is for the call.
func (c *Coordinator) renewEvery() time.Duration {
	by, ok := c.remote.ns.(fallback.Rounder)
	if !ok || !by.Openings() || !guard.TableAge {
		return c.opts.RenewEvery
	}
	return min(c.opts.RenewEvery, c.roundAge()-c.silence()-time.Second/2)
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

// wanted returns the channel by which verify is asked to look at all that the session has; nil without rounds.
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

// told notes the round that a renewal has told of.
func (x *rounds) told(r fallback.Round) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if r.Name != x.round {
		x.round, x.since = r.Name, x.c.now()
		x.news()
	}
}

// news is called with x.mu held.
func (x *rounds) news() {
	close(x.changed)
	x.changed = make(chan struct{})
}

// now returns the round, since when it is known, and what is closed when that changes.
func (x *rounds) now() (round string, since time.Time, changed <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.round, x.since, x.changed
}

// renew is a renewal for the round's sake. What it says of the session is left to the others.
func (x *rounds) renew(ctx context.Context, r fallback.RoundCall) (fallback.Renewal, error) {
	c := x.c
	call, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	defer cancel()
	reg := c.renewing(x.s)
	reg.Round = r
	sent := c.now()
	if lease.Past(x.s.Deadline(), sent) { // rule 3
		return fallback.Renewal{}, x.s.why()
	}
	a, err := c.remote.ns.Renew(call, x.s.ID, reg)
	c.called(OpRenew, sent, err)
	if err == nil && !a.Alive {
		err = errors.New("coord: the arbiter says that the session is dead")
	}
	if err == nil {
		x.told(a.Round)
	}
	return a, err
}

// speak says for each round that all which the session has is reclaimed, once that is so, until ctx ends (E3).
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

// look is what a hint makes: the round is asked for, and callers ask again for what they wait for.
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

// settling is for how long yet a pass does not count, as a server has taken over a moment ago: it
// may have found there what the server before lacks. That one answers others yet, and they may end
// its Grace.
func (x *rounds) settling() time.Duration {
	if !guard.PassOld {
		return 0
	}
	return x.c.sessions.settledBy().Sub(x.c.now())
}

// adopted gets rows for holds that rest on an owner, where the arbiter may not have that owner: it may have left in an orderly way, by a
// server that was deposed, and no session speaks for it then.
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

// announcedEnds is when the last deadline has passed that was announced for a partition which this node has let go.
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
			c.remote.graceSeenEnds.CompareAndSwap(ends, 0)
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
	if tableInGrace && !x.by.Openings() && guard.TableGrace || round != "" && c.since(since) < max(2*c.opts.RenewEvery, c.roundAge()+c.silence()+c.opts.RetryEvery) {
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

// end begins a round after another one, and ends the Graces that it has seen before, when it is complete.
func (x *rounds) end(ctx context.Context, after string) {
	c := x.c
	all := make([]uint32, len(c.parts))
	for i := range all {
		all[i] = uint32(i)
	}
	inGrace, _ := x.find(ctx, all)
	var graces []fallback.NamedGrace
	call, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	for _, g := range x.by.Graces(call, inGrace) {
		if g.Err == nil && g.Name != "" {
			graces = append(graces, g)
		}
	}
	cancel()
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
	for {
		failed := x.endGraces(ctx, graces)
		if len(failed) < len(graces) {
			x.askAgain()
			x.tell(ctx)
			c.opts.Logger.Info("holdfast: Grace ends early", "partitions", len(graces)-len(failed), "after", c.since(seen))
		}
		if graces = failed; len(graces) == 0 || c.since(seen) > c.graceTime() || !sleep(ctx, c.opts.RetryEvery) || !x.still(ctx, round) {
			return
		}
	}
}

// begin begins a round after another one, and returns what the table says then. If that is not answered, it asks which round there is: one that was
// begun all the same would be waited for as another session's. It does not begin it again, as the name is for one round.
func (x *rounds) begin(ctx context.Context, after string) (round string, r fallback.Renewal, err error) {
	round = rand.Text()
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

// complete waits until all sessions have spoken for a round that began then, or are dead. It reports false if another one has begun, or
// Grace is over.
func (x *rounds) complete(ctx context.Context, round string, begun time.Time) bool {
	c := x.c
	if !sleep(ctx, c.roundAge()) {
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

// endGraces returns those for which it had no answer. Each is ended by its name, so it may be asked
// for again.
func (x *rounds) endGraces(ctx context.Context, graces []fallback.NamedGrace) (failed []fallback.NamedGrace) {
	c := x.c
	for these := range slices.Chunk(graces, readsPerCall) {
		call, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
		sent := c.now()
		n := 0
		var last error
		for i, err := range x.by.EndGraces(call, these) {
			if err != nil {
				failed = append(failed, these[i])
				last = err
				n++
			}
		}
		cancel()
		c.calledMany(OpOwnership, len(these), n, sent, last)
	}
	return failed
}

// find reads partitions, and returns those that are in Grace. sure says that all have answered.
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
