package coord

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// Unlock gives the lock to the next waiter of this process, unless another process waits and it is
// that one's turn (Options.Handoff). If there is none, the process keeps the key for its next
// caller, or gives it back to the owner or the arbiter. It does not wait for the network: data that
// a socket does not take at once is sent in the background. It returns [ErrUnlocked] if this lock
// was unlocked before, and an error that Is [ErrLost] if it was lost: then another caller may have
// had the key already. As a rule the clock is not checked here, unless Done of the lock's context
// was called: a process that was stopped for longer than the lease may be told nil before it has
// noticed.
func (l Lock) Unlock() error {
	if l.t == nil {
		return ErrUnlocked
	}
	t, p := l.t, l.p
	p.mu.Lock()
	if !p.traced {
		if p.EndOwn(t, l.fence) || p.Keep(t, l.fence) {
			p.mu.Unlock()
			return nil
		}
		if w := p.Pass(t, l.fence); w != nil {
			p.mu.Unlock()
			w.Value.Ready <- struct{}{}
			return nil
		}
	}
	held, err := l.unlock()
	if err != nil {
		return err
	}
	if held < 0 {
		return nil
	}
	p.c.noteReleased(p, l, held)
	return nil
}

// unlock ends the turn, and returns how long it took, a negative number if that was not measured.
// The partition's mutex is held, and free afterwards.
func (l Lock) unlock() (held time.Duration, err error) {
	var a after
	p := l.p
	held, state := p.Partition.Unlock(l.t, l.fence, p.now(), &a.Effects)
	p.unlock(&a)
	a.do(p.c)
	switch state {
	case lease.TurnUnlocked:
		return 0, ErrUnlocked
	case lease.TurnLost:
		return 0, lossOf(l.t.Lost())
	}
	return held, nil
}
