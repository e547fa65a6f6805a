package coord

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// A reading is a lock of the shared name that this process has, and its readers. It lasts from one
// reader to the next: it ends when another caller or node wants the key, or when it has not been
// used for Options.Handoff.Linger.
//
// Most readers take a seat (see seats.go), then look at the clock, and touch nothing else that
// changes. The others are counted. A writer makes the reading shut: first the pledge is retracted,
// then the seats are looked at. A reader does it the other way round: it takes a seat, and then
// looks whether the pledge holds. So either the writer sees the reader's seat taken, or the reader
// sees that it may not stay; and a reader that leaves its seat and sees no pledge looks whether it
// is the last one.
type reading struct {
	c     *Coordinator
	s     *readShard
	id    readingName
	lock  Lock
	began lease.Moment
	seats []row // nil at first: few callers read the key. It changes before the reading is in warm

	pledge lease.Pledge // until when lock is in force

	_ [64]byte // readers with a seat only read the fields above

	// Protected by the shard's mutex.
	followed map[place]*follower
	count    readerCount
	ending   readingEnd
	looked   staysSeen
}

// readerCount counts the readers of a reading without a seat, and its uses.
type readerCount struct {
	n     int // readers that are counted, and callers that are about to be
	joins int // readers that needed the mutex
	uses  int // as relax has seen it last

	looks uint64 // looks of Stays that began anew: those of n that come have it in their turns
	old   int    // those of n that came before the last one

	resting bool // relax has found some: when the last of them leaves, the reading is looked at again
}

// readingEnd is the state of a reading's end.
type readingEnd struct {
	stays bool  // when the last reader has left, for others
	shut  bool  // no more readers are let in
	ended bool  // no reader is left of one that is shut: lock is unlocked, once
	cause error // why lock has ended; nil: it has not
}

// staysSeen has the findings of the last call of Stays.
type staysSeen struct {
	seen  []stay       // in the seats
	since lease.Moment // when the last look of readerCount.looks was
}

// readingName is the key of a reading.
type readingName struct {
	key  string
	hash uint64 // of the key
}

// A place is a reader of a reading.
type place struct {
	seat *seat
	turn uint64
}

// A follower has the contexts that end with a reader's lock, or with permits.
type follower struct {
	ends   []context.CancelCauseFunc
	live   context.Context // nil: it was not asked for
	wanted <-chan struct{} // as live
	label  string          // of WithLabel
}

// A stay is a reader that Stays has seen in a seat, and when first.
type stay struct {
	turn  uint64
	since lease.Moment
}

// slots returns the two places where find looks for a reading.
func (x *reading) slots() (a, b *atomic.Pointer[reading]) {
	r := &x.c.callers.reads
	i := x.id.hash % uint64(len(r.warm))
	return &r.warm[i], &r.warm[i^1]
}

// list lets find find a reading, perhaps in another one's place. The mutex is held.
func (x *reading) list() {
	a, b := x.slots()
	switch {
	case a.Load() == x || b.Load() == x:
	case a.Load() != nil && b.Load() == nil:
		b.Store(x)
	default:
		a.Store(x)
	}
}

// close lets no more readers in. The mutex is held.
func (x *reading) close() {
	x.ending.shut = true
	x.pledge.Retract()
	if x.s.current[x.id.key] == x {
		delete(x.s.current, x.id.key)
		x.c.callers.reads.open.Add(-1)
	}
	a, b := x.slots()
	a.CompareAndSwap(x, nil)
	b.CompareAndSwap(x, nil)
}

// newReading returns the reading of a lock, with one reader that is counted: the caller, which
// carries out a.
func (c *Coordinator) newReading(l Lock, hash uint64, key string, a *after) *reading {
	x := &reading{
		c: c, s: c.shardOf(hash), id: readingName{key: key, hash: hash}, lock: l, began: c.moment(),
		ending: readingEnd{stays: c.callers.limits.Linger > 0}, count: readerCount{n: 1},
	}
	l.endsWith(x.end)
	now := l.p.lock()
	l.p.Share(l.t, l.fence, &x.pledge, x, now, &a.Effects)
	l.p.unlock(a)
	return x
}

// open makes a new reading that of its key, for n readers in the place of the one it has, and for
// later ones. It returns their turn. The mutex is held.
func (x *reading) open(n int) (turn uint64) {
	x.count.n, x.count.old = x.count.n+n-1, 0
	turn = x.count.turn()
	if x.ending.shut {
		return turn
	}
	if x.s.current[x.id.key] != nil { // one that was a writer's
		x.ending.stays = false
		return turn
	}
	if x.s.current == nil {
		x.s.current = make(map[string]*reading)
	}
	x.c.callers.reads.open.Add(1)
	x.s.current[x.id.key] = x
	return turn
}

