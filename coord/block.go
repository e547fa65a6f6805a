package coord

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// A block is permits that this process has, under one hold, and the callers that use them. It lasts
// from one caller to the next: it is given back when it is not used for blockIdle, or when others
// want permits.
//
// A block that is wanted is shut: it has no permits for further callers. Its unused permits are
// given back at once, though others are used: the process asks for a hold of the block with as many
// permits as are in use. The grantor lets it in beside the larger one, and the process then gives
// the larger one back (see fallback.Mode.Block). So at each moment a hold has at least the permits
// that callers have. A pool's mutex protects the fields.
type block struct {
	// The fields that Acquire and Release look at, if the process has the permit, come first: a
	// caller comes back from elsewhere, and each line of the cache is a wait for memory.
	pool   *pool
	pledge *lease.Pledge // until when lock is in force
	uses   []permitUse
	spare  []int32 // uses that no caller has
	end    blockEnd
	size   uint32 // permits of lock
	free   uint32 // those of them that no caller has; none if the block is to become smaller
	listed bool   // in the pool's open
	spell  blockSpell

	lock   Lock // the hold's
	number uint64

	first struct { // the first memory of uses, spare and pledge, so that all is in one place
		uses   [8]permitUse
		spare  [8]int32
		pledge lease.Pledge
	}
}

// permitUse is a caller's part of a block.
type permitUse struct {
	turn  uint64 // differs from one caller to the next
	n     uint32 // 0: no caller has it
	f     *follower
	seen  uint64 // the turn that Stays has seen last
	since lease.Moment
}

// blockEnd is the state of a block's end.
type blockEnd struct {
	shut   bool // there is nothing for further callers
	over   bool // the hold has been given back, or is about to be
	cause  error
	shrink *shrinking  // nil: the hold is not being made smaller
	again  *time.Timer // nil: no request for a smaller hold has failed
}

// blockSpell has the beginning of a block, and the state of relax.
type blockSpell struct {
	turns, seen uint64 // uses that began, in all, and when relax looked last
	most        uint32 // permits that were in use at the same time, since then
	look        *time.Timer
	began       lease.Moment
	watched     bool // a caller has asked whether permits are wanted
}

// blockIdle and blockLingers are how long, and how many Lingers, an unused block is kept at least:
// callers come in bursts, and one that finds no block waits for another process. A block that is
// wanted makes way at once.
const (
	blockIdle    = time.Second
	blockLingers = 20
)

// used returns how many permits callers have. The mutex is held.
func (b *block) used() (n uint32) {
	for i := range b.uses {
		n += b.uses[i].n
	}
	return n
}

// newBlock returns a block, and n of its permits.
func (p *pool) newBlock(l Lock, size uint32, number uint64, n uint32) (*block, Permits) {
	b := &block{pool: p, number: number, lock: l, size: size, free: size}
	b.uses, b.spare, b.pledge = b.first.uses[:0], b.first.spare[:0], &b.first.pledge
	b.spell.began = p.c.moment()
	p.mu.Lock()
	x := b.enter(n)
	p.blocks = append(p.blocks, b)
	pledge := b.pledge
	p.mu.Unlock()
	b.share(l, pledge) // which shuts it if others want it by now
	p.mu.Lock()
	b.list()
	p.mu.Unlock()
	return b, x
}

// share lets the events of the partition know that callers share the lock, which is the block's,
// and may look at the pledge.
func (b *block) share(l Lock, pledge *lease.Pledge) {
	l.endsWith(func(cause error) { b.ended(l.fence, cause) })
	var a after
	now := l.p.lock()
	l.p.Share(l.t, l.fence, pledge, b, now, &a.Effects)
	l.p.unlock(&a)
	a.do(b.pool.c)
}

// enter gives permits to a caller. There are enough. The mutex is held.
func (b *block) enter(n uint32) Permits {
	at := int32(len(b.uses))
	if last := len(b.spare) - 1; last >= 0 {
		at, b.spare = b.spare[last], b.spare[:last]
	} else {
		b.uses = append(b.uses, permitUse{})
	}
	b.free -= n
	b.spell.turns++
	b.spell.most = max(b.spell.most, b.size-b.free)
	u := &b.uses[at]
	u.turn, u.n = b.spell.turns, n
	return Permits{b: b, at: at, n: n, turn: u.turn}
}

