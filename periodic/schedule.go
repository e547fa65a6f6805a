package periodic

import "time"

// A Schedule says when ticks are. It is the interface of that name of github.com/robfig/cron/v3, so what
// its parser makes of a crontab's line is one. All processes must have the same.
type Schedule interface {
	// Next returns the first tick after t, or the zero time if there is none.
	Next(t time.Time) time.Time
}

// Every returns a schedule with ticks at the multiples of period since the zero time: with an hour, at
// each full hour of UTC. The period is at least a millisecond; a shorter one is taken for that.
func Every(period time.Duration) Schedule { return every(max(period, time.Millisecond)) }

type every time.Duration

// Next implements [Schedule].
func (e every) Next(t time.Time) time.Time {
	return t.Truncate(time.Duration(e)).Add(time.Duration(e))
}

// mostMissed bounds how many ticks are counted one by one.
const mostMissed = 1000

// lastTick returns the last tick after t that is not later than now, and how many there are before it
// since t. The zero time means that there is none. After more than mostMissed ticks it counts anew from
// shortly before now.
func lastTick(s Schedule, t, now time.Time) (last time.Time, before int) {
	for n := 0; ; n++ {
		next := s.Next(t)
		if next.IsZero() || next.After(now) {
			return last, max(n-1, 0)
		}
		if e, ok := s.(every); ok {
			last = now.Truncate(time.Duration(e))
			return last, int(last.Sub(next) / time.Duration(e))
		}
		if n == mostMissed { // the number is a lower bound from here on
			next = s.Next(laterStart(s, t, now))
		}
		last, t = next, next
	}
}

// laterStart returns a moment from which few ticks are left until now.
func laterStart(s Schedule, t, now time.Time) time.Time {
	for back := time.Minute; ; back *= 2 {
		at := now.Add(-back)
		if !at.After(t) {
			return t
		}
		if next := s.Next(at); !next.IsZero() && !next.After(now) {
			return at
		}
	}
}