// linger has a new reading looked at, once per Linger.
func (x *reading) linger() {
	if x.ending.stays {
		x.c.debts.lingers.add(lingering{p: x.lock.p, x: x})
	}
}

// relax ends a reading that no caller has used since it was called last. It reports false if it is
// to be called again, once Linger has passed: not while there are readers that are counted, as
// settle sees the last one leave.
func (x *reading) relax() bool {
	x.s.mu.Lock()
	if x.ending.shut {
		x.s.mu.Unlock()
		return true
	}
	taken, uses := x.look()
	uses += x.count.joins
	idle := !taken && x.count.n == 0 && uses == x.count.uses
	x.count.uses = uses
	x.count.resting = x.count.n > 0
	resting := x.count.resting
	x.s.mu.Unlock()
	return resting || idle && x.retire()
}

// retire ends the reading if there is no reader. It reports whether it has ended.
func (x *reading) retire() bool {
	var a after
	p := x.lock.p
	now := p.lock()
	over := p.Retire(x.lock.t, x.lock.fence, now, &a.Effects)
	p.unlock(&a)
	a.do(x.c)
	return over
}

// inForce reports whether the reading lets readers in, and is in force by both clocks, now. If so,
// it is for as long as the pledge says. A reader that calls it has a seat.
func (x *reading) inForce() (ok bool) {
	if x.extend() {
		return true
	}
	var a after
	p := x.lock.p
	p.mu.Lock()
	p.clock = p.c.now()
	now := p.clock
	if p.TurnState(x.lock.t, x.lock.fence, now, &a.Effects) == lease.TurnRuns {
		x.s.mu.Lock()
		if ok = !x.ending.shut; ok {
			p.Pledge(x.lock.t, now)
		}
		x.s.mu.Unlock()
	}
	p.unlock(&a)
	a.do(p.c)
	return ok
}

// extend is inForce by the clocks alone, if the partition has answered a moment ago.
func (x *reading) extend() bool {
	if !x.pledge.Given() {
		return false
	}
	now := x.c.now()
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	return !x.ending.shut && x.pledge.Extend(x.c.at(now), now)
}

// turn returns the seat's value for a reader that is counted from now on.
func (n *readerCount) turn() uint64 { return seatTaken | seatCounted | n.looks*seatTurn }

// leave is when a reader that is counted is one no more.
func (n *readerCount) leave(turn uint64) {
	n.n--
	if turn/seatTurn < n.looks {
		n.old--
	}
}

// counted returns the lock of a reader that is counted.
func (x *reading) counted(ctx context.Context, turn uint64) ReadLock {
	own := &seat{x: x}
	own.Store(turn)
	return ReadLock{own, turn, ctx}
}

// leave is for a reader that is counted, and has no lock.
func (x *reading) leave(turn uint64) {
	x.s.mu.Lock()
	x.count.leave(turn)
	x.settle()
}

// rise is when a reader with a seat cannot stay.
func (x *reading) rise(seat *seat, turn uint64) {
	seat.Store(turn + seatLeft)
	if !x.pledge.Given() {
		_ = x.left()
	}
}

// left is for a reader that has left its seat while there is no pledge. It returns why lock was
// lost, nil if it was not.
func (x *reading) left() error {
	x.s.mu.Lock()
	loss := x.loss()
	x.settle()
	return loss
}

// settle unlocks lock if the last reader has left one that is shut, or that does not stay. The
// mutex is held, and free afterwards.
func (x *reading) settle() {
	if x.count.n == 0 && !x.ending.shut && !x.ending.stays {
		x.close()
	}
	last := x.ending.shut && !x.ending.ended && x.empty()
	x.ending.ended = x.ending.ended || last
	again := x.count.resting && x.count.n == 0 && !x.ending.shut
	x.count.resting = x.count.resting && !again
	x.s.mu.Unlock()
	if last {
		_ = x.lock.Unlock()
	}
	if again {
		x.linger()
	}
}

// empty reports whether there is no reader. The mutex is held.
func (x *reading) empty() bool {
	taken, _ := x.look()
	return !taken && x.count.n == 0
}

