package periodic

import (
	"fmt"
	"time"
)

// A Schedule gives the times of ticks. It is the interface of that name of
// github.com/robfig/cron/v3, so its parser makes one of a crontab's line. All processes must have
// the same. Run asks for times in time.Local: with a line that has no CRON_TZ all processes must
// have the same time zone, too. Else a daily job runs once for each zone.
type Schedule interface {
	// Next returns the first tick after t, or the zero time if there is none. [Run] ends with an
	// error if it is not after t.
	Next(t time.Time) time.Time
}

// Every returns a schedule with ticks at the multiples of period since the zero time: with an hour,
// at each full hour of UTC. [Run] refuses a period of less than a millisecond, as that of
// Every(30), which is 30 ns.
func Every(period time.Duration) Schedule { return every(period) }

type every time.Duration

// check returns an error if there are no such ticks.
func (e every) check() error {
	if period := time.Duration(e); period < time.Millisecond {
		return fmt.Errorf("periodic: the period of Every is %v, must be at least 1ms: a number without a unit is in "+
			"nanoseconds, write it as in 30 * time.Second", period)
	}
	return nil
}

// Next implements [Schedule].
func (e every) Next(t time.Time) time.Time {
	if e.check() != nil {
		return t // no tick is after t, also for a schedule that has this one inside
	}
	return t.Truncate(time.Duration(e)).Add(time.Duration(e))
}

// local is a schedule that is asked in one location: the times of a record may have lost theirs.
type local struct {
	s     Schedule
	loc   *time.Location
	wrong *error // set to the fault of the schedule, which has no more ticks then
}

// in returns the schedule as one of the location, and a pointer to the error of its end. One of
// [Every] is the same in all locations.
func in(s Schedule, loc *time.Location) (Schedule, *error) {
	wrong := new(error)
	if _, ok := s.(every); ok {
		return s, wrong
	}
	return local{s, loc, wrong}, wrong
}

// Next implements [Schedule].
func (l local) Next(t time.Time) time.Time {
	next := l.s.Next(t.In(l.loc)).In(l.loc)
	if next.IsZero() || next.After(t) {
		return next
	}
	*l.wrong = fmt.Errorf("periodic: the schedule (%T) is wrong: its Next of %v is %v, must be later", l.s, t.In(l.loc), next)
	return time.Time{}
}

// apart reports whether a process in another zone has other ticks: whether the one after a tick
// that a process has run is another one in its offset than in this process's location.
func (l local) apart(tick time.Time) bool {
	_, theirs := tick.Zone()
	_, own := tick.In(l.loc).Zone()
	return theirs != own && !l.s.Next(tick).Equal(l.Next(tick))
}

// mostMissed bounds how many ticks are counted one by one.
const mostMissed = 1000

// lastTick returns the last tick after t that is not later than now, how many there are before it
// since t, and the next one. The zero time means that there is none. After more than mostMissed
// ticks it counts anew from shortly before now. Each tick is the next one of the one before, as the
// schedule may count from the time that it is asked for: then its ticks stay multiples of its
// period after t.
func lastTick(s Schedule, t, now time.Time) (last time.Time, before int, next time.Time) {
	for n := 0; ; n++ {
		next = s.Next(t)
		if next.IsZero() || next.After(now) {
			return last, max(n-1, 0), next
		}
		if e, ok := s.(every); ok {
			last = now.Truncate(time.Duration(e))
			return last, int(last.Sub(next) / time.Duration(e)), e.Next(now)
		}
		if n == mostMissed {
			if k, period := rest(s, next, now); period > 0 {
				last = next.Add(time.Duration(k) * period)
				return last, n + k, last.Add(period)
			}
			// The number is a lower bound from here on.
			next = s.Next(laterStart(s, t, now))
		}
		last, t = next, next
	}
}

// rest returns the number of ticks after tick until now, and the period, of a schedule that counts
// from the argument of Next. "@every 7s" of cron's parser is such a one. For others it returns
// zeros.
func rest(s Schedule, tick, now time.Time) (k int, period time.Duration) {
	counts := func(t time.Time) bool { return s.Next(t).Sub(t) == period }
	period = s.Next(tick).Sub(tick)
	if period <= time.Second || !counts(tick.Add(time.Second)) {
		return 0, 0
	}
	k = int(now.Sub(tick) / period)
	if last := tick.Add(time.Duration(k) * period); !counts(last) || !counts(last.Add(-period)) {
		return 0, 0
	}
	return k, period
}

// laterStart returns a moment with few ticks between it and now.
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
