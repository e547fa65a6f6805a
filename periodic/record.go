package periodic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// record is the stored record of the last run. Its zero value means that there was none. It begins
// with a brace, so that Share of the same key ignores it.
type record struct {
	Due  time.Time     `json:"due"`  // of the tick: the latest one that was run
	At   time.Time     `json:"at"`   // when the run began, in the time of the job
	Ran  time.Duration `json:"ran"`  // from then to the writing of this record
	Done bool          `json:"done"` // the run has ended

	Last time.Time     `json:"last,omitzero"`  // of the last run, if the time was set back behind Due
	Gaps []gap         `json:"gaps,omitempty"` // up to Due: where ticks were not run
	Set  time.Duration `json:"set,omitempty"`  // by how much the time was set since the run
	Of   string        `json:"of,omitempty"`   // the machine whose clock At is
	Host string        `json:"host,omitempty"` // its name
	Firm bool          `json:"firm,omitempty"` // a second machine's clock says the same

	Differs time.Duration `json:"differs,omitempty"` // how far the clock of the process was ahead of At, if too far
	By      string        `json:"by,omitempty"`      // that process, if so
	From    string        `json:"from,omitempty"`    // its machine
}

// seen is a record and when it was read.
type seen struct {
	record
	written time.Time // by this process's clock
	fence   uint64
}

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

// read returns the record of the store, or the last one that this process has seen if that is
// later: the store may have lost later ones.
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
	s.fence = r.Fence
	if later := s.Due.Compare(j.last.Due); later > 0 || later == 0 && s.fence >= j.last.fence {
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
	j.last = seen{r, time.Now(), uint64(l.Fence())}
	_ = j.c.Announce(call, j.key) // else the others come when the tick is due
	return nil
}

// keep is how long a record is of use: until after the next tick, and for a day at least.
func (j *job) keep(r record) time.Duration {
	ahead := min(max(r.Due.Sub(r.At), 0), mostAhead)
	return 24*time.Hour + ahead + 2*max(j.schedule.Next(r.Due).Sub(r.Due), 0)
}

// mostAhead bounds for how long a tick is remembered that was run ahead of its time.
const mostAhead = 366 * 24 * time.Hour
