package lease

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
)

// A Contender gets a hold for the waiters of a key from the arbiter: the only one that this process
// has for the key. It is over once it is not its key's any more. The shell makes its calls.
type Contender struct {
	Name   string // of the key
	Runner any    // the shell's

	key     *Key              // used again for another name once no caller waits: look whether key.contender is this one
	id      fallback.Identity // of the request now at the arbiter
	again   bool              // the arbiter was asked for it before, and may have it in its queue
	known   fallback.Token    // the highest token seen before the first request of that name
	asked   bool              // another process asks for the hold that this is about to become
	trouble error             // why it takes so long; nil: another process has the key
	holder  string            // the session that has the key, as the arbiter has said last
	behind  behind
	owner   string // the session that owns the partition, if there was no stream to it
	paused  bool   // an owner needs time: see Redirect
}

// Block is the number of tokens that a request asks the arbiter for. With 2^16, an epoch lasts for
// 2^16 holds in a partition.
const Block = 1 << 16

// behind is the place of a request at the arbiter, as far as it is known.
type behind struct {
	epoch uint32    // of the request, if it waits behind another one that waits for holds; 0: it does not
	told  time.Time // when WaitsBehind was called last
	anew  bool      // the arbiter has said so, asked after that
}

func (x *Contender) over() bool { return x.key.contender != x }

// endContender ends the request at the arbiter, if there is one.
func (p *Partition) endContender(k *Key) {
	if k.contender != nil {
		out := p.order()
		out.Ends = append(out.Ends, k.contender)
		k.contender = nil
	}
}

// Contend makes the one contender of a key that has no hold and no request. It has to be run.
func (p *Partition) Contend(k *Key) *Contender {
	k.contender = &Contender{Name: k.name, key: k, trouble: p.cfg.NoAnswer}
	return k.contender
}

// Waits reports whether a caller waits that does not only try.
func (p *Partition) Waits(x *Contender) bool { return !x.over() && x.key.q.Any(waits) }

// Begin names the request that is about to be sent, and returns the highest token that was seen
// before. wait is false if all callers only try. ok is false if the contender is over.
func (p *Partition) Begin(x *Contender, s *Session, fx *Effects) (id fallback.Identity, known fallback.Token, wait, ok bool) {
	if x.over() || x.key.q.Waiting() == 0 {
		return id, 0, false, false
	}
	x.owner = ""
	x.again = x.id.Session == s.ID
	if !x.again {
		if x.id.Session != "" {
			fx.Releases = append(fx.Releases, p.ReleaseOf(x.Name, x.id))
		}
		x.id = fallback.Identity{Session: s.ID, Request: p.cfg.Requests.Add(1)}
		x.asked, x.known, x.behind = false, p.tokens.seen, behind{}
	}
	return x.id, x.known, x.key.q.Any(waits), true
}

// Install gives the hold to the first waiter, under a token that the arbiter gave to the request.
// It reports false if there is no waiter, or if the answer came too late: the request is over, and
// another may be made.
func (p *Partition) Install(x *Contender, s *Session, token fallback.Token, contended bool, sent, now time.Time, fx *Effects) bool {
	k := x.key
	if x.over() {
		return true // Withdraw releases it
	}
	h := hold{session: s, row: fallback.Row{Identity: x.id, Token: token}, confirmed: sent}
	// Serve ends contenders, so there can be no ownership.
	if p.own != nil || k.q.State() != handoff.Idle || k.q.Waiting() == 0 || p.deadlines(&h).Past(now) {
		p.Disown(x, fx)
		return false
	}
	p.saw(token)
	w := k.q.Take(uint64(token), Block, contended || x.asked || k.others != nil, p.cfg.At(now))
	k.hold = p.newHold(h)
	p.show(SightAccepts, s.ID, 0, k)
	p.basis.oldest = Earlier(p.basis.oldest, sent)
	p.basis.holds++
	p.endContender(k)
	x.id = fallback.Identity{}
	p.seat(k, w, PathArbiter, now, fx)
	return true
}

// Disown releases the hold that a request has become, or may become, and forgets the request.
func (p *Partition) Disown(x *Contender, fx *Effects) {
	if x.id != (fallback.Identity{}) {
		fx.Releases = append(fx.Releases, p.ReleaseOf(x.Name, x.id))
		x.id = fallback.Identity{}
	}
}

// HeldBy notes an answer of the arbiter, which was asked at the time sent: the session that has the
// key, and the epoch of the request. epoch is 0 if it does not wait behind another one that waits
// for holds.
func (p *Partition) HeldBy(x *Contender, session string, epoch uint32, sent time.Time) {
	x.holder = session
	x.behind.epoch, x.behind.anew = epoch, epoch > 0 && !sent.Before(x.behind.told)
}

