package lease

import (
	"math"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
)

// Key is a key that this process uses: the queue of its callers, the process's hold, the request for one, and what an owner
// knows of other nodes that have or want the key.
type Key struct {
	name string
	q    handoff.Queue[*Seat]
	hold *hold // one of none, the ownership's, or its own
	turn *Turn // the one that runs if q is in state Turn; else for the next one

	// At most one request is under way, while q is Idle and a caller waits.
	contender *Contender // at the arbiter
	request   request    // at the owner of the partition

	others *grants       // an owner's, of other nodes; nil: there is nothing to know
	wanted chan struct{} // closed when another caller or node asks for the key; nil: the turn that runs does not want to be told

	// In brackets: the methods that read it.
	seen    uint64 // the token of the turn that was looked at last, for operators (Overdue, held)
	since   Moment // when that turn began, or was first looked at (Overdue, held); or the lingering (Relax)
	told    bool   // a record was written of that turn (Overdue)
	used    bool   // a turn has begun since the hold was last verified (Snapshot)
	listed  bool   // the key is in the shell's list of those that linger (Keep, finish, shelve, tidy); the shell calls Relax for each
	shelved bool   // it is on the partition's shelf (EndOwn, shelve, tidy)
	known   bool   // it is in the partition's keys (Turn.Key, request, tidy, walkAt)
	undated bool   // the hold lingers, and no clock was read when that began (Relax)
	moved   uint8  // consecutive nodes that were asked and did not own the partition, 255 at most (Redirect). A turn clears it

	first Turn // as a rule the only one
}

// askElsewhere notes that one more node that was asked does not own the partition.
func (k *Key) askElsewhere() { k.moved = min(k.moved, math.MaxUint8-1) + 1 }

// available reports whether no node has the key.
func (k *Key) available() bool {
	return k.q.State() == handoff.Idle && (k.others == nil || k.others.holder == fallback.Identity{})
}

// tellWanted tells the turn that runs that the key is asked for.
func (k *Key) tellWanted() {
	if k.wanted != nil && k.wanted != wantedAlready {
		close(k.wanted)
		k.wanted = wantedAlready
	}
}

// endWanted closes the channel with the turn.
func (k *Key) endWanted() {
	k.tellWanted()
	k.wanted = nil
}

// wantedAlready is the channel of turns that are wanted.
var wantedAlready = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// begin gives the turn that the queue has begun to a caller.
func (p *Partition) begin(k *Key, fence uint64, path Path, at Moment) *Turn {
	k.assertKnown()
	p.granted[path]++
	k.turn.fence, k.turn.began, k.used, k.moved = fence, at, true, 0
	p.closing.turns++
	if simulated && path == PathOwn {
		p.show(SightTakes, p.own.session.ID, p.own.epoch, k)
	}
	return k.turn
}

// seat gives the turn that the queue has begun to a waiter, to be woken afterwards.
func (p *Partition) seat(k *Key, w *Waiter, path Path, now time.Time, fx *Effects) {
	s := w.Value
	s.Turn, s.Valid, s.Path, s.QuickUntil = p.begin(k, w.Fence(), path, p.cfg.At(now)), p.deadlines(k.hold), path, 0
	fx.wakeUp(w)
}

// Turns returns the number of turns that run.
func (p *Partition) Turns() int { return p.closing.turns }

// grants is what the owner of a partition knows of a key that not only its own callers want.
type grants struct {
	holder   fallback.Identity // another node's hold; zero: none; the key's own queue says whether this node has it
	token    fallback.Token
	link     Link   // the holder's stream, nil if there is none
	node     string // that this node granted it to
	imported bool   // not granted by this node in this epoch: it ends by release, doubt or death only (rule 12)
	vouched  bool   // this node answers for it, though it is imported (rule 17)
	recalled time.Time
	asked    time.Time  // whether the holder has the hold
	granted  Moment     // when this node gave it the key
	alone    time.Time  // since then there has been no stream to it
	queue    []claimant // nodes that wait, in order of arrival, each once
	group    *group     // of the key, if it is wanted in several modes
	mode     fallback.Mode
}

// claimant is a node that waits for a key. The zero claimant is this node.
type claimant struct {
	id    fallback.Identity
	link  Link
	order uint64 // of the requests for a group; 0: before there was one
}

// parked is a request that waits until this node has the partition.
type parked struct {
	claimant
	key string
	try bool
}

// request is a request at a key's owner, for all of this node's waiters. Its zero value is none.
type request struct {
	link    Link
	session *Session // that it is made for
	number  uint64
}

func (r *request) id() fallback.Identity {
	if r.session == nil {
		return fallback.Identity{}
	}
	return fallback.Identity{Session: r.session.ID, Request: r.number}
}

// A Contender gets a hold for the waiters of a key from the arbiter: the only one that this process has for the key. It is over
// once it is not its key's any more. The shell makes its calls.
type Contender struct {
	Name   string // of the key
	Runner any    // the shell's

	key     *Key              // used again for another name once no caller waits: look whether key.contender is this one
	id      fallback.Identity // of the request now at the arbiter
	again   bool              // the arbiter was asked for it before, and may have it in its queue
	known   fallback.Token    // what was seen before the first request of that name
	asked   bool              // another process asks for the hold that this is about to become
	trouble error             // why it takes so long; nil: another process has the key
	holder  string            // the session that has the key, as the arbiter has said last
	behind  behind
	owner   string // the session that owns the partition, if there was no stream to it
	paused  bool   // an owner needs time: see Redirect
}

// Block is how many tokens a hold asks the arbiter for. With 2^16, an epoch lasts for 2^16 holds in a partition.
const Block = 1 << 16

// behind is what is known of the place of a request at the arbiter.
type behind struct {
	epoch uint32    // at which it waits behind another one that waits for holds; 0: it does not
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
