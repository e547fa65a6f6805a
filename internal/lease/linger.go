package lease

import (
	"time"

	"github.com/holdfast-go/holdfast/handoff"
)

// A hold lingers when its last turn has ended and no caller waits: this node keeps it for the next
// caller. An owner's own goes on its shelf, until another key needs the place (unlock.go); another
// one in the shell's list, for Options.Handoff.Linger (giveback.go). The functions below give the
// next caller its turn under it.

// Lingers reports whether Reenter may grant the key. k may be nil.
func (p *Partition) Lingers(k *Key) bool {
	return k != nil && k.q.State() == handoff.Lingering && p.closing.ending == Open
}

// Enter gives a lingering hold's next turn to the caller, if there is one. The hold is in force.
func (p *Partition) Enter(k *Key, at Moment) (*Turn, uint64, Path) {
	if k.q.State() != handoff.Lingering || p.dry(k) {
		return nil, 0, 0
	}
	path := p.supply(k)
	fence, _ := k.q.Enter() // it lingers
	return p.begin(k, fence, path, at), fence, path
}

// dry reports whether the key lingers under an own hold, and the ownership has no token left.
func (p *Partition) dry(k *Key) bool {
	return k.hold.source == SourceOwn && k.q.State() == handoff.Lingering && p.own != nil && p.own.seq >= noSeq
}

// supply gives the next turn its token, if this node is the grantor, and returns the path of that
// turn.
func (p *Partition) supply(k *Key) Path {
	if k.hold.source != SourceOwn || p.own == nil || p.own.seq >= noSeq {
		return PathTurn
	}
	k.q.Supply(uint64(p.token(1)))
	return PathOwn
}

// Soon reports whether the monotonic clock alone allows Enter, as both clocks have shortly before.
// It is so for the partition's key that was found last, as long as its hold is the same and its
// deadline no nearer.
func (p *Partition) Soon(k *Key, at Moment) bool { return k == p.table.recent && at < p.table.good }

// Reenter is Enter after Lingers, if the hold is in force. It takes nothing away.
func (p *Partition) Reenter(k *Key, now time.Time) (*Turn, uint64, Path) {
	own := k.hold.source == SourceOwn && p.Good(now)
	if !own {
		d := p.deadlines(k.hold)
		if d.Past(now) {
			return nil, 0, 0
		}
		if k == p.table.recent {
			p.table.good = min(p.cfg.At(now)+WallEvery, p.cfg.At(d.Session), p.cfg.At(d.Slot))
		}
	}
	return p.Enter(k, p.cfg.At(now))
}

// retract makes callers ask for the deadline of the key's hold, which may be nearer than before.
func (p *Partition) retract(k *Key) {
	k.turn.retract()
	if k == p.table.recent {
		p.table.good = 0
	}
}
