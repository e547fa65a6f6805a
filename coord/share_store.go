package coord

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// A ShareStore keeps the results of [Share] for other processes. Package sharetest checks
// implementations.
//
// Its methods are called by many goroutines at once, and may block until ctx ends: after
// Options.CallTimeout at the latest. They must be atomic for each key, and a Get that begins after
// a Put has returned must see that Put or a later one: the holder of the lock after another process
// has to find its result. A replica that is behind does not do.
type ShareStore interface {
	// Get returns the kept value of the key; with Fence 0 if there is none. An error means that
	// this cannot be told.
	Get(ctx context.Context, key string) (Shared, error)

	// Put keeps the value for the given time from now, in the place of the kept one. If the kept
	// one has a higher fence, Put changes nothing and returns an error that Is [ErrLost]. The same
	// fence may come twice: the call is being repeated, or its holder has something newer. After
	// any other error it is unknown which value is kept.
	//
	// The fence is not 0; it needs 64 bits, and the highest one is 0 until the year 2068. keep is
	// at least a millisecond.
	Put(ctx context.Context, key string, value []byte, fence uint64, keep time.Duration) error
}

// Shared is a value that a [ShareStore] keeps.
type Shared struct {
	Value []byte        // not changed from now on; its content is [Share]'s business
	Fence uint64        // of the lock under which it was made; 0: nothing is kept
	Age   time.Duration // since it was put, by a clock that is the same for all processes, as the store's own
}

// arbiterStore keeps results at the arbiter, in the slots of their keys.
type arbiterStore struct {
	c       *Coordinator
	results fallback.ResultStore
}

// Results returns the store that [Share] uses by default: the arbiter's. Other packages keep small
// records in it, each under a key of its own and with the fence of a lock. It is no database: a
// failover may lose a record, or bring back an earlier one. Errors: [ErrUnavailable] before the
// first session; [ErrNoResults], with most arbiters: docs/arbiters.md.
func (c *Coordinator) Results() (ShareStore, error) {
	ns := c.remote.namespace.Load()
	if ns == nil {
		return nil, fmt.Errorf("%w: no session yet", ErrUnavailable)
	}
	r, ok := (*ns).(fallback.ResultStore)
	if !ok {
		return nil, ErrNoResults
	}
	return arbiterStore{c, r}, nil
}

// storeOr returns the store, or if it is nil the arbiter's. An error names the setting.
func (c *Coordinator) storeOr(store ShareStore, name string) (ShareStore, error) {
	if store != nil {
		return store, nil
	}
	store, err := c.Results()
	if errors.Is(err, ErrNoResults) {
		err = fmt.Errorf("%w: set %s", err, name)
	}
	return store, err
}

func (s arbiterStore) Get(ctx context.Context, key string) (Shared, error) {
	sent := s.c.now()
	r, err := s.results.LoadResult(ctx, s.c.partitionOf(key).Number(), key)
	s.c.called(OpLoadResult, sent, err)
	return Shared(r), err
}

func (s arbiterStore) Put(ctx context.Context, key string, value []byte, fence uint64, keep time.Duration) error {
	sent := s.c.now()
	v, err := s.results.SaveResult(ctx, s.c.partitionOf(key).Number(), key, value, fence, keep)
	s.c.called(OpSaveResult, sent, err)
	switch {
	case err != nil:
		return err
	case v == fallback.Stale:
		return &LossError{Key: key, Fence: Fence(fence), Cause: Superseded}
	case v != fallback.Granted:
		return errors.New("coord: the arbiter answered " + v.String())
	}
	return nil
}
