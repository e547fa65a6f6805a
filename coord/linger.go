package coord

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// lingering is a key with a hold that lingers, or a reading.
type lingering struct {
	p   *partition
	key *lease.Key
	x   *reading // nil: see key
}

// lingerer ends lingering. An entry is in the list at most once, however often it lingers.
type lingerer struct {
	mu     mutex[leafRank] // protects list
	list   []lingering
	signal chan struct{} // capacity 1: list is not empty
}

func (l *lingerer) init() { l.signal = make(chan struct{}, 1) }

func (l *lingerer) add(x lingering) {
	l.mu.Lock()
	l.list = append(l.list, x)
	first := len(l.list) == 1
	l.mu.Unlock()
	if first {
		select {
		case l.signal <- struct{}{}:
		default:
		}
	}
}

func (l *lingerer) take() []lingering {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.list
	l.list = nil
	return list
}

// endLingers runs until the coordinator stops. It looks once per Linger, so an entry lingers for up
// to twice that.
func (c *Coordinator) endLingers() {
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-c.life.ctx.Done():
			return
		case <-c.debts.lingers.signal:
		}
		tick.Reset(c.callers.limits.Linger)
		select {
		case <-c.life.ctx.Done():
			return
		case <-tick.C:
		}
		for _, x := range c.debts.lingers.take() {
			if !x.relax() {
				c.debts.lingers.add(x)
			}
		}
	}
}

// relax gives the hold back if it has lingered for long enough. It reports false if it has to
// linger on.
func (x lingering) relax() bool {
	if x.x != nil {
		return x.x.relax()
	}
	var a after
	p := x.p
	now := p.lock()
	relaxed := p.Relax(x.key, now, &a.Effects)
	p.unlock(&a)
	a.do(p.c)
	return relaxed
}
