package lease

import "time"

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
