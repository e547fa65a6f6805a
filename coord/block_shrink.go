package coord

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// shrinking is a smaller hold that is asked for.
type shrinking struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// relax gives the block back if it was not used since it was called last, or most of it if it was
// used little. Otherwise it is called again.
func (b *block) relax(every time.Duration) {
	c := b.pool.c
	b.pool.mu.Lock()
	used, over := b.used(), b.end.over || c.life.ctx.Err() != nil
	idle := used == 0 && b.spell.turns == b.spell.seen
	most := b.spell.most
	b.spell.seen, b.spell.most = b.spell.turns, used
	if !idle && !over && most <= b.size/4 && used > 0 && !b.spell.watched && !b.end.shut && b.end.shrink == nil {
		b.startShrink(most)
	}
	if !over {
		b.spell.look.Reset(every) // retire stops it
	}
	b.pool.mu.Unlock()
	if idle && !over {
		b.retire()
	}
}

// shrink begins to give back the unused permits of a block that is shut. The mutex is held.
func (b *block) shrink() {
	used := b.used()
	if !b.end.shut || b.end.over || b.end.shrink != nil || used == 0 || used >= b.size {
		return
	}
	if !guard.InUse {
		used = max(1, used/2)
	}
	b.startShrink(used)
}

// startShrink asks for a hold of n permits of the block, as many at least as callers have. The
// mutex is held.
func (b *block) startShrink(n uint32) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &shrinking{cancel, make(chan struct{})}
	b.end.shrink = s
	if !b.end.shut {
		b.free -= b.size - n // until then, too
	}
	b.pool.c.life.pool.Go(func() {
		defer close(s.done)
		defer cancel()
		b.become(ctx, n)
	})
}

// become makes the block one of n permits.
func (b *block) become(ctx context.Context, n uint32) {
	p := b.pool
	p.mu.Lock()
	name := fallback.BlockName(p.key, n, p.of, p.c.callers.holder, b.number)
	p.mu.Unlock()
	var l Lock
	err := errGoexit
	defer func() { b.became(n, l, err) }() // also if a trace function ends the goroutine
	l, err = p.c.lockName(ctx, p.key, name, false, "")
}

// became is called when l has become the hold, if there is no error.
func (b *block) became(n uint32, l Lock, err error) {
	p := b.pool
	p.mu.Lock()
	if !errors.Is(err, ErrClosed) {
		b.end.shrink = nil
	}
	if err != nil || b.end.over {
		switch {
		case b.end.over:
		case b.end.shut:
			b.askAgain()
		default: // relax asks again
			b.free += b.size - n
			b.list()
			p.counts.Local += p.serve()
		}
		p.mu.Unlock()
		if err == nil {
			_ = l.cede()
		}
		return
	}
	was, pledge := b.swap(l, n)
	p.mu.Unlock()
	b.share(l, pledge) // which shuts it if others want it by now: settle lists it, if not
	b.shed(was, l)
}

// swap has callers share l, of n permits, and returns the hold that they shared before. The
// mutex is held.
func (b *block) swap(l Lock, n uint32) (was Lock, pledge *lease.Pledge) {
	was, pledge = b.lock, new(lease.Pledge)
	if b.end.shut {
		b.free = n - b.used()
	}
	b.lock, b.size, b.pledge, b.end.shut = l, n, pledge, false
	b.pool.counts.Shrunk++
	return was, pledge
}

// shed gives back the hold that callers shared before l.
func (b *block) shed(was, l Lock) {
	p := b.pool
	if err := was.cede(); err != nil { // the permits were lost before they were those of this hold
		p.mu.Lock()
		last := b.lock // not l where the block has become smaller still by now
		b.lose(err)
		p.mu.Unlock()
		_ = l.cede()
		_ = last.cede()
		return
	}
	p.mu.Lock()
	b.settle()
}

// askAgain asks for a smaller block some time after that failed, while others wait for the unused
// permits. The mutex is held.
func (b *block) askAgain() {
	c := b.pool.c
	if b.end.again != nil {
		b.end.again.Reset(jitter(c.opts.RetryEvery)) // forget stops it
		return
	}
	b.end.again = time.AfterFunc(jitter(c.opts.RetryEvery), func() {
		b.pool.mu.Lock()
		defer b.pool.mu.Unlock()
		if c.life.ctx.Err() == nil {
			b.shrink()
		}
	})
}
