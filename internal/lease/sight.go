package lease

import "github.com/holdfast-go/holdfast/fallback"

// A Sight is something that a node has decided, for a simulation that compares it with the
// specification (package spec).
type Sight struct {
	Kind      SightKind
	Partition uint32
	Session   string // the node's
	Epoch     uint32 // SightServes, SightFreezes, SightKeeps
	Name      string // of the hold: the others
	Row       fallback.Row
	Until     Deadlines // SightKeeps, SightAccepts: of the hold; SightServes, SightGrants, SightTakes: of the ownership
}

// A SightKind is the kind of event in a Sight.
type SightKind uint8

// The kinds of sights.
const (
	SightServes  SightKind = iota // the node begins to serve an epoch
	SightFreezes                  // it ends the service
	SightKeeps                    // a hold of its own callers goes on after that, and has got an identity
	SightGrants                   // the node, as the owner, grants a hold to another one
	SightTakes                    // it grants one to a caller of its own, but for a caller that has waited for another one's unlock
	SightAccepts                  // it begins to have a hold of the arbiter's, or of another owner's
	SightDrops                    // it ends such a hold, or one that it has kept
)

// show tells of a decision. Only with the build tag simulation does it do anything, or cost
// anything.
func (p *Partition) show(kind SightKind, session string, epoch uint32, k *Key) {
	if !simulated || p.cfg.Sights == nil {
		return
	}
	x := Sight{Kind: kind, Partition: p.number, Session: session, Epoch: epoch}
	switch {
	case kind == SightServes:
		until := p.ownedUntil()
		x.Until = Deadlines{until, until}
	case k == nil:
	case kind == SightGrants:
		until := p.ownedUntil()
		x.Name, x.Row, x.Until = k.name, fallback.Row{Identity: k.others.holder, Token: k.others.token}, Deadlines{until, until}
	case kind == SightTakes:
		id, until := fallback.Identity{Session: session}, p.ownedUntil()
		x.Name, x.Row, x.Until = k.name, fallback.Row{Identity: id, Token: fallback.Token(k.turn.fence)}, Deadlines{until, until}
	default:
		x.Name, x.Row, x.Until = k.name, k.hold.row, p.deadlines(k.hold)
	}
	p.cfg.Sights(x)
}
