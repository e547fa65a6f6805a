package periodic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// ErrTaken: the job runs in another process, or was begun there a short time ago.
var ErrTaken = errors.New("periodic: the job was begun elsewhere")

// A Slot is one run of a job that another scheduler times.
type Slot struct {
	j    *job
	l    coord.Lock
	r    record
	keep time.Duration
	at   time.Time
	once sync.Once
	err  error
}

// Begin begins a run of the job, for schedulers that run in each process and call for the job
// there. It returns [ErrTaken] at once if the job runs in another process, or was begun less than
// keep ago by the arbiter's clock. So keep is shorter than the period of the job, and longer than
// the clocks and the delays of the processes differ by. Half of the period is a good choice where
// the job is due in all processes together, by the wall clock. Where each one counts the period
// from its start, keep is the period, less the difference of the delays: with half of it, three
// processes run the job three times in two periods. It is at least a millisecond. opts may be nil;
// Late, Again and MaxSkew do not apply.
//
// After a crash in the middle, the job can begin again when the session of that process has lapsed
// and keep is over.
//
// Errors, besides ErrTaken: those of [coord.Coordinator.TryLock]; [coord.ErrUnavailable] if the
// record cannot be read or written; [coord.ErrNoResults] without Options.Store where the arbiter
// keeps no results. The job does not run then.
func Begin(ctx context.Context, c *coord.Coordinator, name string, keep time.Duration, opts *Options) (*Slot, error) {
	switch {
	case c == nil:
		return nil, errors.New("periodic: Begin: the coordinator is nil")
	case name == "" || len(name) > MaxName:
		return nil, fmt.Errorf("periodic: Begin: the name %.64q must have 1 to %d bytes", name, MaxName)
	case keep < time.Millisecond:
		return nil, fmt.Errorf("periodic: Begin: keep is %v, must be at least 1ms", keep)
	}
	o, err := opts.filled()
	if err != nil {
		return nil, err
	}
	j := &job{c: c, name: name, key: "periodic/" + name, opts: o, clock: time.Now}
	l, err := c.TryLock(ctx, j.key)
	switch {
	case errors.Is(err, coord.ErrLocked):
		return nil, fmt.Errorf("%w: %w", ErrTaken, err)
	case err != nil:
		return nil, err
	}
	s := &Slot{j: j, l: l, keep: keep, at: time.Now()}
	taken := false
	defer func() {
		if !taken { // also after a panic of the store: nothing was done under the lock
			_ = l.Unlock()
		}
	}()
	if err := s.take(ctx); err != nil {
		return nil, err
	}
	taken = true
	return s, nil
}

func (s *Slot) take(ctx context.Context) error {
	last, err := s.j.read(ctx)
	if err != nil {
		return err
	}
	if began := time.Since(last.written) + last.Ran; !last.Due.IsZero() && began < s.keep {
		return fmt.Errorf("%w %v ago", ErrTaken, began)
	}
	s.r = record{Due: s.at.Round(0), At: s.at.Round(0)}
	return s.j.write(s.l, s.r, s.keep)
}

// Context returns a context that ends with the slot, and when its lock is lost.
func (s *Slot) Context() context.Context { return s.l.Context() }

// Fence returns the token of the slot. It rises with each run.
func (s *Slot) Fence() coord.Fence { return s.l.Fence() }

// End notes that the run has ended, with whatever outcome. The job stays taken until keep is over.
// It returns an error that Is [coord.ErrLost] if the lock was lost before. Further calls return the
// same.
func (s *Slot) End() error {
	s.once.Do(func() {
		defer func() { s.err = s.l.Unlock() }() // also after a panic of the store
		s.r.Done, s.r.Ran = true, time.Since(s.at)
		if left := s.keep - s.r.Ran; left >= time.Millisecond {
			_ = s.j.write(s.l, s.r, left) // else the record of Begin stays, which says the same
		}
	})
	return s.err
}
