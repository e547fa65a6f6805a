// Package once executes jobs once, over all processes that share a coordinator's namespace and a
// store: it is the common part of HTTP requests, gRPC calls and messages of a queue.
//
// A job is looked up by its key. If there is no answer, it gets the key's lock, is stored as
// Started, and runs. Its record then takes that one's place, with the token of the lock. Those that
// come meanwhile wait for the lock, and find the record. Where a job is Started and its lock is
// free, a process has died in between: the outcome is unknown.
package once

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// A Store keeps records, see package idempotent.
type Store interface {
	Get(ctx context.Context, key string) ([]byte, error)
	Put(ctx context.Context, key string, record []byte, fence uint64, ttl time.Duration) error
}

// Errors of stores.
var (
	ErrNoRecord = errors.New("idempotent: no record")
	ErrStale    = errors.New("idempotent: a later holder of the lock has stored a record")
)

// The errors of Do if the job was not run. All other errors say that locks or the store are not
// available, or are coord.ErrHeld.
var (
	ErrReused     = errors.New("idempotent: the ID belongs to another job")
	ErrInProgress = errors.New("idempotent: another caller executes it")
	ErrCrowded    = fmt.Errorf("%w, and too many wait for that", ErrInProgress)
	ErrUnknown    = errors.New("idempotent: it was begun before, and it is not known whether it was executed")
)

// LockPrefix begins the keys that are locked.
const LockPrefix = "idempotency/"

// A Machine executes jobs.
type Machine struct {
	Locks        *coord.Coordinator
	Store        Store
	Wait         time.Duration // for a job that runs elsewhere; negative: not at all
	MaxWaiters   int           // in this process, for one key; negative: no limit
	TTL          time.Duration // of records
	StoreTimeout time.Duration // of a call of the store
	Rerun        bool          // a job with an unknown outcome

	queue Counter
}

// A Job is executed once.
type Job interface {
	// Hold is called when the job's lock was granted, and Release, once, when it is to be given
	// back.
	Hold(l coord.Lock)
	Release()

	// Run executes the job, between Hold and Release, and returns its record, see Encode. Nil: the
	// outcome is not known.
	Run(l coord.Lock) []byte
}

// A Result is how a job is answered.
type Result struct {
	Ran      bool   // by this call
	Record   Record // if it did not run: Answered or NotKept
	NotSaved error  // why the record of the run was not stored; Is ErrStale if the job was executed again elsewhere
}

// Do executes the job, unless it was before. ctx limits the wait, and not the run. Those that are
// answered have the lock no more.
func (m *Machine) Do(ctx context.Context, key string, print Print, job Job) (Result, error) {
	found, err := m.load(ctx, key)
	if err != nil {
		return Result{}, err
	}
	if res, err, ok := known(found, print); ok { // the usual repetition: no lock
		return res, err
	}
	if !m.queue.Enter(key, m.MaxWaiters) {
		return Result{}, ErrCrowded
	}
	defer m.queue.Leave(key)
	l, err := m.lock(ctx, key)
	if errors.Is(err, coord.ErrLocked) {
		return Result{}, fmt.Errorf("%w: %w", ErrInProgress, err)
	}
	if err != nil {
		return Result{}, err
	}
	job.Hold(l)
	defer job.Release()
	return m.locked(ctx, l, key, print, job)
}

// lock waits for the job's turn.
func (m *Machine) lock(ctx context.Context, key string) (coord.Lock, error) {
	if m.Wait < 0 {
		return m.Locks.TryLock(ctx, LockPrefix+key)
	}
	ctx, cancel := context.WithTimeout(ctx, m.Wait)
	defer cancel()
	return m.Locks.Lock(ctx, LockPrefix+key)
}

// known returns how a job is answered that is not to be run, whatever holds the lock. ok is false
// if that remains to be seen.
func known(found Record, print Print) (res Result, err error, ok bool) {
	switch {
	case found.State == 0:
		return res, nil, false
	case found.Print != print:
		return res, ErrReused, true
	case found.State == Answered || found.State == NotKept:
		return Result{Record: found}, nil, true
	}
	return res, nil, false
}

// locked runs the job, if it is still to be run.
func (m *Machine) locked(ctx context.Context, l coord.Lock, key string, print Print, job Job) (Result, error) {
	found, err := m.load(ctx, key)
	if err != nil {
		return Result{}, err
	}
	if res, err, ok := known(found, print); ok {
		return res, err
	}
	if found.State == Started && !m.Rerun {
		return Result{}, ErrUnknown
	}
	if err := m.Put(ctx, l, key, Encode(Started, print)); err != nil {
		// It may have been stored all the same, and nothing has happened yet: that should be known,
		// if it can be.
		if !errors.Is(err, ErrStale) {
			_ = m.Put(ctx, l, key, Encode(Failed, print))
		}
		return Result{}, err
	}
	if lost := l.Context(); lost.Err() != nil { // while the store took its time; a later holder may not know of this
		_ = m.Put(ctx, l, key, Encode(Failed, print))
		return Result{}, context.Cause(lost)
	}
	res := Result{Ran: true}
	if record := job.Run(l); record != nil {
		res.NotSaved = m.Put(ctx, l, key, record)
	}
	return res, nil
}

// load returns the job's record, the zero Record if there is none.
func (m *Machine) load(ctx context.Context, key string) (Record, error) {
	ctx, cancel := context.WithTimeout(ctx, m.StoreTimeout)
	defer cancel()
	b, err := m.Store.Get(ctx, key)
	if errors.Is(err, ErrNoRecord) {
		return Record{}, nil
	}
	if err != nil {
		return Record{}, err
	}
	return Decode(b)
}

// Put stores the job's record. The end of ctx does not stop it.
func (m *Machine) Put(ctx context.Context, l coord.Lock, key string, record []byte) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.StoreTimeout)
	defer cancel()
	return m.Store.Put(ctx, key, record, uint64(l.Fence()), m.TTL)
}
