package periodic

import (
	"slices"
	"time"
)

// gap is a span without a run: the time of the job was set forward over it. If the time is set
// back, its ticks run when they are due. Those around it, which were run ahead of their time, do
// not run again.
type gap struct {
	After  time.Time `json:"after,omitzero"` // a tick that was run; zero: the gap is before the first run
	Before time.Time `json:"before"`         // a tick that was run
}

func (g gap) has(t time.Time) bool { return g.After.Before(t) && t.Before(g.Before) }

// maxGaps bounds the record. Ticks of a gap that has no room count as run.
const maxGaps = 8

// place is the tick that was run last. After the time was set back, it is where it goes on.
func (r record) place() time.Time {
	if r.Last.IsZero() {
		return r.Due
	}
	return r.Last
}

// back is called when the time of the job is set back to now.
func (r *record) back(now time.Time) {
	if !now.Before(r.place()) {
		return
	}
	r.Last = now
	for _, g := range r.Gaps {
		if g.has(now) && !g.After.IsZero() {
			r.Last = g.After // a tick that is due since then was not run
		}
	}
}

// take notes that the tick is run.
func (r *record) take(s Schedule, tick time.Time) {
	ahead := r.Due.IsZero() || r.Set > 0
	r.Set = 0
	if !tick.After(r.Due) {
		r.Last = tick
		r.split(s, tick)
		return
	}
	if ahead {
		r.Gaps = fit(append(slices.Clone(r.Gaps), gap{r.Due, tick}), s)
	}
	r.Due, r.Last = tick, time.Time{}
}

// split takes a tick out of its gap.
func (r *record) split(s Schedule, tick time.Time) {
	var gaps []gap
	for _, g := range r.Gaps {
		if g.has(tick) {
			gaps = append(gaps, gap{g.After, tick}, gap{tick, g.Before})
		} else {
			gaps = append(gaps, g)
		}
	}
	r.Gaps = fit(gaps, s)
}

// fit leaves out gaps without ticks, and of more than maxGaps those that are over soonest: a gap is
// of use until the time of the job, if it is ahead by the gap's length, is past its end by that.
func fit(gaps []gap, s Schedule) []gap {
	gaps = slices.DeleteFunc(gaps, func(g gap) bool {
		next := s.Next(g.After)
		return !g.After.IsZero() && !next.Before(g.Before)
	})
	over := func(g gap) time.Time { return g.Before.Add(g.Before.Sub(g.After)) }
	for len(gaps) > maxGaps {
		first := slices.MinFunc(gaps, func(a, b gap) int { return over(a).Compare(over(b)) })
		gaps = slices.DeleteFunc(gaps, func(g gap) bool { return g == first })
	}
	return gaps
}

// left returns the schedule without the ticks that were run.
func (r record) left(s Schedule) Schedule {
	if r.Last.IsZero() {
		return s
	}
	return left{s, r}
}

type left struct {
	s Schedule
	r record
}

// Next implements [Schedule].
func (l left) Next(t time.Time) time.Time {
	for {
		next := l.s.Next(t)
		if next.IsZero() || next.After(l.r.Due) {
			return next
		}
		t = l.r.Due
		for _, g := range l.r.Gaps {
			if g.has(next) {
				return next
			}
			if !g.After.Before(next) {
				t = g.After // the gaps are in order
				break
			}
		}
	}
}
