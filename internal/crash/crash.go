// Package crash cuts one coordinator of a test off from its arbiter, as if its process had been
// killed: the others see it fall silent, and its own locks are lost.
package crash

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// Err is the error of each call after Cut.
var Err = errors.New("crash: cut off from the arbiter")

// An Arbiter is a Memory for one coordinator without a Cluster.
type Arbiter struct {
	Memory *fallback.Memory
	cut    atomic.Bool
}

// Cut ends the contact.
func (a *Arbiter) Cut() { a.cut.Store(true) }

// Mend restores it.
func (a *Arbiter) Mend() { a.cut.Store(false) }

// Attach implements [fallback.Arbiter].
func (a *Arbiter) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	if a.cut.Load() {
		return nil, Err
	}
	n, err := a.Memory.Attach(ctx, s)
	if err != nil {
		return nil, err
	}
	return &space{n, a}, nil
}

// space passes on what a coordinator without a Cluster calls.
type space struct {
	fallback.Namespace
	a *Arbiter
}

// call makes a call, unless the arbiter is cut off before it or, so that the answer is lost, after
// it.
func call[T any](n *space, do func() (T, error)) (T, error) {
	var none T
	if n.a.cut.Load() {
		return none, Err
	}
	v, err := do()
	if n.a.cut.Load() {
		return none, Err
	}
	return v, err
}

func (n *space) Open(ctx context.Context, id string, r fallback.Registration) (fallback.Renewal, error) {
	return call(n, func() (fallback.Renewal, error) { return n.Namespace.Open(ctx, id, r) })
}

func (n *space) Renew(ctx context.Context, id string, r fallback.Registration) (fallback.Renewal, error) {
	return call(n, func() (fallback.Renewal, error) { return n.Namespace.Renew(ctx, id, r) })
}

func (n *space) Dead(ctx context.Context, id string, by fallback.Stamp) (fallback.Liveness, error) {
	return call(n, func() (fallback.Liveness, error) { return n.Namespace.Dead(ctx, id, by) })
}

func (n *space) List(ctx context.Context) (fallback.Listing, error) {
	return call(n, func() (fallback.Listing, error) { return n.Namespace.List(ctx) })
}

func (n *space) CloseSession(ctx context.Context, id string) error {
	_, err := call(n, func() (struct{}, error) { return struct{}{}, n.Namespace.CloseSession(ctx, id) })
	return err
}

func (n *space) Lock(ctx context.Context, r fallback.LockRequest) (fallback.LockAnswer, error) {
	return call(n, func() (fallback.LockAnswer, error) { return n.Namespace.Lock(ctx, r) })
}

func (n *space) Unlock(ctx context.Context, r []fallback.Release) []error {
	errs, err := call(n, func() ([]error, error) { return n.Namespace.Unlock(ctx, r), nil })
	if err != nil {
		return slices.Repeat([]error{err}, len(r))
	}
	return errs
}

func (n *space) Restore(ctx context.Context, c []fallback.Claims) []fallback.Restored {
	all, err := call(n, func() ([]fallback.Restored, error) { return n.Namespace.Restore(ctx, c), nil })
	if err != nil {
		return slices.Repeat([]fallback.Restored{{Err: err}}, len(c))
	}
	return all
}

func (n *space) Verify(ctx context.Context, r []fallback.Read) []fallback.State {
	all, err := call(n, func() ([]fallback.State, error) { return n.Namespace.Verify(ctx, r), nil })
	if err != nil {
		return slices.Repeat([]fallback.State{{Err: err}}, len(r))
	}
	return all
}

func (n *space) Listen(ctx context.Context, session string, handle func(fallback.Message)) (func(), error) {
	return call(n, func() (func(), error) {
		return n.Namespace.Listen(ctx, session, func(m fallback.Message) {
			if !n.a.cut.Load() {
				handle(m)
			}
		})
	})
}

// LoadResult implements [fallback.ResultStore].
func (n *space) LoadResult(ctx context.Context, p uint32, key string) (fallback.Result, error) {
	return call(n, func() (fallback.Result, error) { return n.Namespace.(fallback.ResultStore).LoadResult(ctx, p, key) })
}

// SaveResult implements [fallback.ResultStore].
func (n *space) SaveResult(ctx context.Context, p uint32, key string, value []byte, fence uint64, ttl time.Duration) (fallback.Verdict, error) {
	return call(n, func() (fallback.Verdict, error) {
		return n.Namespace.(fallback.ResultStore).SaveResult(ctx, p, key, value, fence, ttl)
	})
}

// Announce implements [fallback.Announcer].
func (n *space) Announce(ctx context.Context, key string) error {
	_, err := call(n, func() (struct{}, error) {
		return struct{}{}, n.Namespace.(fallback.Announcer).Announce(ctx, key)
	})
	return err
}
