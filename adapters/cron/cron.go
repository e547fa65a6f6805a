// Package cron makes the jobs of github.com/robfig/cron/v3 run once per tick in all processes
// together.
//
// The scheduler goes on running in each process, by its clock. [Once] wraps its jobs, so that the
// first process to come runs the job, and the others skip it. A new program needs no scheduler in
// between: periodic.Run takes a schedule of cron's parser as it is.
package cron

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/unit"
	"github.com/holdfast-go/holdfast/periodic"
)

// A Job is a [cron.Job] that can be told that its lock was lost.
type Job interface {
	cron.Job

	// RunContext is called in the place of Run. ctx ends when the lock is lost, with that as its
	// cause.
	RunContext(ctx context.Context, fence coord.Fence)
}

// Func is a function as a [Job].
type Func func(ctx context.Context, fence coord.Fence)

// Run implements [cron.Job], for schedulers without the wrapper.
func (f Func) Run() { f(context.Background(), 0) }

// RunContext implements [Job].
func (f Func) RunContext(ctx context.Context, fence coord.Fence) { f(ctx, fence) }

// Options are the options of [Once].
type Options struct {
	// Keep is a run's time of validity: a process that comes later than that runs the job. It is
	// shorter than the shortest time between two ticks, and longer than clocks and delays differ
	// by. Default 30 s, for lines in minutes. For "@every" it is the period, less the difference of
	// delays: 55 s for "@every 1m". Such a job is due a period after the process's start, so in
	// each one at another moment. With half of the period three processes run it each 40 s.
	// Negative values are refused, and less than 1 ms.
	Keep time.Duration

	// Store keeps the last run. Nil: the arbiter, if it keeps results, as Redis does and most
	// others do not: Once returns an error there that Is [coord.ErrNoResults]. See
	// [periodic.Options].
	Store coord.ShareStore

	// Logger gets a record when a job cannot be run because the arbiter does not answer. Nil:
	// silent.
	Logger *slog.Logger
}

// Once returns a wrapper for the job of that name: cron.NewChain(once).Then(job). All processes
// give the job the same name, and no other job has it: in [cron.WithChain], where a scheduler has
// several jobs, all but one of those that are due together would be skipped. A job that is not a
// [Job] is not told of a loss, nor is one inside of another wrapper: let once be the last of the
// chain.
func Once(ctx context.Context, c *coord.Coordinator, name string, opts *Options) (cron.JobWrapper, error) {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	switch {
	case c == nil:
		return nil, errors.New("cron: the coordinator is nil")
	case name == "" || len(name) > periodic.MaxName:
		return nil, fmt.Errorf("cron: the name %.64q must have 1 to %d bytes", name, periodic.MaxName)
	case o.Keep < 0:
		return nil, fmt.Errorf("cron: Options.Keep is %v, must not be negative", o.Keep)
	case o.Keep == 0:
		o.Keep = 30 * time.Second
	}
	if err := unit.Check("cron: Options.Keep", o.Keep, time.Millisecond, "30 * time.Second"); err != nil {
		return nil, err
	}
	if o.Store == nil {
		if _, err := c.Results(); errors.Is(err, coord.ErrNoResults) {
			return nil, fmt.Errorf("cron: %w: set Options.Store", err)
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return func(job cron.Job) cron.Job {
		return cron.FuncJob(func() { once(ctx, c, name, o, job) })
	}, nil
}

func once(ctx context.Context, c *coord.Coordinator, name string, o Options, job cron.Job) {
	slot, err := periodic.Begin(ctx, c, name, o.Keep, &periodic.Options{Store: o.Store})
	switch {
	case errors.Is(err, periodic.ErrTaken):
		return
	case err != nil:
		o.Logger.Warn("holdfast: a periodic job cannot be run now, and is left out", "job", name, "error", err)
		return
	}
	defer func() {
		if err := slot.End(); err != nil {
			o.Logger.Warn("holdfast: the lock of a periodic job was lost while it ran", "job", name, "error", err)
		}
	}()
	if told, ok := job.(Job); ok {
		told.RunContext(slot.Context(), slot.Fence())
		return
	}
	job.Run()
}
