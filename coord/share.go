package coord

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime/debug"
	"time"

	"github.com/holdfast-go/holdfast/internal/held"
)

// Share returns the result of fn for the key. fn runs once for all callers that want it at about
// the same time, in this process and in all others of the namespace. A caller that comes while the
// result is kept gets it by one read of the store, without a lock.
//
// One call's journey: it joins the flight of its key in this process, if there is one. The flight
// reads the store. If there is no result that may be used, it locks the key and reads again:
// another process may have been first. If not, it runs fn under the lock, stores the result, and
// unlocks. So a result may stem from a run that began before the call.
//
// The key is the lock's key: Share, Do and Lock of the same key exclude each other. fn must neither
// lock nor share it: with fn's context that is [ErrHeld]. Callers of the same key and T should pass
// the same options and an fn that does the same: those of the starter of the flight count. (Callers
// with another T have a flight of their own, but the lock and the stored bytes are the same.)
//
// ctx limits this caller's wait only; the flight goes on for the others. When all have left, fn's
// context ends, with [singleflight.ErrAbandoned] as its cause. fn's context has the values of the
// ctx of the flight's first caller. It also ends when the lock is lost or the coordinator is
// closed. fn has to heed it: Close waits for fn, so fn must not call Close. fence is the lock's
// token, [Lock.Fence].
//
// The context carries the flight's lock, and the locks of the callers that wait at this moment, as
// they cannot go on before fn returns: with it Lock of such a key returns [ErrHeld], and a function
// in [Coordinator.DoNested] runs under that lock. If the caller leaves, that function's context
// ends, and DoNested returns [ErrUnlocked]. A run in the background carries the flight's lock only.
// Neither belongs to the task of a caller with [WithLocker].
//
// All callers of a flight get the same T, so they should not change the data that it points to.
// They get the same error, too. An error is not stored, and the next flight runs fn again, unless
// ShareOptions.KeepErrors says otherwise. [Unshare] makes the next flight run fn again although
// there is a result. A panic or Goexit of fn passes through to all of them, as in
// [singleflight.Member.Result], and the lock is released.
//
// Errors: [ErrInvalidKey]; [ErrClosed]; [ErrHeld]; of the options, which name the field; ctx's own
// if it ended; [ErrNoResults]; [ErrUnavailable] if the store could not be read (fn is not run
// then); those of Lock; and those of fn. An error that Is [ErrNotShared] means that the value is
// valid nevertheless, and returned, but was not stored, or was stored in vain. It also Is
//
//   - [ErrLost]: the lock was lost before fn ended, so fn may have run elsewhere meanwhile, and a result with a higher fence
//     may be stored. (A lock that is lost in the moment after storing is reported as well.)
//   - [ErrTooLarge], or the error of Encode.
//
// An error of fn that Is ErrNotShared, as of another Share, does not match that any more.
//
// ErrLost alone is not enough to use the value: an fn that heeds its context fails with that as
// well.
//
// If the result cannot be stored because the store does not answer, Share returns it without an
// error and tells Options.Logger: other processes will run fn again.
func Share[T any](ctx context.Context, c *Coordinator, key string, opts *ShareOptions[T],
	fn func(ctx context.Context, fence Fence) (T, error)) (T, error) {
	var none T
	if err := validateOwn(key); err != nil {
		return none, err
	}
	if fn == nil {
		return none, errors.New("coord: Share: fn is nil")
	}
	o, err := opts.filled()
	if err != nil {
		return none, err
	}
	if ctx.Err() != nil {
		return none, ended(ctx)
	}
	if c.heldBy(ctx, key) { // the flight would wait for its caller
		return none, &WaitError{Key: key, Reason: ErrHeld}
	}
	s := &share[T]{c: c, key: key, opts: o, fn: fn}
	s.crew = crew{Context: ctx, x: &c.callers.shares, name: s.flight()}
	m, err := c.callers.shares.join(&s.crew, newMate(ctx), func(ctx context.Context) (any, error) {
		defer s.crew.land()
		return s.traced(ctx)
	})
	if err != nil {
		return none, err
	}
	select {
	case <-m.Done():
	case <-ctx.Done():
		select {
		case <-m.Done(): // both were ready: the result is preferred
		default:
			m.leave()
			return none, ended(ctx)
		}
	}
	got, err := m.Result()
	v, _ := got.(T) // not there if T is an interface and the value nil
	return v, err
}

