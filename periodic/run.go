package periodic

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
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

// Run runs fn once per tick of the schedule in all processes together that call Run with the same
// name, until ctx ends. A process in which a tick is run waits for fn. The lock is that of the key
// "periodic/" + name.
//
// fn's context ends with ctx and when the lock is lost, with that as its cause. fn has to heed it.
// An error of fn is logged, and the tick counts as run. A panic passes through; the tick counts as
// one in which the process crashed.
//
// The first tick is the first one after Run was called first. With a record of earlier runs, a tick
// that was missed since may be due: see Options.Late. A run that a crash has cut short is not
// repeated by default: see Options.Again.
//
// Errors: of the name, the schedule and the options, which name the field; [coord.ErrNoResults]
// without Options.Store where the arbiter keeps no results; [coord.ErrClosed]; [coord.ErrHeld];
// and, when a tick is due, [coord.ErrInvalidKey] and [coord.ErrObserver]. Other failures are
// logged, and Run tries again. Nil when ctx has ended, or the schedule has no more ticks.
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
	if e, ok := s.(every); ok {
		if err := e.check(); err != nil {
			return err
		}
	}
	j := &job{c: c, name: name, id: rand.Text(), key: "periodic/" + name, opts: o, fn: fn}
	j.began, j.clock, j.machine = time.Now(), time.Now, machineBy(bootID, os.Hostname)
	if f, ok := ctx.Value(clockKey{}).(func() time.Time); ok {
		j.clock = f
	}
	if m, ok := ctx.Value(machineKey{}).(machine); ok {
		j.machine = m
	}
	j.loc = j.clock().Location()
	j.schedule, j.wrong = in(s, j.loc)
	defer c.ExpectLong(j.key)()
	return j.run(ctx)
}

// These are for tests: a context's values of them are the clock, and the machine.
type (
	clockKey   struct{}
	machineKey struct{}
)

// job is one process's part. Only the goroutine of Run uses it.
type job struct {
	c        *coord.Coordinator
	name     string
	id       string // of this call of Run
	key      string
	schedule Schedule
	wrong    *error // the fault of the schedule, once it was found
	opts     Options
	fn       func(context.Context, Tick) error
	clock    func() time.Time
	loc      *time.Location // of the clock
	machine  machine
	began    time.Time // when Run was called

	last     seen      // the latest record that was seen
	since    time.Time // ticks up to then are none of this process's, if there is no record
	skewed   bool      // a record about the clock was written
	apart    bool      // a record about another time zone was written
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
			return *j.wrong
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

// look runs the tick that is due, and returns how long to wait for the next one.
func (j *job) look(ctx context.Context) (time.Duration, error) {
	s, err := j.read(ctx)
	if err != nil {
		return 0, err
	}
	t, r, set, next := j.due(s)
	if !t.Due.IsZero() || j.unfinished(s) || news(s, r, set) {
		if err := j.attempt(ctx); err != nil {
			return 0, err
		}
		s = j.last
		t, r, _, next = j.due(s)
	}
	if r.Differs != 0 && !j.skewed {
		j.opts.Logger.Error("holdfast: the clock of this process differs from that of the last run of a periodic job",
			"job", j.name, "differs", r.Differs, "host", j.machine.host, "of", r.Host)
	}
	j.skewed = r.Differs != 0
	j.zones(s)
	switch {
	case !t.Due.IsZero():
		return 0, nil // the next one came meanwhile
	case next.IsZero():
		return 0, errOver
	}
	return next.Sub(r.At), nil
}

// zones says once in the log that a process in another time zone has other ticks.
func (j *job) zones(s seen) {
	l, ok := j.schedule.(local)
	if !ok || j.apart || s.Due.IsZero() || !l.apart(s.Due) {
		return
	}
	j.apart = true
	j.opts.Logger.Error("holdfast: a periodic job has other ticks in the time zone of another process",
		"job", j.name, "zone", s.Due.Format(zone), "here", s.Due.In(j.loc).Format(zone))
}

// zone is the format of a time zone in the log.
const zone = "-07:00"

// unfinished reports whether this process should wait for the lock to run the last tick again.
func (j *job) unfinished(s seen) bool { return j.opts.Again && !s.Due.IsZero() && !s.Done }

// due returns the tick to run now, its record, by how much the time of the job is set, and the next
// tick. t.Due is zero if no tick is due.
func (j *job) due(s seen) (t Tick, r record, set time.Duration, next time.Time) {
	r, set = j.now(s)
	last, missed, next := lastTick(r.left(j.schedule), j.from(r), r.At)
	if last.IsZero() || r.At.Sub(last) > j.opts.Late {
		return Tick{}, r, set, next
	}
	r.take(j.schedule, last)
	return Tick{Due: last, Missed: missed}, r, set, next
}

// from returns the place of the record, or j.since without one: only later ticks are due.
func (j *job) from(r record) time.Time {
	if r.place().IsZero() {
		return j.since
	}
	return r.place()
}

// attempt locks the job and runs the tick that is due then.
func (j *job) attempt(ctx context.Context) error {
	return j.c.Do(ctx, j.key, func(ctx context.Context, l coord.Lock) error {
		s, err := j.read(ctx)
		if err != nil {
			return err
		}
		t, r, set, _ := j.due(s)
		idle := t.Due.IsZero()
		lost := !s.Due.IsZero() && !s.Done // its process has lost the lock
		switch {
		case lost && idle && j.opts.Again:
			return j.runTick(ctx, l, Tick{Due: s.place().In(j.loc), Again: true}, s.carried())
		case lost:
			j.opts.Logger.Warn("holdfast: a process was lost while it ran a periodic job", "job", j.name, "due", s.place())
		}
		switch {
		case lost && idle:
			r = s.carried()
		case idle && !news(s, r, set):
			return nil
		case set != 0:
			j.opts.Logger.Warn("holdfast: the time of a periodic job was set, as the clock of this process says",
				"job", j.name, "by", set, "host", j.machine.host, "of", s.Host)
		}
		if !idle {
			return j.runTick(ctx, l, t, r)
		}
		r.Done = true
		return j.write(l, r, j.keep(r))
	})
}

// runTick runs the tick under the lock, and writes before and after that it does.
func (j *job) runTick(ctx context.Context, l coord.Lock, t Tick, r record) error {
	began := time.Now()
	if err := j.write(l, r, j.keep(r)); err != nil {
		return err
	}
	t.Fence = l.Fence()
	if err := j.fn(ctx, t); err != nil {
		j.opts.Logger.Warn("holdfast: a periodic job failed", "job", j.name, "due", t.Due, "error", err)
	}
	r.Done, r.Ran = true, time.Since(began)
	return j.write(l, r, j.keep(r))
}
