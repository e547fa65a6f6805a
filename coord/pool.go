package coord

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// A pool is this process's part of one semaphore: its callers and its blocks of permits. It exists
// while there are any.
type pool struct {
	c *Coordinator

	// The mutex protects the fields below, and those of the blocks. It is one of the last in the
	// order of mutexes: see rank.go. No clock is read while it is held.
	mu     mutex[poolRank]
	of     uint32
	gone   bool
	users  int      // callers that have permits, or are about to
	open   []*block // those with permits for further callers; the one that permits came back to last is the last
	grows  growth
	counts PermitStats
	blocks []*block            // that this process holds
	asked  map[string]struct{} // names of blocks that callers wait for
	tight  lease.Moment        // until then a block is as large as its caller needs

	key string // of the names of holds; never changes
}

// growth is the callers that wait in this process, for permits that come back to a block, and for a
// larger block. The first one is served first, whatever the others want.
type growth struct {
	callers []*grower
	asking  bool   // fill asks for larger blocks, until no caller waits
	name    string // of the block that it asks for
}

// grower is a caller that waits in this process.
type grower struct {
	n    uint32
	x    Permits // its permits; none: it has to ask for itself
	done chan struct{}
}

// partOf is of how many permits a process asks for one at least, once several of its callers want
// some.
const partOf = 64

// tightFor is for how long a process asks for no more permits than its callers want, after others
// wanted some of its permits.
const tightFor = time.Second

// pools are the pools of a coordinator.
type pools struct {
	mu     mutex[poolsRank] // locked after a pool's; protects the fields below
	all    map[string]*pool
	past   PermitStats // of pools that are gone
	number uint64      // of blocks: at a million a second they last for a century
}

func (x *pools) of(c *Coordinator, key string) *pool {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.all[key]
	if p == nil {
		if x.all == nil {
			x.all = make(map[string]*pool)
		}
		p = &pool{c: c, key: key}
		x.all[key] = p
	}
	return p
}

// next returns a number that no other block has.
func (x *pools) next() uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.number++
	return x.number
}

// stats adds up the counts of all pools.
func (x *pools) stats() PermitStats {
	x.mu.Lock()
	sum, all := x.past, make([]*pool, 0, len(x.all))
	for _, p := range x.all {
		all = append(all, p)
	}
	x.mu.Unlock()
	for _, p := range all {
		p.mu.Lock()
		if !p.gone { // else perhaps it was added after sum was read: it is missing once
			sum.add(p.counts)
		}
		p.mu.Unlock()
	}
	return sum
}

// exit is when a user has got no permits.
func (p *pool) exit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users--
	p.tidy()
}

// tidy forgets a pool without users and blocks. The mutex is held.
func (p *pool) tidy() {
	if p.users > 0 || len(p.blocks) > 0 || p.gone {
		return
	}
	p.gone = true
	all := &p.c.callers.pools
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.all, p.key)
	all.past.add(p.counts)
}

// take takes permits of a block that has enough of them, for one more user. It returns the pledge
// of the block, which the caller has to look at. It returns nothing if there is no such block, or
// others of the process wait.
func (p *pool) take(of, n uint32) (Permits, *lease.Pledge) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of != of || len(p.grows.callers) > 0 {
		return Permits{}, nil
	}
	x := p.pick(n)
	if x.b == nil {
		return Permits{}, nil
	}
	p.users++
	p.counts.Local++
	return x, x.b.pledge
}

// pick takes permits of a block that has enough of them. The mutex is held.
func (p *pool) pick(n uint32) Permits {
	for i := len(p.open) - 1; i >= 0; i-- {
		if b := p.open[i]; b.free >= n {
			x := b.enter(n)
			if b.free == 0 {
				p.open, b.listed = slices.Delete(p.open, i, i+1), false
			}
			return x
		}
	}
	return Permits{}
}