// share is the work of one flight.
type share[T any] struct {
	c     *Coordinator
	key   string
	opts  ShareOptions[T]
	store ShareStore
	fn    func(context.Context, Fence) (T, error)

	ran   bool  // fn was called
	fence Fence // of a result that was there
	crew  crew
}

// traced is run, and tells Trace.Flight of it.
func (s *share[T]) traced(ctx context.Context) (T, error) {
	f := s.c.opts.Trace.Flight
	if f == nil {
		return s.run(ctx)
	}
	begun := time.Now()
	v, err := s.run(ctx)
	f(ctx, FlightInfo{Key: s.key, Took: time.Since(begun), Ran: s.ran, Fence: s.fence, Err: err})
	return v, err
}

// flight names the flight. Flights of different types must not be mixed.
func (s *share[T]) flight() flightKey {
	return flightKey{s.key, reflect.TypeFor[T](), s.c.callers.shares.era.Load()}
}

// found is a stored result.
type found[T any] struct {
	Shared
	v    T
	err  error // kept, in the place of v
	ok   bool  // it could be decoded, and Fresh does not object
	read time.Time
}

func (s *share[T]) run(ctx context.Context) (v T, err error) {
	if s.store, err = s.c.storeOr(s.opts.Store, "ShareOptions.Store"); err != nil {
		return v, err
	}
	ctx, cancel := s.c.whileOpen(ctx)
	defer cancel()
	f, err := s.look(ctx)
	if err != nil {
		return v, err
	}
	if !s.fresh(f) {
		return s.make(ctx)
	}
	s.fence = Fence(f.Fence)
	if s.early(f) {
		s.refresh(ctx, f)
	}
	return f.v, f.err
}

// look reads the store.
func (s *share[T]) look(ctx context.Context) (f found[T], err error) {
	f.read = time.Now() // before it was, so that it is rather taken for too old
	call, cancel := context.WithTimeout(ctx, s.c.opts.CallTimeout)
	defer cancel()
	f.Shared, err = s.store.Get(call, s.key)
	switch {
	case err != nil && ctx.Err() != nil: // it was not the store: the coordinator was closed, or the lock lost
		return f, context.Cause(ctx)
	case err != nil:
		return f, fmt.Errorf("%w: read the result of %s: %w", ErrUnavailable, quoted(s.key), err)
	}
	if f.Fence == 0 || len(f.Value) == 0 {
		return f, nil
	}
	kind, body := f.Value[0], f.Value[1:]
	if kind == keptError {
		f.err = s.opts.kept(body, f.Age)
		f.ok = f.err != nil
	}
	if kind != keptValue {
		return f, nil
	}
	// A value that cannot be decoded was written by another version of the program: it is not used,
	// and written over.
	v, err := s.opts.Decode(body)
	if err == nil && (s.opts.Fresh == nil || s.opts.Fresh(v)) {
		f.v, f.ok = v, true
	}
	return f, nil
}

func (s *share[T]) fresh(f found[T]) bool {
	if f.err != nil {
		return f.Age < s.opts.ErrorTTL
	}
	return f.ok && f.Age < s.opts.TTL
}

// early decides by chance whether to refresh a result that is still fresh: the nearer its end, the
// likelier. This is the rule of Vattani, Chierichetti and Lowenstein, "Optimal Probabilistic Cache
// Stampede Prevention" (VLDB 2015). The width is an option here, not the time that the last run
// took.
func (s *share[T]) early(f found[T]) bool {
	width := min(float64(s.opts.RefreshAhead)*rand.ExpFloat64(), float64(s.opts.TTL))
	return s.opts.RefreshAhead > 0 && f.err == nil && f.Age >= s.opts.TTL-time.Duration(width)
}

// make locks the key, and runs fn if no other process has meanwhile.
func (s *share[T]) make(ctx context.Context) (v T, err error) {
	var had, ran bool // v is from the store; v is from fn
	var kept error    // from the store, as v is
	// Do's error is joined with that of a lock that was lost while fn ran, and v is there all the
	// same.
	err = s.c.Do(ctx, s.key, func(ctx context.Context, l Lock) error {
		s.crew.locked(l)
		f, err := s.look(ctx)
		if err != nil {
			return err
		}
		if s.fresh(f) {
			v, had, kept, s.fence = f.v, true, f.err, Fence(f.Fence)
			return nil
		}
		v, err = s.produce(ctx, l)
		if failed, ok := errors.AsType[*fnError](err); ok {
			if !failed.counts && f.ok && f.err == nil && f.Age+time.Since(f.read) < s.opts.TTL+s.opts.StaleOnError {
				v, had = f.v, true
				return nil
			}
			return withoutValue(failed.err)
		}
		ran = true
		return err
	})
	switch {
	case err == nil || had: // a result from the store needs no lock
		return v, kept
	case ran:
		return v, fmt.Errorf("%w: %w", ErrNotShared, err)
	}
	return v, err
}

