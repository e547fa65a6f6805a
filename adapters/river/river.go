// Package river is a middleware for github.com/riverqueue/river. In all clients together it works
// jobs about the same thing one after another, or a few at a time.
package river

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/turn"
	"github.com/holdfast-go/holdfast/internal/unit"
)

// Options are the options of [Serialize]. The zero value of each field means its default, and a nil
// *Options means all defaults.
type Options struct {
	// AtMost is the most jobs with one key that run at a time. Each job has one of as many places,
	// by its ID: it waits for that place, also where another one is free. Default 1. It must not be
	// negative.
	AtMost int

	// Wait is the longest wait of a job for its turn. It occupies a worker meanwhile. Default 1 s;
	// at least 1 ms. It must not be negative: the job's timeout begins only when its turn has come.
	// Let Wait and that timeout together be less than Config.RescueStuckJobsAfter, an hour by
	// default: river works a job again that lasts longer, beside the first.
	Wait time.Duration

	// Snooze is the delay until a job whose turn did not come is worked again. Its attempt does not
	// count, as with river.JobSnooze. Default 5 s; at least 1 ms. It must not be negative.
	Snooze time.Duration
}

// Serialize returns a middleware that works a job with the lock of its key. key returns "" for jobs
// that need no lock. The job's context ends if the lock is lost, with that as its cause, and
// carries the lock.
//
// river works a job again whose client has crashed, after Config.RescueStuckJobsAfter, an hour by
// default. The lock is free by then. A client that only seems to have crashed may still work: that
// its writes come too late is told by the token of the lock alone.
func Serialize(c *coord.Coordinator, key func(*rivertype.JobRow) string, opts *Options) (rivertype.WorkerMiddleware, error) {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	if o.AtMost == 0 {
		o.AtMost = 1
	}
	if o.Wait == 0 {
		o.Wait = time.Second
	}
	if o.Snooze == 0 {
		o.Snooze = 5 * time.Second
	}
	switch {
	case c == nil || key == nil:
		return nil, errors.New("river: the coordinator or the key function is nil")
	case o.AtMost < 0:
		return nil, fmt.Errorf("river: Options.AtMost is %d, must not be negative", o.AtMost)
	case o.Wait < 0:
		return nil, fmt.Errorf("river: Options.Wait is %v, must not be negative: river ends no wait", o.Wait)
	case o.Snooze < 0:
		return nil, fmt.Errorf("river: Options.Snooze is %v, must not be negative", o.Snooze)
	}
	if err := errors.Join(unit.Check("river: Options.Wait", o.Wait, time.Millisecond, "2 * time.Second"),
		unit.Check("river: Options.Snooze", o.Snooze, time.Millisecond, "5 * time.Second")); err != nil {
		return nil, err
	}
	return &serializer{c, key, o}, nil
}

type serializer struct {
	c    *coord.Coordinator
	key  func(*rivertype.JobRow) string
	opts Options
}

// IsMiddleware and IsPlugin say that it is one.
func (s *serializer) IsMiddleware() bool { return true }
func (s *serializer) IsPlugin() bool     { return true }

// Work implements [rivertype.WorkerMiddleware].
func (s *serializer) Work(ctx context.Context, job *rivertype.JobRow, work func(context.Context) error) error {
	key := s.key(job)
	if key == "" {
		return work(ctx)
	}
	if s.opts.AtMost > 1 {
		key = fmt.Sprint(key, "/", job.ID%int64(s.opts.AtMost))
	}
	ran, err := turn.Do(ctx, s.c, key, s.opts.Wait, work)
	if !ran && ctx.Err() == nil && (errors.Is(err, coord.ErrLocked) || errors.Is(err, coord.ErrUnavailable)) {
		return &rivertype.JobSnoozeError{Duration: s.opts.Snooze}
	}
	return err
}
