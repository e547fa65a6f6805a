package fallback

// Witness is [PartitionStore.Witness].
func (p *Partition) Witness(m Moment, seen Token) Record {
	p.enter(m)
	if p.behind(seen) {
		if p.GraceEnd == 0 {
			p.GraceEnd, p.Changed = m.Now+m.Grace, 0
		}
		if e := seen.Epoch(); e > p.Epoch {
			// A later epoch existed: the owner that this record names is history.
			p.Epoch, p.Owner, p.Seq, p.From = e, "", 0, 0
		}
		p.Seq = max(p.Seq, seen.Seq())
	}
	return p.record(m)
}

// behind reports whether the record could still give out a token that was given out. Tokens that an
// owner gives out are not in it.
func (p *Partition) behind(seen Token) bool {
	e := seen.Epoch()
	return e <= MaxEpoch && (e > p.Epoch || e == p.Epoch && p.Owner == "" && seen.Seq() > p.Seq)
}