// withoutValue returns an error of fn, such that it Is no ErrNotShared: that of a Share inside fn
// would have callers use a value that fn has not made.
func withoutValue(err error) error {
	if errors.Is(err, ErrNotShared) {
		return &noValueError{err}
	}
	return err
}

// noValueError matches the targets of its error, but for ErrNotShared.
type noValueError struct{ err error }

func (e *noValueError) Error() string { return e.err.Error() }
func (e *noValueError) Is(target error) bool {
	return target != ErrNotShared && errors.Is(e.err, target)
}
func (e *noValueError) As(target any) bool { return errors.As(e.err, target) }

// fnError tells fn's own error from one of encoding or storing its result.
type fnError struct {
	err    error
	counts bool  // as much as a result does, whether or not it could be stored: it is one of KeepErrors
	lost   error // if it counts: as of a result, why storing it was in vain
}

func (e *fnError) Error() string { return e.err.Error() }

// produce runs fn and stores the result, under the lock.
func (s *share[T]) produce(ctx context.Context, l Lock) (T, error) {
	s.ran = true
	v, err := s.fn(ctx, l.Fence())
	if err != nil {
		failed := &fnError{err: err}
		if value := s.opts.keep(err); value != nil {
			failed.counts, failed.lost = true, s.put(l, value, s.opts.ErrorTTL)
		}
		return v, failed
	}
	value, err := s.opts.Encode(v)
	if err != nil {
		return v, fmt.Errorf("coord: Share %s: encode: %w", quoted(s.key), err)
	}
	if len(value) > s.opts.MaxSize {
		return v, fmt.Errorf("%w: that of %s has %d bytes, ShareOptions.MaxSize is %d", ErrTooLarge, quoted(s.key), len(value), s.opts.MaxSize)
	}
	return v, s.put(l, append([]byte{keptValue}, value...), s.opts.TTL+s.opts.StaleOnError)
}

// put stores fn's result, or its kept error. A store that does not answer is no error.
func (s *share[T]) put(l Lock, value []byte, keep time.Duration) error {
	// Not fn's context: that all callers have left is no reason to throw the result away. But the
	// lock is needed.
	held := l.Context()
	if held.Err() != nil {
		return context.Cause(held)
	}
	call, cancel := context.WithTimeout(held, s.c.opts.CallTimeout)
	defer cancel()
	err := s.store.Put(call, s.key, value, uint64(l.Fence()), keep)
	switch {
	case held.Err() != nil:
		return context.Cause(held)
	case errors.Is(err, ErrLost):
		return err
	case err != nil:
		s.c.tells.limited.Warn("holdfast: a shared result could not be stored", "key", logged(s.key), "error", err)
	}
	return nil
}

// refresh runs fn in the background, unless another holder has the key, which is about to do that
// then. No caller waits for the result, and a panic (of fn, or of Decode or Fresh) goes to the log
// only.
func (s *share[T]) refresh(ctx context.Context, old found[T]) {
	s.c.callers.shares.refresh(ctx, s.flight(), func(ctx context.Context) {
		l, err := s.c.TryLock(ctx, s.key)
		if err != nil {
			return
		}
		s := &share[T]{c: s.c, key: s.key, opts: s.opts, store: s.store, fn: s.fn} // the flight that began it goes on
		begun := time.Now()
		defer func() {
			if f := s.c.opts.Trace.Flight; f != nil {
				f(ctx, FlightInfo{Key: s.key, Took: time.Since(begun), Refresh: true, Ran: s.ran, Err: err})
			}
		}()
		defer l.Unlock()
		inner, end := held.Under(l.Context(), ctx)
		defer end(nil)
		defer func() {
			if p := recover(); p != nil {
				s.c.tells.limited.Error("holdfast: a shared result could not be refreshed early: a panic", "key", logged(s.key),
					"panic", p, "stack", string(debug.Stack()))
			}
		}()
		if f, err := s.look(inner); err != nil || f.Fence != old.Fence {
			return
		}
		_, err = s.produce(inner, l)
		if failed, ok := errors.AsType[*fnError](err); ok && failed.counts {
			err = failed.lost
		}
		if err != nil {
			s.c.tells.limited.Warn("holdfast: a shared result could not be refreshed early", "key", logged(s.key), "error", err)
		}
	})
}
