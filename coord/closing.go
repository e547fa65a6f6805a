package coord

import (
	"slices"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/peer"
)

// close refuses new locks, sends the waiters away, and gives back what lingers.
func (p *partition) close() {
	var a after
	p.mu.Lock()
	step(&p.ending, endingClosed, nextEndings[:])
	for _, e := range p.entries {
		p.fail(e, nil, &WaitError{Key: e.key, Reason: ErrClosed}, &a)
		if e.q.Relax() == handoff.GiveBack {
			p.giveBack(e, &a)
		}
	}
	p.spareEntry = nil
	p.mu.Unlock()
	a.do(p.c)
}

// fail sends waiters away with an error: those that which chooses, all if it is nil.
func (p *partition) fail(e *entry, which func(*waiter) bool, err error, a *after) {
	e.q.Drain(which, func(w *waiter) {
		w.Value.err = err
		a.wakeUp(w)
	})
	p.unwanted(e, a)
}

// unwanted ends the request that nobody waits for any more (rule 11).
func (p *partition) unwanted(e *entry, a *after) {
	if e.q.Waiting() > 0 {
		return
	}
	if e.acq != nil {
		e.acq.endFlight()
		e.acq = nil
	}
	if l := e.forward.link; l != nil {
		if !l.down.Load() {
			a.send(l, p.frame(peer.Cancel, e.key, e.forward.id))
		}
		e.forward = forward{}
	}
	if e.g != nil {
		e.g.queue = slices.DeleteFunc(e.g.queue, func(c claimant) bool { return c.link == nil })
		if len(e.g.queue) == 0 && e.g.holder == (fallback.Identity{}) {
			p.noGrants(e)
		}
	}
	p.tidy(e)
}

// emptied returns a channel that is closed when no turn runs.
func (p *partition) emptied() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.turns == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if p.empty == nil {
		p.empty = make(chan struct{})
	}
	return p.empty
}
