package coord

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// A Failure is a kind of failed calls of the arbiter, as Stats counts them.
type Failure struct {
	Op     Op
	Reason Reason
}

// Reason is why a call of the arbiter failed.
type Reason uint8

// Reasons.
const (
	ReasonOther    Reason = iota // such as a connection that cannot be made, or breaks
	ReasonTimeout                // no answer came in time
	ReasonRefused                // [fallback.ErrRefused]: a setting
	ReasonFull                   // [fallback.ErrFull]: the server is at its memory limit, say
	ReasonDenied                 // [fallback.ErrDenied]: a password, a permission
	ReasonReadOnly               // [fallback.ErrReadOnly]: the server is a replica
	reasonCount
)

var reasons = [...]string{"other", "timeout", "refused", "full", "denied", "readonly"}

// String returns a name for logs and metrics, such as "timeout".
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

func reasonOf(err error) Reason {
	switch {
	case errors.Is(err, fallback.ErrFull):
		return ReasonFull
	case errors.Is(err, fallback.ErrDenied):
		return ReasonDenied
	case errors.Is(err, fallback.ErrReadOnly):
		return ReasonReadOnly
	case errors.Is(err, fallback.ErrRefused):
		return ReasonRefused
	case errors.Is(err, context.DeadlineExceeded):
		return ReasonTimeout
	}
	return ReasonOther
}

// Ends of waits without a lock, as Stats.GaveUp names them.
const (
	endLocked = iota
	endUnavailable
	endCanceled
)

var waitEnds = [...]string{"locked", "unavailable", "canceled"}

// waitFailed counts the error of a call, nil for none, which waited for others if it did not only
// try. It returns the error.
func (c *Coordinator) waitFailed(try bool, err error) error {
	if try || err == nil {
		return err
	}
	x, waited := errors.AsType[*WaitError](err)
	n := &c.tells.stats.gaveUp
	switch {
	case !waited || errors.Is(err, ErrHeld):
	case errors.Is(x.Ended, context.Canceled):
		n[endCanceled].Add(1)
	case errors.Is(err, ErrUnavailable):
		n[endUnavailable].Add(1)
	case errors.Is(err, ErrLocked):
		n[endLocked].Add(1)
	}
	return err
}

// A CallFailure is a call of the arbiter that failed, as [NodeReport] tells of it.
type CallFailure struct {
	Op     string    `json:"op"`
	Time   time.Time `json:"time"`   // by the clock of the process
	Reason string    `json:"reason"` // that of a Failure
	Error  string    `json:"error"`
}

// Doing returns in words what the call was for, such as "confirming locks".
func (f *CallFailure) Doing() string {
	for op, name := range ops {
		if name == f.Op && op < len(doing) {
			return doing[op]
		}
	}
	return "" // of another version
}

// doing is, by Op, what its calls are for.
var doing = [...]string{"entering the namespace", "beginning a session", "renewing the session", "asking whether another session is over", "closing the session",
	"listing the processes", "listening to messages", "locking keys", "giving keys back", "confirming locks", "writing locks and partitions again",
	"taking and giving partitions", "reading shared results", "storing shared results", "announcing changes", "declaring a silent node dead",
	"reading rows and waiters", "asking for advice", "rotating the secret"}

// Failing returns those of Failures that seem to go on when the report was made: a refusal of the
// last minute, which does not mend itself, and another failure of the last 3 s.
func (r *NodeReport) Failing() (all []CallFailure) {
	for _, f := range r.Failures {
		lasts := 3 * time.Second
		switch f.Reason {
		case ReasonRefused.String(), ReasonFull.String(), ReasonDenied.String():
			lasts = time.Minute
		}
		if r.Clock.Sub(f.Time) < lasts {
			all = append(all, f)
		}
	}
	return all
}

// failed notes that calls have failed. err may be nil: why is not known.
func (c *Coordinator) failed(op Op, n int, err error) {
	reason := reasonOf(err)
	c.tells.stats.failed[op][reason].Add(uint64(n))
	if err != nil {
		c.tells.stats.failures[op].Store(&CallFailure{op.String(), c.now(), reason.String(), err.Error()})
	}
}

// renewals keeps how long the last ones took. A slow server answers some of them fast.
type renewals struct {
	next atomic.Uint32
	last [4]atomic.Int64 // time.Durations
}

func (x *renewals) took(d time.Duration) { x.last[x.next.Add(1)%uint32(len(x.last))].Store(int64(d)) }

func (x *renewals) slowest() (d time.Duration) {
	for i := range x.last {
		d = max(d, time.Duration(x.last[i].Load()))
	}
	return d
}

// maxFailure is how many bytes of an error a report has.
const maxFailure = 300

// failures returns the last failure of each operation that has failed, the newest first.
func (c *Coordinator) failures(now time.Time) (all []CallFailure) {
	for op := range c.tells.stats.failures {
		if f := c.tells.stats.failures[op].Load(); f != nil {
			x := *f
			x.Time = now.Add(-now.Sub(x.Time)) // by the wall clock of now, which may have stepped since
			x.Error = x.Error[:min(len(x.Error), maxFailure)]
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(a, b CallFailure) int { return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.Op, b.Op)) })
	return all
}