// Shut implements [lease.Sharer].
func (x *reading) Shut() (empty bool) {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	if x.ending.shut {
		return false
	}
	x.close()
	return x.vacated()
}

// Vacate implements [lease.Sharer].
func (x *reading) Vacate() (empty bool) {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	if x.ending.shut {
		return false
	}
	x.pledge.Retract() // a reader that takes a seat from now on asks for it, and waits for this event
	if !x.empty() {
		return false
	}
	x.close()
	return x.vacated()
}

// vacated ends a reading that is shut, if there is no reader, for the partition to end the turn.
// The mutex is held.
func (x *reading) vacated() bool {
	if !x.empty() {
		return false
	}
	x.ending.ended = true
	x.c.life.pool.Go(func() { x.c.noteReleased(x.lock.p, x.lock, x.c.moment()-x.began) })
	return true
}

// Empty implements [lease.Sharer].
func (x *reading) Empty() bool {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	return x.empty()
}

// Stays implements [lease.Sharer]. Of the readers that are counted it follows those that it has
// found together, until the last of them has left: then it begins anew.
func (x *reading) Stays(now lease.Moment) lease.Moment {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	first := now
	if x.count.old == 0 {
		x.count.looks, x.count.old, x.looked.since = x.count.looks+1, x.count.n, now
	}
	if x.count.old > 0 {
		first = x.looked.since
	}
	if len(x.looked.seen) != len(x.seats)*rowSeats {
		x.looked.seen = make([]stay, len(x.seats)*rowSeats)
	}
	for i := range x.looked.seen {
		turn := x.seats[i/rowSeats].at[i%rowSeats].Load() &^ seatFollowed
		switch {
		case turn&seatTaken == 0:
			x.looked.seen[i] = stay{}
		case x.looked.seen[i].turn != turn:
			x.looked.seen[i] = stay{turn, now}
		default:
			first = min(first, x.looked.seen[i].since)
		}
	}
	return first
}

// end is when the lock of the shared name has ended. It runs no code of the user's, as the
// partition's mutex is held.
func (x *reading) end(cause error) {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	x.ending.cause = cause
	x.close()
	for _, f := range x.followed {
		for _, cancel := range f.ends {
			cancel(x.loss())
		}
		f.ends = nil
	}
}

// loss returns why the readers' locks were lost, as the shared one was; nil if it was not.
func (x *reading) loss() error {
	if loss := new(LossError); errors.As(x.ending.cause, &loss) {
		told := *loss
		told.Key = x.id.key
		return &told
	}
	return nil
}

// follow makes Unlock go the slow way, and returns the lock's follower; nil if it has been
// unlocked. The mutex is held.
func (l ReadLock) follow() *follower {
	for {
		v := l.seat.Load()
		if v&^seatFollowed != l.turn {
			return nil
		}
		if v&seatFollowed != 0 || l.seat.CompareAndSwap(v, v|seatFollowed) {
			break
		}
	}
	x, at := l.seat.x, place{l.seat, l.turn}
	f := x.followed[at]
	if f == nil {
		f = new(follower)
		if x.followed == nil {
			x.followed = make(map[place]*follower)
		}
		x.followed[at] = f
	}
	return f
}

// keepLabel keeps the reader's label until it unlocks.
func (l ReadLock) keepLabel(label string) {
	s := l.seat.x.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := l.follow(); f != nil {
		f.label = label
	}
}

// inside reports whether the lock was not unlocked.
func (l ReadLock) inside() bool { return l.seat.Load()&^seatFollowed == l.turn }

// unlockSlowly is Unlock of a reader that has left its seat while there is no pledge; or of one
// that has not, as it is counted, or has contexts, or was unlocked before.
func (l ReadLock) unlockSlowly(left bool) error {
	if l.seat == nil {
		return ErrUnlocked
	}
	x := l.seat.x
	if left {
		return x.left()
	}
	inForce := x.lock.holds()
	x.s.mu.Lock()
	v := l.seat.Load()
	if v&^seatFollowed != l.turn || !l.seat.CompareAndSwap(v, l.turn+seatLeft) {
		x.s.mu.Unlock()
		return ErrUnlocked
	}
	at := place{l.seat, l.turn}
	if f := x.followed[at]; f != nil {
		for _, cancel := range f.ends {
			cancel(ErrUnlocked)
		}
		delete(x.followed, at)
	}
	if l.turn&seatCounted != 0 {
		x.count.leave(l.turn)
	}
	loss := x.loss()
	x.settle()
	if inForce {
		return nil
	}
	return loss
}
