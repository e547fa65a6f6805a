package lease

import (
	"time"

	"github.com/holdfast-go/holdfast/handoff"
)

// Close refuses new locks, sends the waiters away with a reason, and gives back what lingers.
func (p *Partition) Close(reason error, now time.Time, fx *Effects) {
	step(&p.closing.ending, Closed, nextEndings[:])
	for _, k := range p.table.keys {
		p.fail(k, nil, reason, now, fx)
		p.makeWay(k, now, fx)
	}
	p.GiveKept(now, fx)
	p.table.unused = nil
}

// GiveKept gives back what lingers.
func (p *Partition) GiveKept(now time.Time, fx *Effects) {
	for _, k := range p.table.keys {
		p.vacated(k, now, fx)
		if k.q.Relax() == handoff.GiveBack {
			p.giveBack(k, now, fx)
		}
	}
}

// Leave makes the partition never be acquired again. It reports whether this node serves it.
func (p *Partition) Leave() (owned bool) {
	step(&p.closing.ending, Leaving, nextEndings[:])
	return p.own != nil
}

// Left reports whether a call is under way that began before Leave, and whether other nodes must not get the partition yet: it
// was not given back, or was not before it lapsed.
func (p *Partition) Left(now time.Time) (busy, owed bool) {
	return p.phase == Demoting || p.phase == Acquiring, p.check.naming == NamedSurely || p.own != nil || !Over(p.bounds.reliedUntil, now)
}
