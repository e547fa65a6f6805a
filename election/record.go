package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// A Leader is the published description of a leader. The zero Leader means that there is none.
type Leader struct {
	ID    string      // Options.ID
	Value string      // Options.Value, or the value of the last Term.Publish
	Fence coord.Fence // of the term
}

// record is a term in the store. It begins with a brace, so that Share of the same key ignores it.
type record struct {
	ID     string `json:"id"`
	Value  []byte `json:"value"`
	Vacant bool   `json:"vacant,omitempty"` // the term is over
}

// kept is a record with its fence and its age in the store. The fence is 0 if there is no record.
type kept struct {
	record
	fence coord.Fence
	age   time.Duration
}

func (k kept) leader() Leader {
	if k.fence == 0 || k.Vacant {
		return Leader{}
	}
	return Leader{ID: k.ID, Value: string(k.Value), Fence: k.fence}
}

// callTimeout limits one call of the store. The arbiter's own limits are shorter, as a rule.
const callTimeout = 2 * time.Second

func (e *Election) store() (coord.ShareStore, error) {
	if e.opts.Store != nil {
		return e.opts.Store, nil
	}
	store, err := e.c.Results()
	if errors.Is(err, coord.ErrNoResults) {
		err = fmt.Errorf("%w: set election.Options.Store", err)
	}
	return store, err
}

// load reads a record of the store. A record that cannot be read is none.
func (e *Election) load(ctx context.Context, key string, into any) (coord.Fence, time.Duration, error) {
	store, err := e.store()
	if err != nil {
		return 0, 0, err
	}
	if ctx.Err() != nil {
		return 0, 0, context.Cause(ctx)
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s, err := store.Get(call, key)
	switch {
	case err != nil && ctx.Err() != nil:
		return 0, 0, context.Cause(ctx)
	case err != nil:
		return 0, 0, fmt.Errorf("%w: read %q: %w", coord.ErrUnavailable, key, err)
	}
	if s.Fence == 0 || json.Unmarshal(s.Value, into) != nil {
		return 0, 0, nil
	}
	return coord.Fence(s.Fence), s.Age, nil
}

// save writes a record under a fence, and announces it. An announcement that fails is none of the
// caller's concern: observers look by themselves.
func (e *Election) save(ctx context.Context, key string, from any, fence coord.Fence) error {
	store, err := e.store()
	if err != nil {
		return err
	}
	value, err := json.Marshal(from)
	if err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	switch err := store.Put(call, key, value, uint64(fence), e.opts.Keep); {
	case errors.Is(err, coord.ErrLost):
		return err
	case err != nil:
		return fmt.Errorf("%w: publish %q: %w", coord.ErrUnavailable, key, err)
	}
	_ = e.c.Announce(call, key)
	return nil
}

func (e *Election) look(ctx context.Context) (k kept, err error) {
	k.fence, k.age, err = e.load(ctx, e.key, &k.record)
	return k, err
}
