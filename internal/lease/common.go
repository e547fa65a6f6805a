package lease

import (
	"time"
)

// common is the one stream to an owner that all of a partition's remote holds rest on, if they do.
// What the owner has announced there is a bound for all their deadlines, so not each has to be
// looked at.
type common struct {
	known bool // false: each hold is to be looked at
	from  Link
	pongs uint64 // the owner's word is for each hold after more pongs
}

// add takes one of the holds in. c begins with known set.
func (c *common) add(h *hold) {
	if h.source != SourceOwner || c.from != nil && c.from != h.from {
		c.known = false
		return
	}
	c.from, c.pongs = h.from, max(c.pongs, h.pongs)
}

// until returns when the first of the remote holds may lapse, and reports false if each has to be
// looked at.
func (p *Partition) until(now time.Time) (until time.Time, ok bool) {
	c := &p.basis.common
	if !c.known || c.from == nil || c.from.Down() {
		return time.Time{}, false
	}
	until = c.from.Announced(time.Time{}, c.pongs)
	ok = !until.IsZero() && !Past(until, now)
	if ok {
		p.assertCommon(until)
	}
	return until, ok
}
