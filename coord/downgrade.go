package coord

import (
	"context"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/internal/held"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// Downgrade makes the lock one for reading: l is unlocked, and no caller can write in between.
// Readers that came before any waiting writer are let in. Readers behind one wait for that writer,
// which waits for the ReadLock: so do not wait for them with that. Downgrade asks the grantor,
// which is the key's owner or the arbiter, and waits for the answer until ctx ends.
//
// The ReadLock is as one of [Coordinator.RLock]: it has a token above that of l, and has to be
// unlocked. The contexts of l end with [ErrUnlocked] as their cause, and Do's Unlock of l does
// nothing more. The time of [Coordinator.LockFor] does not apply to the ReadLock.
//
// With an error there is no ReadLock. If it Is [ErrLost] or [ErrUnlocked], l has ended; with any
// other error, those of RLock, l is still locked. Only one caller may call it for a lock.
//
// All processes that use the key have to know of it: see [Coordinator.RLock].
func (l Lock) Downgrade(ctx context.Context) (ReadLock, error) {
	if l.t == nil {
		return ReadLock{}, ErrUnlocked
	}
	if ctx.Err() != nil {
		return ReadLock{}, ended(ctx)
	}
	c, own := l.p.c, l.Context()
	if !guard.Downgrades {
		own = context.WithoutCancel(own)
	}
	if own.Err() != nil {
		return ReadLock{}, context.Cause(own)
	}
	waiting, end := held.Under(ctx, own) // beside another holder it would wait for that
	defer end(nil)
	for {
		inner, err := c.lockName(waiting, l.key, fallback.DowngradedName(l.key, c.callers.holder), false, "")
		switch {
		case err != nil && own.Err() != nil:
			return ReadLock{}, context.Cause(own)
		case err != nil:
			return ReadLock{}, rekeyed(err, l.key)
		}
		if inner.fence < l.fence && guard.Downgrades { // it is of an earlier lock, which was lost
			_ = inner.cede()
			continue
		}
		var a after
		x := c.newReading(inner, readHash(l.key), l.key, &a)
		a.do(c)
		if err := l.cede(); err != nil && guard.Downgrades {
			_ = inner.cede()
			return ReadLock{}, err
		}
		x.s.mu.Lock()
		turn := x.open(1)
		x.s.mu.Unlock()
		x.linger()
		r := x.counted(ctx, turn)
		if labelled.Load() {
			if label := labelOf(l.ctx); label != "" {
				r.keepLabel(label)
			}
			took(l.ctx, carriedLock{read: r})
		}
		return r, nil
	}
}

// cede is Unlock for a hold that is given back at once, and not handed to another caller of this
// process.
func (l Lock) cede() error {
	var a after
	p := l.p
	now := p.lock()
	held, state := p.Cede(l.t, l.fence, now, &a.Effects)
	p.unlock(&a)
	a.do(p.c)
	switch state {
	case lease.TurnUnlocked:
		return ErrUnlocked
	case lease.TurnLost:
		return lossOf(l.t.Lost())
	}
	if held >= 0 {
		p.c.noteReleased(p, l, held)
	}
	return nil
}
