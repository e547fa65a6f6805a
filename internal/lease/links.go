package lease

import "slices"

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
