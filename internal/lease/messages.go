package lease

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/internal/guard"
)

// Has reports whether the request is a hold of this process, or may still become one.
func (p *Partition) Has(key string, id fallback.Identity) bool {
	k := p.table.keys[key]
	return k != nil && (k.q.State() != handoff.Idle && k.hold.row.Identity == id || k.contender != nil && k.contender.id == id)
}

// Woken is a message of the arbiter's: the key is free, and promised to the request. If that is
// over it is withdrawn, so that the next one need not wait until the promise lapses (rule 15): a
// replica that was promoted may remember waiters of long ago.
func (p *Partition) Woken(key string, id fallback.Identity, fx *Effects) {
	k := p.table.keys[key]
	switch {
	case k != nil && k.contender != nil && k.contender.id == id:
		out := p.order()
		out.Pokes = append(out.Pokes, k.contender)
	case k != nil && k.q.State() != handoff.Idle && k.hold.row.Identity == id: // it came first
	case guard.OnItsWay && k != nil && k.request.link != nil && k.request.id() == id: // no request of the arbiter's: the message lies
	case p.toCome(id): // the message lies
	default:
		fx.Heard = append(fx.Heard, p.ReleaseOf(key, id))
	}
}

// toCome reports whether no request has had that number yet. Its release could come after its row.
func (p *Partition) toCome(id fallback.Identity) bool { return id.Request > p.cfg.Requests.Load() }

// Gap is a message of the arbiter's: others may have been missed, so every waiter looks (rule 15).
func (p *Partition) Gap(fx *Effects) { p.pokeAll() }

// Asked is a message of the arbiter's: another process waits for the key, and the arbiter has a row
// with the identity. The hold is recalled. If this process neither has it nor is about to, the row
// has no holder, and is removed (rule 13).
func (p *Partition) Asked(key string, id fallback.Identity, now time.Time, fx *Effects) {
	k := p.table.keys[key]
	switch {
	case k != nil && k.q.State() != handoff.Idle && k.hold.row.Identity == id:
		p.recallHere(k, now, fx)
	case k != nil && k.contender != nil && k.contender.id == id:
		k.contender.asked = true
	case guard.OnItsWay && k != nil && k.request.link != nil && k.request.id() == id:
		k.asked = true // the owner's grant is on its way, and the row came first
	case p.toCome(id): // the message lies
	default:
		fx.Heard = append(fx.Heard, p.ReleaseOf(key, id))
	}
}

// Summoned: a message says that another node asks for the partition.
func (p *Partition) Summoned(epoch uint32, fx *Effects) {
	if p.own != nil && p.own.epoch == epoch && p.phase == Owned {
		out := p.order()
		out.Rumors = append(out.Rumors, Rumor{})
	}
}
