package lease

import (
	"slices"

	"github.com/holdfast-go/holdfast/fallback"
)

// linkTo returns the stream to the process of a session, nil if there is none, for a key to keep.
func (p *Partition) linkTo(session string) Link {
	l := p.cfg.View.LinkTo(session)
	if l != nil {
		p.meets(l)
	}
	return l
}

// meets notes that a key is about to keep a stream. Cut goes through the keys of those partitions only that have met the stream.
func (p *Partition) meets(l Link) {
	if !slices.Contains(p.table.links, l) {
		p.table.links = append(p.table.links, l)
	}
}

// checkCut tells of it (Illegal) if a key keeps a stream that the partition has not met.
func (p *Partition) checkCut(l Link) {
	is := func(c claimant) bool { return c.link == l }
	for _, k := range p.table.keys {
		if k.request.link == l || k.others != nil && (k.others.link == l || slices.ContainsFunc(k.others.queue, is)) {
			Illegal("a key of a stream that the partition has not met")
		}
	}
	if slices.ContainsFunc(p.moving.parked, func(x parked) bool { return x.link == l }) {
		Illegal("a request waits of a stream that the partition has not met")
	}
}

// checkSure tells of it (Illegal) if Doubtful would have something to do.
func (p *Partition) checkSure() {
	for _, k := range p.table.keys {
		if g := k.others; g != nil && g.holder != (fallback.Identity{}) && g.doubtful() {
			Illegal("a hold to be asked after, and the partition is sure of all")
		}
	}
}