// acquire is for a user that has not got its permits at once. With an error it is one no more.
func (p *pool) acquire(ctx context.Context, n uint32, try bool, label string) (got Permits, err error) {
	defer func() { // also if a trace function ends the goroutine
		if got.b == nil {
			p.exit()
		}
	}()
	for label == "" && !try {
		now := p.c.moment()
		p.mu.Lock()
		if len(p.grows.callers) == 0 {
			if x := p.pick(n); x.b != nil {
				p.counts.Local++
				p.mu.Unlock()
				x.ctx = ctx
				if x.b.inForce() {
					return x, nil
				}
				p.again(x)
				continue
			}
		}
		if p.users == 1 || now < p.tight {
			p.mu.Unlock()
			break
		}
		x, err := p.grow(ctx, n)
		switch {
		case err != nil:
			return x, err
		case x.b == nil: // there is no larger block
		case x.b.inForce():
			return x, nil
		default:
			p.again(x)
		}
	}
	if try {
		return p.try(ctx, n, label)
	}
	return p.ask(ctx, p.name(n), n, false, label)
}

// try asks for a block that is to be had at once. If it is refused, other processes and this one
// give back the permits that they keep for callers to come, which takes a moment; it awaits that
// for as long as one answer. Where permits were refused, or wanted, a short time ago, there is
// little of that, and it asks once more only.
func (p *pool) try(ctx context.Context, n uint32, label string) (Permits, error) {
	x, err := p.ask(ctx, p.name(n), n, true, label)
	if !refusal(err) {
		return x, err
	}
	now := p.c.moment()
	p.mu.Lock()
	tight := now < p.tight
	if errors.Is(err, ErrLocked) {
		p.tight = now + tightFor
	}
	p.mu.Unlock()
	room, cancel := context.WithTimeout(ctx, p.c.answerIn()) // a smaller block is asked for until there is an answer
	defer cancel()
	p.makeRoom(room)
	for pause := firstRoom; sleep(room, pause); pause *= 2 {
		x, err = p.ask(ctx, p.name(n), n, true, label)
		if !refusal(err) || tight || pause >= lastRoom {
			break
		}
	}
	return x, err
}

// refusal reports whether a caller that tries was refused permits that others have, or only keep.
func refusal(err error) bool {
	_, size := errors.AsType[*SizeError](err)
	return size || errors.Is(err, ErrLocked)
}

// Pauses of a caller that tries, while processes give back the permits that they keep.
const firstRoom, lastRoom = time.Millisecond, 8 * time.Millisecond

// again gives permits back that are not in force, of a user that goes on.
func (p *pool) again(x Permits) {
	p.mu.Lock()
	p.users++
	p.mu.Unlock()
	_ = x.Release()
}

// blockName is a block that is about to be asked for.
type blockName struct {
	name   string
	size   uint32
	number uint64
}

// name names a block. It is one of those that are asked for until ask returns.
func (p *pool) name(size uint32) blockName {
	x := blockName{size: size, number: p.c.callers.pools.next()}
	p.mu.Lock()
	defer p.mu.Unlock()
	x.name = fallback.BlockName(p.key, size, p.of, p.c.callers.holder, x.number)
	if p.asked == nil {
		p.asked = make(map[string]struct{})
	}
	p.asked[x.name] = struct{}{}
	p.counts.Asked++
	return x
}

// ask asks for a block, and returns n permits of it.
func (p *pool) ask(ctx context.Context, as blockName, n uint32, try bool, label string) (Permits, error) {
	l, err := p.lockBlock(ctx, as.name, try, label)
	if err != nil {
		return Permits{}, err
	}
	b, x := p.newBlock(l, as.size, as.number, n)
	x.ctx = ctx
	b.linger()
	return x, nil
}

// lockBlock locks the name of a block, which is one of those that are asked for until then.
func (p *pool) lockBlock(ctx context.Context, name string, try bool, label string) (Lock, error) {
	defer func() { // also if a trace function ends the goroutine
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.asked, name)
	}()
	return p.c.lockName(ctx, p.key, name, try, label)
}

// grow waits for permits of a block of the process, and has a larger one asked for. It returns
// nothing if that was refused, or others want permits. The mutex is held, and free afterwards.
func (p *pool) grow(ctx context.Context, n uint32) (Permits, error) {
	me := &grower{n: n, done: make(chan struct{})}
	p.grows.callers = append(p.grows.callers, me)
	if !p.grows.asking {
		p.grows.asking = true
		p.users++ // fill
		p.c.life.pool.Go(p.fill)
	}
	p.mu.Unlock()
	select {
	case <-me.done:
		me.x.ctx = ctx
		return me.x, nil
	case <-ctx.Done():
	}
	reason := p.whyNot()
	p.mu.Lock()
	x := me.x
	if at := slices.Index(p.grows.callers, me); at >= 0 {
		p.grows.callers = slices.Delete(p.grows.callers, at, at+1)
		p.counts.Local += p.serve() // perhaps it was the first one
	}
	p.mu.Unlock()
	if x.b != nil { // in the same moment
		p.again(x)
	}
	return Permits{}, &WaitError{Key: p.key, Reason: reason, Ended: ended(ctx)}
}

