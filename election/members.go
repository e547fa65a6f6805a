package election

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/held"
)

// members is the list of the processes that take part in something, kept in one record, which is
// written under its lock. Each member holds a lock of its own for as long as it takes part: its
// sign of life. A member has gone when its lock is free.
type members struct {
	e   *Election // that the record belongs to
	key string    // of the record, and of the lock that it is written under
	me  Candidate
}

func (e *Election) members(of string) *members {
	return &members{e, e.key + "#" + of, Candidate{e.opts.ID, e.opts.Version, e.opts.Zone}}
}

func (s *members) signOf(id string) string { return s.key + "/" + id }

// list reads the record.
func (s *members) list(ctx context.Context) (all []Candidate, age time.Duration, err error) {
	_, age, err = s.e.load(ctx, s.key, &all)
	return all, age, err
}

// update changes the record under its lock.
func (s *members) update(ctx context.Context, change func([]Candidate) []Candidate) error {
	return s.e.c.Do(ctx, s.key, func(ctx context.Context, l coord.Lock) error {
		all, age, err := s.list(ctx)
		if err != nil {
			return err
		}
		was := slices.Clone(all)
		if all = change(all); slices.Equal(all, was) && age < s.e.opts.Keep/6 {
			return nil
		}
		return s.e.save(ctx, s.key, all, l.Fence())
	})
}

func without(all []Candidate, ids ...string) []Candidate {
	return slices.DeleteFunc(all, func(c Candidate) bool { return slices.Contains(ids, c.ID) })
}

// add puts this process into the record, and returns the others there.
func (s *members) add(ctx context.Context) (others []Candidate, err error) {
	err = s.update(ctx, func(all []Candidate) []Candidate {
		others = without(slices.Clone(all), s.me.ID)
		if slices.Contains(all, s.me) {
			return all
		}
		return append(slices.Clone(others), s.me)
	})
	return others, err
}

func (s *members) remove(ctx context.Context, ids ...string) error {
	return s.update(ctx, func(all []Candidate) []Candidate { return without(all, ids...) })
}

// gone reports whether the member has given its lock back, or has lost it.
func (s *members) gone(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	l, err := s.e.c.TryLock(ctx, s.signOf(id))
	if err != nil {
		return false
	}
	_ = l.Unlock() // whether it was lost meanwhile does not matter
	return true
}

// sweep looks at one of the others, and takes it out of the record if it has gone. Candidates call
// it each time that they add themselves: so none that crashed stays there for good.
func (s *members) sweep(ctx context.Context, others []Candidate) {
	if len(others) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	id := others[rand.IntN(len(others))].ID
	l, err := s.e.c.TryLock(ctx, s.signOf(id))
	if err != nil {
		return
	}
	_ = s.remove(ctx, id) // with the sign held, as in awaitGone; else another sweep does it
	_ = l.Unlock()
}

// awaitGone waits until the member's sign of life is free, because the member has left or crashed,
// and takes it out of the record. It reports false if ctx ended before.
func (s *members) awaitGone(ctx context.Context, id string) bool {
	defer s.e.c.ExpectLong(s.signOf(id))()
	for ctx.Err() == nil {
		l, err := s.e.c.Lock(ctx, s.signOf(id))
		if err == nil {
			err = s.remove(ctx, id) // with the sign held: a member that comes back adds itself after that
			_ = l.Unlock()
		}
		if err == nil {
			return true
		}
		pause(ctx, s.e.opts.Pause)
	}
	return false
}

// A membership is this process's part in members.
type membership struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended
}

// quit ends it, and does not wait for that: the store may take its time. It may be called more than
// once, and of a nil *membership.
func (m *membership) quit() {
	if m != nil {
		m.cancel()
	}
}

// leave is quit, and waits.
func (m *membership) leave() {
	if m != nil {
		m.cancel()
		<-m.done
	}
}

// join takes part until leave. It returns when this process is in the record, when ctx has ended,
// or when it has waited for long enough: then it is put into the record in the background. The
// membership is never nil.
func (s *members) join(ctx context.Context, enough <-chan time.Time) (*membership, error) {
	own, cancel := context.WithCancel(held.Apart(context.WithoutCancel(ctx)))
	ready, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		s.stay(own, ready)
	}()
	m := &membership{cancel, done}
	select {
	case err := <-ready:
		return m, err
	case <-enough:
		return m, nil
	case <-ctx.Done():
		return m, context.Cause(ctx)
	}
}

// stay holds the sign of life and stays in the record until ctx ends. It tells ready when it is in
// there, or why it never will be.
func (s *members) stay(ctx context.Context, ready chan<- error) {
	tell := func(err error) {
		select {
		case ready <- err:
		default: // it was told before
		}
	}
	defer s.e.c.ExpectLong(s.signOf(s.me.ID))()
	for ctx.Err() == nil {
		l, err := s.e.c.Lock(ctx, s.signOf(s.me.ID))
		if err == nil {
			err = s.stayListed(ctx, l.Context(), tell)
			_ = l.Unlock() // if it was lost, the others have noticed
		}
		switch {
		case isFinal(err):
			tell(err)
			return
		case err != nil:
			pause(ctx, s.e.opts.Pause)
		}
	}
}

// stayListed stays in the record until ctx or the sign of life ends. It returns an error that is
// final.
func (s *members) stayListed(ctx, sign context.Context, tell func(error)) error {
	troubled := false // a record was written
	for ctx.Err() == nil && sign.Err() == nil {
		next := s.e.opts.Keep / 3
		switch others, err := s.add(ctx); {
		case isFinal(err):
			return err
		case err == nil:
			troubled = false
			tell(nil)
			if s.e.opts.Prefer != nil { // else the planner awaits those that go
				s.sweep(ctx, others)
			}
		default:
			next = min(next, s.e.opts.Pause)
			if !troubled && ctx.Err() == nil {
				troubled = true
				s.e.opts.Logger.Warn("holdfast: a process cannot be listed for an election, and is tried again", "election", s.e.name, "error", err)
			}
		}
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-sign.Done():
		case <-ctx.Done():
		}
		timer.Stop()
	}
	if ctx.Err() != nil {
		bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		_ = s.remove(bye, s.me.ID) // else the others notice by the lock
	}
	return nil
}
