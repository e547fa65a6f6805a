// Package gocron is a Locker and an Elector for github.com/go-co-op/gocron/v2.
//
// A locker that frees the key when the job is over lets each instance run a short job, one after
// another: one that takes less time than the instances' clocks differ by. [Locker] keeps the slot:
// a job that was begun less than Keep ago is taken. With [Elector] only one instance runs jobs at
// all.
package gocron

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/periodic"
)

// Locker is a [gocron.Locker]. Its method Lock returns an error that Is [periodic.ErrTaken] for a
// job that runs elsewhere, or was begun less than keep ago.
type Locker struct {
	c     *coord.Coordinator
	keep  time.Duration
	store coord.ShareStore
}

var _ gocron.Locker = (*Locker)(nil)

// A LockerOption is an option of [NewLocker].
type LockerOption func(*Locker)

// WithStore has the store keep the last run. Default: the arbiter, if it keeps results, as Redis
// does and most others do not. See periodic.Options.
func WithStore(store coord.ShareStore) LockerOption { return func(l *Locker) { l.store = store } }

// NewLocker returns a Locker for jobs with a period longer than keep. The first instance with a job
// due after keep runs it, so keep goes by the kind of the schedule:
//
//   - A CronJob, a DailyJob and others by the wall clock are due in all instances together. Half of
//     the period is a good choice.
//   - A DurationJob, or "@every", is due a period after the instance's start, so in each one at
//     another moment. keep is the period, less the difference of delays: 55 s for a minute. With
//     half of it, three instances run the job each 40 s.
//
// Jobs with other periods have a Locker of their own, by gocron.WithDistributedJobLocker. Where the
// arbiter keeps no results and there is no [WithStore], the error Is [coord.ErrNoResults].
func NewLocker(c *coord.Coordinator, keep time.Duration, opts ...LockerOption) (*Locker, error) {
	switch {
	case c == nil:
		return nil, errors.New("gocron: the coordinator is nil")
	case keep < time.Millisecond:
		return nil, fmt.Errorf("gocron: keep is %v, must be at least 1ms", keep)
	}
	l := &Locker{c: c, keep: keep}
	for _, o := range opts {
		o(l)
	}
	if l.store == nil {
		if _, err := c.Results(); errors.Is(err, coord.ErrNoResults) {
			return nil, fmt.Errorf("gocron: %w: set WithStore", err)
		}
	}
	return l, nil
}

// Lock implements [gocron.Locker]. The key is the job's name.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	s, err := periodic.Begin(ctx, l.c, key, l.keep, &periodic.Options{Store: l.store})
	if err != nil {
		return nil, err
	}
	return slot{s}, nil
}

type slot struct{ *periodic.Slot }

func (s slot) Unlock(context.Context) error { return s.End() }

// ErrNotLeader: another instance is the leader.
var ErrNotLeader = errors.New("gocron: this instance is not the leader")

// Elector is a [gocron.Elector]: jobs run in the instance that is the leader of an election.
type Elector struct {
	mu   sync.Mutex // protects term and err
	term *election.Term
	err  error // why it campaigns no more
	stop context.CancelFunc
	done chan struct{}
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector campaigns until Close. If [election.Election.Run] ends before that, as where the
// coordinator is closed, IsLeader tells its error.
func NewElector(e *election.Election) *Elector {
	ctx, cancel := context.WithCancel(context.Background())
	x := &Elector{stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(x.done)
		err := e.Run(ctx, func(ctx context.Context, t *election.Term) error {
			x.set(t)
			defer x.set(nil)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		x.mu.Lock()
		defer x.mu.Unlock()
		x.err = err
	}()
	return x
}

func (x *Elector) set(t *election.Term) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.term = t
}

// IsLeader implements [gocron.Elector]: it returns nil in the leader's process, and else an error
// that Is [ErrNotLeader].
func (x *Elector) IsLeader(context.Context) error {
	if x.Term() != nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil {
		return fmt.Errorf("%w: %w", ErrNotLeader, x.err)
	}
	return ErrNotLeader
}

// Term returns the term of this instance, for its Fence and its Context, or nil if it is not the
// leader.
func (x *Elector) Term() *election.Term {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.term == nil || x.term.Context().Err() != nil {
		return nil
	}
	return x.term
}

// Close resigns. Shut the scheduler down before, so that its jobs have ended.
func (x *Elector) Close() {
	x.stop()
	<-x.done
}