// whyNot returns the reason why there is no larger block yet.
func (p *pool) whyNot() error {
	p.mu.Lock()
	name := p.grows.name
	p.mu.Unlock()
	part := p.c.partitionOf(p.key)
	part.mu.Lock()
	defer part.mu.Unlock()
	return orLocked(part.Reason(part.Find(name)))
}

// serve gives permits of the blocks to the callers that wait in this process, in their order, as
// far as there are enough. It returns how many callers got some. The mutex is held.
func (p *pool) serve() (n uint64) {
	for ; len(p.grows.callers) > 0; n++ {
		x := p.pick(p.grows.callers[0].n)
		if x.b == nil {
			break
		}
		p.wake(x)
	}
	return n
}

// wake ends the wait of the first caller that waits in this process. The mutex is held.
func (p *pool) wake(x Permits) {
	m := p.grows.callers[0]
	p.grows.callers[0], p.grows.callers = nil, p.grows.callers[1:]
	m.x = x
	close(m.done)
}

// fill asks for larger blocks as long as callers wait in this process. If others want permits, or
// there are too few, each caller has to ask for itself.
func (p *pool) fill() {
	refused := true
	defer func() { p.filled(refused) }() // also if a trace function ends the goroutine
	now := p.c.moment()
	p.mu.Lock()
	for len(p.grows.callers) > 0 && now >= p.tight {
		size := p.larger()
		p.mu.Unlock()
		as := p.name(size)
		p.mu.Lock()
		p.grows.name = as.name
		p.mu.Unlock()
		x, err := p.ask(context.Background(), as, 1, true, "")
		if err != nil {
			return
		}
		now = p.c.moment()
		p.mu.Lock()
		x.b.out(x.at)
		x.b.list()
		_ = p.serve() // they are not counted as served from the process's own permits
		x.b.settle()
		p.mu.Lock()
	}
	p.mu.Unlock()
	refused = false
}

// filled is when no larger block is asked for any more.
func (p *pool) filled(refused bool) {
	now := p.c.moment()
	p.mu.Lock()
	if refused {
		p.tight = now + tightFor
	}
	for len(p.grows.callers) > 0 {
		p.wake(Permits{})
	}
	p.grows.asking = false
	p.users--
	p.tidy()
	p.mu.Unlock()
}

// larger returns the size of a block with enough permits for the waiting callers. It doubles the
// permits of the process, up to a quarter of the semaphore's at a time. Callers that come in the
// same moment are asked for with the first one, so it is one part at least (partOf). The mutex is
// held.
func (p *pool) larger() uint32 {
	var sum, total uint32
	for _, m := range p.grows.callers {
		sum += min(m.n, p.of-sum)
	}
	for _, b := range p.blocks {
		total += b.size
	}
	return max(sum, p.of/partOf, min(total, p.of/4))
}

// makeRoom gives back the unused permits of the blocks.
func (p *pool) makeRoom(ctx context.Context) {
	p.mu.Lock()
	blocks := slices.Clone(p.blocks)
	p.mu.Unlock()
	for _, b := range blocks {
		b.makeRoom(ctx)
	}
}

// makeRoom gives back the unused permits of the block.
func (b *block) makeRoom(ctx context.Context) {
	p := b.pool
	p.mu.Lock()
	if b.end.over || b.used() >= b.size {
		p.mu.Unlock()
		return
	}
	b.shut()
	b.settle()
	p.mu.Lock()
	s := b.end.shrink
	p.mu.Unlock()
	if s == nil {
		return
	}
	select {
	case <-s.done:
	case <-ctx.Done():
	}
}

// names returns the names of the holds of a semaphore that this process has, or that its callers
// wait for. It returns none if the key is no semaphore's.
func (x *pools) names(key string) (names []string) {
	if !strings.HasPrefix(key, semaphorePrefix) {
		return nil
	}
	x.mu.Lock()
	p := x.all[key]
	x.mu.Unlock()
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.blocks {
		names = append(names, b.lock.key)
	}
	for name := range p.asked {
		if len(names) >= 4*mostWaiters {
			break
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
