package lease

import "time"

// A Moment is a reading of the monotonic clock: the time since the coordinator began. It is a third
// of the size of a time.Time, and read in half the time. It stands still while the machine is
// suspended, so nothing is granted by it alone for longer than WallEvery.
type Moment = time.Duration

// Unmeasured is no moment.
const Unmeasured Moment = -1

// WallEvery is the pause between two readings of the wall clock, counted while the process runs.
const WallEvery = time.Millisecond

// Deadlines are those of a hold: the session's and the slot's. It lapses at the earlier one, by
// either clock.
type Deadlines struct{ Session, Slot time.Time }

// Past reports whether one of them has passed.
func (d Deadlines) Past(now time.Time) bool { return Past(d.Session, now) || Past(d.Slot, now) }

// Past reports whether a deadline has passed, by the monotonic or by the wall clock: one of them
// goes on while the machine is suspended, and the other cannot be set.
func Past(deadline, now time.Time) bool {
	return !now.Before(deadline) || now.UnixNano() >= deadline.UnixNano()
}

// Left returns for how much longer a deadline is good, by the clock that says less: it is negative
// where Past.
func Left(deadline, now time.Time) time.Duration {
	const century = 100 * 365 * 24 * time.Hour // then UnixNano will do, which is quicker
	d := deadline.Sub(now)
	if -century < d && d < century {
		return min(d, time.Duration(deadline.UnixNano()-now.UnixNano()))
	}
	return min(d, deadline.Round(0).Sub(now.Round(0)))
}

// Stepped reports whether a deadline has passed by the wall clock alone, which has stepped, or the
// machine was suspended.
func Stepped(deadline, now time.Time) bool {
	return now.Before(deadline) && now.UnixNano() >= deadline.UnixNano()
}

// Over reports whether a time has passed that other nodes may rely on; [Past] is for times of this
// node alone. At least as much time has gone by as the monotonic clock shows. If other nodes rely
// on t, Margin is in it already. The wall clock may step, and says nothing.
func Over(t, now time.Time) bool { return !now.Before(t) }

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Earlier returns the earlier one of two times. The zero time is none.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
