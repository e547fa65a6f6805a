package periodic

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// MaxName is the length of the longest name, in bytes.
const MaxName = 512

// A Tick is one run of a job.
type Tick struct {
	Due    time.Time   // when it was due
	Missed int         // how many ticks were due since the last run, and are not run
	Again  bool        // a process that ran this tick has not come to its end: see Options.Again
	Fence  coord.Fence // of the lock under which it runs: it rises with each tick
}

// Run runs fn once per tick of the schedule in all processes together that call Run with the same name,
// until ctx ends. A process in which a tick is run waits for fn. The lock is that of the key "periodic/" + name.
//
// fn's context ends with ctx and when the lock is lost, with that as its cause. fn has to heed it. An
// error of fn is logged, and the tick counts as run. A panic passes through; the tick counts as
// one in which the process crashed.
//
// The first tick is the first one after Run was called first. With a record of earlier runs, a tick that
// was missed since may be due: see Options.Late. A process that is missed in the middle of a run has
// done what it has done: see Options.Again.
//
// Errors: of the name and the options, which name the field; [coord.ErrNoResults] without Options.Store
// where the arbiter keeps no results; [coord.ErrClosed]; [coord.ErrHeld]; and, when a tick is due,
// [coord.ErrInvalidKey] and [coord.ErrObserver]. Other failures are logged, and Run tries again. Nil
// when ctx has ended, or the schedule has no more ticks.
func Run(ctx context.Context, c *coord.Coordinator, name string, s Schedule, opts *Options,
	fn func(ctx context.Context, t Tick) error) error {
	switch {
	case c == nil || s == nil || fn == nil:
		return errors.New("periodic: Run: the coordinator, the schedule or the function is nil")
	case name == "" || len(name) > MaxName:
		return fmt.Errorf("periodic: Run: the name %.64q must have 1 to %d bytes", name, MaxName)
	}
	o, err := opts.filled()
	if err != nil {
		return err
	}
	j := &job{c: c, name: name, id: rand.Text(), key: "periodic/" + name, schedule: s, opts: o, fn: fn, clock: time.Now}
	if f, ok := ctx.Value(clockKey{}).(func() time.Time); ok {
		j.clock = f
	}
	defer c.ExpectLong(j.key)()
	return j.run(ctx)
}

// clockKey is for tests: a context's value of it is the clock.
type clockKey struct{}

// job is one process's part. Only the goroutine of Run uses it.
type job struct {
	c        *coord.Coordinator
	name     string
	id       string // of this call of Run
	key      string
	schedule Schedule
	opts     Options
	fn       func(context.Context, Tick) error
	clock    func() time.Time

	last     seen      // the latest record that was seen
	since    time.Time // ticks up to then are none of this process's, if there is no record
	skewed   bool      // a record about the clock was written
	troubled bool      // a record about the arbiter was written
}

// Waits between looks: after a failure, and at most, as clocks may be set meanwhile.
const (
	retryEvery = time.Second
	lookEvery  = time.Minute
)

func (j *job) run(ctx context.Context) error {
	changed, stop := j.c.Watch(j.key)
	defer stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	j.since = j.clock().Round(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-timer.C:
		}
		wait, err := j.look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errOver):
			return nil
		case isFinal(err):
			return err
		case err != nil:
			if !j.troubled {
				j.opts.Logger.Warn("holdfast: a periodic job cannot be run now, and is tried again", "job", j.name, "error", err)
			}
			j.troubled, wait = true, retryEvery
		default:
			j.troubled = false
		}
		timer.Reset(min(max(wait, 0), lookEvery))
	}
}

// isFinal reports whether another attempt fails, too.
func isFinal(err error) bool {
	return errors.Is(err, coord.ErrClosed) || errors.Is(err, coord.ErrHeld) || errors.Is(err, coord.ErrInvalidKey) ||
		errors.Is(err, coord.ErrObserver) || errors.Is(err, coord.ErrNoResults)
}

// errOver: the schedule has no more ticks.
var errOver = errors.New("periodic: no more ticks")

// look runs what is due, and returns how long to wait for the next tick.
func (j *job) look(ctx context.Context) (time.Duration, error) {
	s, err := j.read(ctx)
	if err != nil {
		return 0, err
	}
	if t, _ := j.due(s); !t.Due.IsZero() || j.unfinished(s) || j.wrong(s) {
		if err := j.attempt(ctx); err != nil {
			return 0, err
		}
		s = j.last
	}
	r := j.now(s)
	if r.Differs != 0 && !j.skewed {
		j.opts.Logger.Warn("holdfast: the clock of this process differs from that of the last run of a periodic job", "job", j.name, "differs", r.Differs)
	}
	j.skewed = r.Differs != 0
	after := r.At
	if s.Due.After(after) {
		after = s.Due
	}
	next := j.schedule.Next(after)
	if next.IsZero() {
		return 0, errOver
	}
	return next.Sub(r.At), nil
}

// unfinished reports whether this process should wait for the lock to run the last tick again.
func (j *job) unfinished(s seen) bool { return j.opts.Again && !s.Due.IsZero() && !s.Done }

// due returns the tick that is to be run now, with Due zero if there is none, and what is to be written of it.
func (j *job) due(s seen) (Tick, record) {
	r := j.now(s)
	from := s.Due
	if from.IsZero() {
		from = j.since
	}
	last, missed := lastTick(j.schedule, from, r.At)
	if last.IsZero() || r.At.Sub(last) > j.opts.Late {
		return Tick{}, r
	}
	r.Due = last
	return Tick{Due: last, Missed: missed}, r
}

// attempt locks the job and runs what is due then.
func (j *job) attempt(ctx context.Context) error {
	return j.c.Do(ctx, j.key, func(ctx context.Context, l coord.Lock) error {
		s, err := j.read(ctx)
		if err != nil {
			return err
		}
		t, r := j.due(s)
		if !s.Due.IsZero() && !s.Done { // its process has lost the lock
			if j.opts.Again && t.Due.IsZero() {
				t, r.Due = Tick{Due: s.Due, Again: true}, s.Due
			} else {
				j.opts.Logger.Warn("holdfast: a process was lost while it ran a periodic job", "job", j.name, "due", s.Due)
			}
			if t.Due.IsZero() {
				s.Done, s.Ran = true, s.Ran+time.Since(s.written)
				return j.write(l, s.record, j.keep(s.Due))
			}
		}
		switch {
		case t.Due.IsZero() && !j.wrong(s):
			return nil
		case t.Due.IsZero():
			s.At, s.Ran, s.Differs, s.By = r.At, 0, 0, ""
			return j.write(l, s.record, j.keep(s.Due))
		}
		began := time.Now()
		if err := j.write(l, r, j.keep(r.Due)); err != nil {
			return err
		}
		t.Fence = l.Fence()
		if err := j.fn(ctx, t); err != nil {
			j.opts.Logger.Warn("holdfast: a periodic job failed", "job", j.name, "due", t.Due, "error", err)
		}
		r.Done, r.Ran = true, time.Since(began)
		return j.write(l, r, j.keep(r.Due))
	})
}
