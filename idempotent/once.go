package idempotent

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"log/slog"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/held"
	"github.com/holdfast-go/holdfast/internal/once"
)

// The errors of a call if its function did not run. Other errors than these and those of package
// coord are the store's: nothing was executed then, and the call may be made again.
var (
	// ErrUnknown: the function was begun before, and it is not known whether it has done its work.
	ErrUnknown = once.ErrUnknown

	// ErrInProgress: another call runs the function. The message may be delivered again later.
	ErrInProgress = once.ErrInProgress

	// ErrNoID: the ID is empty, so that the message cannot be told from others. It is the same at
	// the next delivery.
	ErrNoID = errors.New("idempotent: the ID is empty")
)

// A FinalError is the error of a run that was not to be repeated, see [Final]. Later calls with the
// ID return one with the same text.
type FinalError struct {
	Text string
	Err  error // the argument of Final; nil in a later call
}

// Error returns the text.
func (e *FinalError) Error() string { return e.Text }

// Unwrap returns the argument of Final.
func (e *FinalError) Unwrap() error { return e.Err }

// Final makes an error the result of its ID: a message that cannot be executed, however often it is
// delivered. Nil stays nil.
func Final(err error) error {
	if err == nil {
		return nil
	}
	return &FinalError{err.Error(), err}
}

// An Executor runs functions once. It is safe for concurrent use.
type Executor struct {
	machine once.Machine
	scope   string
	logger  *slog.Logger
}

// New returns an Executor that keeps its records in store. With a [RedisStore] and a Logger it asks
// the server for its limit of memory, for a second at most. It panics if locks or store is nil or
// the options make no sense.
func New(locks *coord.Coordinator, store Store, opts *Options) *Executor {
	if locks == nil || store == nil {
		panic("idempotent: New needs a coordinator and a Store")
	}
	o := opts.filled()
	if err := o.validate(); err != nil {
		panic(err.Error())
	}
	if s, ok := store.(*RedisStore); ok && o.Logger != nil {
		s.CheckMemory(locks.Namespace(), o.Logger)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Executor{
		machine: once.Machine{
			Locks: locks, Store: store, Wait: o.Wait, MaxWaiters: o.MaxWaiters, TTL: o.TTL, StoreTimeout: o.StoreTimeout, Rerun: o.Rerun,
		},
		scope: o.Scope, logger: o.Logger,
	}
}

// Once calls fn, unless that has been done with the same id: see [Executor.Once]. Its options are
// the defaults, but that any number of callers of a process may wait for one ID: Options.MaxWaiters
// counts those of an [Executor].
func Once(ctx context.Context, locks *coord.Coordinator, store Store, id string, fn func(ctx context.Context, l coord.Lock) error) error {
	return New(locks, store, nil).Once(ctx, id, fn)
}

// Once calls fn, with a lock of the ID, and returns its error. Once fn has returned nil, or a
// [Final] error, later calls with the same ID return that, and do not run it.
//
// After any other error of fn a later call runs it again, so it must not have done work that may
// not be repeated. If fn itself does not know whether it has done its work, it returns an error
// that Is [ErrUnknown]: later calls get ErrUnknown. They get it also if fn has panicked, the
// process has died in between, or the record of the end could not be stored (logged).
//
// fn's context ends with ctx, and when the lock is lost, with a cause that Is [coord.ErrLost]; fn
// must heed it. If the lock was lost and another process has executed the ID since, the error Is
// [ErrStale].
func (x *Executor) Once(ctx context.Context, id string, fn func(ctx context.Context, l coord.Lock) error) error {
	if id == "" { // all messages without one would be the same
		return ErrNoID
	}
	r := &run{x: x, ctx: ctx, fn: fn}
	res, err := x.machine.Do(ctx, x.key(id), once.Print{}, r)
	switch {
	case err != nil:
		return err
	case !res.Ran:
		return found(res.Record)
	}
	if res.NotSaved != nil {
		x.logger.Error("holdfast: the end of a run could not be stored", "id", id, "fence", r.lock.Fence(), "error", res.NotSaved)
		if errors.Is(res.NotSaved, ErrStale) {
			return errors.Join(r.err, res.NotSaved)
		}
	}
	return r.err
}

// key returns the name of the ID's record.
func (x *Executor) key(id string) string {
	var b []byte
	for _, s := range []string{"once", x.scope, id} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// found returns the error of an earlier run. The payload of a record is the text of a Final error,
// with a byte before it.
func found(rec once.Record) error {
	if len(rec.Payload) > 0 {
		return &FinalError{Text: string(rec.Payload[1:])}
	}
	return nil
}

// run is a call of fn: a once.Job.
type run struct {
	x    *Executor
	ctx  context.Context
	fn   func(context.Context, coord.Lock) error
	lock coord.Lock
	err  error // of fn
}

func (r *run) Hold(l coord.Lock) { r.lock = l }

func (r *run) Release() { _ = r.lock.Unlock() } // lost or not, the store has compared tokens

func (r *run) Run(l coord.Lock) []byte {
	ctx, end := held.Under(&holding{r.ctx, l}, l.Context())
	defer end(coord.ErrUnlocked)
	r.err = r.fn(ctx, l)
	final, isFinal := errors.AsType[*FinalError](r.err)
	switch {
	case errors.Is(r.err, ErrUnknown):
		return nil
	case isFinal:
		return append(append(once.Encode(once.Answered, once.Print{}), 1), final.Text...)
	case r.err != nil:
		return once.Encode(once.Failed, once.Print{})
	}
	return once.Encode(once.Answered, once.Print{})
}

// holding is a context that carries a lock, so that package coord does not wait for it under
// itself.
type holding struct {
	context.Context
	lock coord.Lock
}

// Held tells package coord which lock fn holds.
func (h *holding) Held() (coord.Lock, context.Context) { return h.lock, h.Context }

func (h *holding) Value(key any) any {
	if key == (held.Key{}) {
		return h
	}
	return h.Context.Value(key)
}