// out takes the permits back from a caller. The mutex is held.
func (b *block) out(at int32) {
	u := &b.uses[at]
	b.free += u.n
	u.n, u.f = 0, nil
	b.spare = append(b.spare, at)
}

// list lets further callers have the free permits. The mutex is held.
func (b *block) list() {
	if !b.listed && !b.end.shut && b.free > 0 {
		b.pool.open, b.listed = append(b.pool.open, b), true
	}
}

// shut lets no further callers in. The mutex is held.
func (b *block) shut() {
	b.end.shut = true
	b.pledge.Retract()
	if b.listed {
		p := b.pool
		p.open, b.listed = slices.DeleteFunc(p.open, func(x *block) bool { return x == b }), false
	}
}

// forget takes the block out of its pool: its hold has ended, or is about to. The mutex is held.
func (b *block) forget() {
	if b.end.over {
		return
	}
	b.shut()
	b.end.over = true
	if b.spell.look != nil {
		b.spell.look.Stop()
	}
	if b.end.shrink != nil {
		b.end.shrink.cancel()
	}
	if b.end.again != nil {
		b.end.again.Stop()
	}
	p := b.pool
	p.blocks = slices.DeleteFunc(p.blocks, func(x *block) bool { return x == b })
	p.tidy()
}

// settle is called after callers have left. The mutex is held, and free afterwards.
func (b *block) settle() {
	b.list()
	b.pool.counts.Local += b.pool.serve()
	used := b.used()
	if used == 0 && b.pool.c.callers.limits.Linger <= 0 {
		b.shut()
	}
	last := used == 0 && b.end.shut && !b.end.over
	if last {
		b.forget()
	}
	b.shrink()
	l := b.lock
	b.pool.mu.Unlock()
	if last {
		_ = l.cede()
	}
}

// leave is Permits.Release.
func (b *block) leave(x Permits) error {
	p := b.pool
	p.mu.Lock()
	u := &b.uses[x.at]
	if u.turn != x.turn || u.n == 0 {
		p.mu.Unlock()
		return ErrUnlocked
	}
	if u.f != nil && b.end.cause == nil {
		p.mu.Unlock()
		b.endIfLapsed()
		p.mu.Lock()
		if u = &b.uses[x.at]; u.turn != x.turn || u.n == 0 {
			p.mu.Unlock()
			return ErrUnlocked
		}
	}
	if u.f != nil {
		for _, cancel := range u.f.ends {
			cancel(ErrUnlocked)
		}
	}
	loss := b.loss()
	b.out(x.at)
	p.users--
	if !b.end.shut && p.c.callers.limits.Linger > 0 { // as a rule
		b.list()
		if len(p.grows.callers) > 0 {
			p.counts.Local += p.serve()
		}
		p.mu.Unlock()
		return loss
	}
	p.tidy()
	b.settle()
	return loss
}

// endIfLapsed ends the hold if it is not in force by both clocks.
func (b *block) endIfLapsed() {
	for {
		b.pool.mu.Lock()
		l, cause := b.lock, b.end.cause
		b.pool.mu.Unlock()
		if cause != nil || l.holds() {
			return
		}
		b.pool.mu.Lock()
		same := b.lock.is(l)
		b.pool.mu.Unlock()
		if same {
			return
		}
	}
}

// inForce reports whether the hold is in force by both clocks, now. If so, it is for as long as the
// pledge says.
func (b *block) inForce() bool {
	if b.extend() {
		return true
	}
	for {
		b.pool.mu.Lock()
		l := b.lock
		b.pool.mu.Unlock()
		var a after
		p := l.p
		now := p.lock()
		ok := p.TurnState(l.t, l.fence, now, &a.Effects) == lease.TurnRuns
		b.pool.mu.Lock()
		same := b.lock.is(l)
		if ok && same && !b.end.shut {
			p.Pledge(l.t, now)
		}
		b.pool.mu.Unlock()
		p.unlock(&a)
		a.do(p.c)
		if same {
			return ok
		}
	}
}

