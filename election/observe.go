package election

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// Leader returns the published leader, with one call of the store. It names a crashed leader until
// the next one has published itself, or until Options.Keep is over.
//
// Errors: [ErrNoLeader]; [coord.ErrUnavailable] if the store cannot be read; [coord.ErrNoResults]
// if there is none; ctx's own if it ended.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	k, err := e.look(ctx)
	if err != nil {
		return Leader{}, err
	}
	if l := k.leader(); l.Fence != 0 {
		return l, nil
	}
	return Leader{}, ErrNoLeader
}

// Observe yields the leader, and then each change, until ctx ends: another leader, another value,
// or the zero Leader while there is none. Changes are pushed: a leader announces each value to all
// processes at once. Changes that come faster than they are taken are left out, but for the last
// one. While the store cannot be read, nothing is yielded. Without Options.Store, where the arbiter
// keeps no results, Observe ends at once. Options.Logger is told of both.
//
// A leader that crashed publishes nothing. The next change is its successor, or, without one, the
// zero Leader after Options.Keep.
func (e *Election) Observe(ctx context.Context) iter.Seq[Leader] {
	return func(yield func(Leader) bool) {
		var last Leader
		first := true
		for k := range e.records(ctx) {
			if l := k.leader(); first || l != last {
				first, last = false, l
				if !yield(l) {
					return
				}
			}
		}
	}
}

// records yields the stored record whenever it may have changed.
func (e *Election) records(ctx context.Context) iter.Seq[kept] {
	return func(yield func(kept) bool) {
		changed, stop := e.c.Watch(e.key)
		defer stop()
		timer := time.NewTimer(e.opts.Keep)
		defer timer.Stop()
		troubled := false // a record was written
		for {
			k, err := e.look(ctx)
			if ctx.Err() != nil {
				return
			}
			if err != nil && !troubled {
				e.opts.Logger.Warn("holdfast: the leader of an election cannot be observed", "election", e.name, "error", err)
			}
			troubled = err != nil
			next := e.opts.Keep
			switch {
			case errors.Is(err, coord.ErrNoResults):
				return
			case err != nil:
				next = min(next, time.Second)
			case !yield(k):
				return
			case k.leader().Fence != 0: // until it lapses
				next = max(e.opts.Keep-k.age, 0) + 10*time.Millisecond
			}
			timer.Reset(next)
			select {
			case <-changed:
			case <-timer.C:
			case <-ctx.Done():
				return
			}
		}
	}
}