// WaitsBehind returns the request of this node's for a name at the arbiter. ok reports whether the
// arbiter, asked after the last call, has said that it waits behind another one. The arbiter is
// asked again.
func (p *Partition) WaitsBehind(name string, now time.Time) (r Request, ok bool) {
	k := p.table.keys[name]
	if k == nil || k.contender == nil || k.contender.behind.epoch == 0 {
		return Request{}, false
	}
	x := k.contender
	out := p.order()
	out.Pokes = append(out.Pokes, x)
	ok, x.behind.anew, x.behind.told = x.behind.anew, false, now
	return Request{name, x.behind.epoch, x.id.Request}, ok
}

// Settle notes the trouble (nil: the key is locked) for callers that give up, and sends those away
// that only try, or all. It reports whether a caller is left: fail ends the contender when there is
// none.
func (p *Partition) Settle(x *Contender, trouble error, all bool, now time.Time, fx *Effects) bool {
	if x.over() {
		return false
	}
	x.trouble = trouble
	which := tries
	if all {
		which = nil
	}
	p.fail(x.key, which, trouble, now, fx)
	return !x.over()
}

// Withdraw takes the request back if it did not become a hold: out of the queue at the arbiter and,
// if it was granted when no caller waited any more, the hold as well (rule 11). If the contender is
// not over, its callers are sent away with a reason.
func (p *Partition) Withdraw(x *Contender, reason error, now time.Time, fx *Effects) {
	p.Disown(x, fx)
	if !x.over() {
		p.fail(x.key, nil, reason, now, fx)
	}
}

// AwaitRoute notes that contenders wait at the arbiter, and may not know the node to ask instead:
// see Rerouted.
func (p *Partition) AwaitRoute() { p.closing.waitFor |= AwaitedRoute }

// AwaitStream notes that a contender was sent to an owner that there may be no stream to: see
// Reached.
func (p *Partition) AwaitStream(x *Contender, r fallback.Record) {
	p.sawEpoch(r)
	x.owner = r.Owner
	p.closing.waitFor |= AwaitedStream
}

// Rerouted: the ring has changed. Contenders that wait at the arbiter are not told that the
// partition has an owner now.
func (p *Partition) Rerouted(fx *Effects) {
	if p.closing.waitFor&AwaitedRoute == 0 || !p.cfg.View.Route(p.number).Known() {
		return
	}
	p.closing.waitFor &^= AwaitedRoute
	p.pokeAll()
}

// pokeAll makes every contender ask the arbiter again now.
func (p *Partition) pokeAll() {
	for _, k := range p.table.keys {
		if k.contender != nil {
			out := p.order()
			out.Pokes = append(out.Pokes, k.contender)
		}
	}
}

// Reached: there is a stream to the node that has a session.
func (p *Partition) Reached(session string, fx *Effects) {
	if p.closing.waitFor&AwaitedStream == 0 {
		return
	}
	p.closing.waitFor &^= AwaitedStream
	for _, k := range p.table.keys {
		switch x := k.contender; {
		case x == nil || x.owner == "":
		case x.owner == session:
			out := p.order()
			out.Pokes = append(out.Pokes, x)
		default:
			p.closing.waitFor |= AwaitedStream
		}
	}
}

// Redirect goes to the owner that the arbiter has named. It reports true if the contender is over.
// It reports false if the owner needs time, as several nodes have denied the ownership: the
// partition is about to change hands. Then pause is for how long to wait. It is short at first,
// since a partition that is given away has its next owner within milliseconds.
func (p *Partition) Redirect(x *Contender, l Link, now time.Time, fx *Effects) (pause time.Duration, over bool) {
	k := x.key
	x.owner = ""
	if x.over() {
		return 0, true
	}
	if k.moved > 1 && !x.paused { // so many have said so since the key's last turn
		x.paused = true
		return Pause(int(k.moved)-1, p.cfg.RetryEvery/2), false
	}
	p.leaveArbiter(x)
	if !p.ask(k, l) {
		p.want(k, now, fx, true)
	}
	return 0, true
}

// Pause returns the nth pause, from 1 on, of a contender for a partition that changes hands. As a
// rule that takes milliseconds. The first 16 are each longer by the first one, and all others by an
// eighth of the one before: then a pause is an eighth of the time so far. None is longer than most.
func Pause(n int, most time.Duration) time.Duration {
	const first, short = 4 * time.Millisecond, 16
	d := first * time.Duration(min(n, short))
	for ; n > short && d < most; n-- {
		d += d / 8
	}
	return min(d, most)
}

// Home is Redirect where the arbiter has named this node. It reports false if the node is to
// acquire the partition first.
func (p *Partition) Home(x *Contender, now time.Time, fx *Effects) bool {
	if x.over() {
		return true
	}
	if !p.serves(now) {
		p.take(now)
		return false
	}
	k := x.key
	p.leaveArbiter(x)
	p.wantHere(k, now, fx)
	return true
}

// leaveArbiter ends a request that the arbiter has answered with an owner. If it was asked before,
// when there was none, the request may be in its queue: then Withdraw takes it out, or others would
// wait behind it when the partition has no owner again.
func (p *Partition) leaveArbiter(x *Contender) {
	p.endContender(x.key)
	if !x.again {
		x.id = fallback.Identity{}
	}
}