// extend is inForce by the clocks alone, if the partition has answered a moment ago.
func (b *block) extend() bool {
	c := b.pool.c
	now := c.now()
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	return !b.end.shut && b.pledge.Extend(c.at(now), now)
}

// Shut implements [lease.Sharer].
func (b *block) Shut() (empty bool) {
	p := b.pool
	tight := p.c.moment() + tightFor
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tight = tight
	if b.end.shut {
		return false
	}
	b.shut()
	if b.used() > 0 {
		b.shrink()
		return false
	}
	b.vacated()
	return true
}

// Vacate implements [lease.Sharer].
func (b *block) Vacate() (empty bool) {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	if b.end.shut || b.used() > 0 {
		return false
	}
	b.vacated()
	return true
}

// vacated is called when the partition ends the turn. The mutex is held.
func (b *block) vacated() {
	b.forget()
	c, l, began := b.pool.c, b.lock, b.spell.began
	c.life.pool.Go(func() { c.noteReleased(l.p, l, c.moment()-began) })
}

// Empty implements [lease.Sharer].
func (b *block) Empty() bool {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	return b.used() == 0
}

// Stays implements [lease.Sharer].
func (b *block) Stays(now lease.Moment) lease.Moment {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	first := now
	for i := range b.uses {
		u := &b.uses[i]
		if u.n == 0 {
			continue
		}
		if u.seen != u.turn {
			u.seen, u.since = u.turn, now
		}
		first = min(first, u.since)
	}
	return first
}

// ended is called when a lock has ended. It runs no code of the user's, as the partition's mutex is
// held. One that was replaced by a smaller one is none of the block's.
func (b *block) ended(fence uint64, cause error) {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	if b.lock.fence == fence {
		b.lose(cause)
	}
}

// lose ends the permits of callers. The mutex is held.
func (b *block) lose(cause error) {
	if b.end.cause != nil {
		return
	}
	b.end.cause = cause
	b.forget()
	for i := range b.uses {
		if f := b.uses[i].f; f != nil {
			for _, cancel := range f.ends {
				cancel(b.loss())
			}
			f.ends = nil
		}
	}
}

// loss returns why the callers' permits were lost, as the block's hold was; nil if it was not. The
// mutex is held.
func (b *block) loss() error {
	if b.end.cause == nil { // as a rule
		return nil
	}
	if loss := new(LossError); errors.As(b.end.cause, &loss) {
		told := *loss
		told.Key = namedSemaphore(b.pool.key)
		return &told
	}
	return nil
}

// retire gives the block back if no caller has permits of it.
func (b *block) retire() {
	var a after
	b.pool.mu.Lock()
	l := b.lock
	b.pool.mu.Unlock()
	now := l.p.lock()
	l.p.Retire(l.t, l.fence, now, &a.Effects)
	l.p.unlock(&a)
	a.do(b.pool.c)
}

// linger has a new block looked at.
func (b *block) linger() {
	c := b.pool.c
	if c.callers.limits.Linger <= 0 {
		return
	}
	every := max(blockIdle, blockLingers*min(c.callers.limits.Linger, math.MaxInt64/blockLingers))
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	if !b.end.over {
		b.spell.look = time.AfterFunc(every, func() { b.relax(every) })
	}
}

// callers returns how many permits of the block no caller has, and how many callers have permits of
// it. labels are those callers' labels, sorted, mostWaiters at most.
func (b *block) callers() (free, n int, labels []string) {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	for i := range b.uses {
		if b.uses[i].n > 0 {
			n++
		}
		if f := b.uses[i].f; f != nil && f.label != "" {
			labels = append(labels, f.label)
		}
	}
	slices.Sort(labels)
	return int(b.size - b.used()), n, labels[:min(len(labels), mostWaiters)]
}
