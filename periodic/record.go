package periodic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// record is what is kept of the last run. Its zero value means that there was none. It begins with a
// brace, so that Share of the same key ignores it.
type record struct {
	Due  time.Time     `json:"due"`  // of the tick
	At   time.Time     `json:"at"`   // when the run began, in the time of the job
	Ran  time.Duration `json:"ran"`  // from then to the writing of this record
	Done bool          `json:"done"` // the run has ended

	Differs time.Duration `json:"differs,omitempty"` // how far the clock of the process was ahead of At, if too far
	By      string        `json:"by,omitempty"`      // that process, if so
}

// seen is a record and when it was read.
type seen struct {
	record
	written time.Time // by this process's clock
}

// now returns the time of the job, and what a run that begins now writes of it. The time of the job is
// that of this process's clock. If that differs too much from the clock of the last run, which the
// arbiter's clock has carried on, it is the latter.
func (j *job) now(s seen) record {
	now := j.clock().Round(0)
	if s.Due.IsZero() {
		return record{At: now}
	}
	theirs := s.At.Add(s.Ran).Add(time.Since(s.written)).Round(0)
	differs := now.Sub(theirs)
	switch {
	case differs.Abs() <= j.opts.MaxSkew:
		return record{At: now}
	case s.By != "" && s.By != j.id && (differs-s.Differs).Abs() <= j.opts.MaxSkew:
		return record{At: now} // two against one: an earlier process's clock was wrong
	}
	return record{At: theirs, Differs: differs, By: j.id}
}

// wrong reports whether the time of the job is to be set by this process.
func (j *job) wrong(s seen) bool { return s.By != "" && s.By != j.id && j.now(s).By == "" }

// callTimeout limits one call of the store. The arbiter's own limits are shorter, as a rule.
const callTimeout = 2 * time.Second

func (j *job) store() (coord.ShareStore, error) {
	if j.opts.Store != nil {
		return j.opts.Store, nil
	}
	store, err := j.c.Results()
	if errors.Is(err, coord.ErrNoResults) {
		err = fmt.Errorf("%w: set periodic.Options.Store", err)
	}
	return store, err
}

// read returns the record of the store, or the last one that this process has seen if that is later:
// the store may have lost what came after.
func (j *job) read(ctx context.Context) (seen, error) {
	store, err := j.store()
	if err != nil {
		return seen{}, err
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	began := time.Now()
	r, err := store.Get(call, j.key)
	if err != nil {
		return seen{}, fmt.Errorf("%w: read the record of %q: %w", coord.ErrUnavailable, j.key, err)
	}
	var s seen
	if r.Fence != 0 && json.Unmarshal(r.Value, &s.record) != nil {
		s.record = record{}
	}
	s.written = began.Add(-r.Age)
	if !s.Due.Before(j.last.Due) {
		j.last = s
	}
	return j.last, nil
}

// write stores the record under the lock.
func (j *job) write(l coord.Lock, r record, keep time.Duration) error {
	store, err := j.store()
	if err != nil {
		return err
	}
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	held := l.Context()
	call, cancel := context.WithTimeout(held, callTimeout)
	defer cancel()
	err = store.Put(call, j.key, value, uint64(l.Fence()), keep)
	switch {
	case held.Err() != nil:
		return context.Cause(held)
	case errors.Is(err, coord.ErrLost):
		return err
	case err != nil:
		return fmt.Errorf("%w: write the record of %q: %w", coord.ErrUnavailable, j.key, err)
	}
	j.last = seen{r, time.Now()}
	_ = j.c.Announce(call, j.key) // else the others come when the tick is due
	return nil
}

// keep is how long a record is of use: until after the next tick, and for a day at least.
func (j *job) keep(due time.Time) time.Duration {
	return 24*time.Hour + 2*max(j.schedule.Next(due).Sub(due), 0)
}
