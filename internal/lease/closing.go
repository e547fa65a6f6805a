package lease

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/handoff"
)

// Close refuses new locks, sends the waiters away with a reason, and gives back lingering holds.
func (p *Partition) Close(reason error, now time.Time, fx *Effects) {
	step(&p.closing.ending, Closed, nextEndings[:])
	for _, k := range p.table.keys {
		p.fail(k, nil, reason, now, fx)
		p.makeWay(k, now, fx)
	}
	p.GiveKept(now, fx)
	p.table.unused = nil
}

// GiveKept gives back lingering holds.
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

// Left reports whether a call is under way that began before Leave, and why other nodes must not
// get the partition yet; "" if they may.
func (p *Partition) Left(now time.Time) (busy bool, owed string) {
	switch busy = p.phase == Demoting || p.phase == Acquiring; {
	case p.own != nil:
		owed = "it is served"
	case p.record.naming == NamedSurely:
		owed = "a Demote was not answered"
	case !Over(p.bounds.reliedUntil, now):
		owed = fmt.Sprintf("this node let go of it before, and others may rely on that for %v", p.bounds.reliedUntil.Sub(now))
	}
	return busy, owed
}
