package election

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// A Term is this process's time as the leader. Its methods are safe for concurrent use.
type Term struct {
	e    *Election
	lock coord.Lock
	done chan struct{} // closed when the goroutine of the term has ended

	mu    sync.Mutex // protects value, and is held while it is written to the store
	value string
}

// Campaign waits until this process is the leader, or until ctx ends. ctx limits the wait, not the
// term. The term lasts until [Term.Resign], or until it is lost.
//
// The value is published in the background: a store that does not answer delays no leader. With
// Options.Prefer it delays one by some seconds at most, and the candidate then leads whether there
// is a better one or not.
//
// Errors: those of [coord.Coordinator.Lock]; with Options.Prefer also [coord.ErrNoResults], if
// there is no Options.Store and the arbiter keeps no results.
func (e *Election) Campaign(ctx context.Context) (*Term, error) {
	quiet, won := e.c.ExpectLong(e.key), false
	defer func() {
		if !won {
			quiet()
		}
	}()
	l, m, err := e.win(ctx)
	if err != nil {
		return nil, err
	}
	won = true
	t := &Term{e: e, lock: l, done: make(chan struct{}), value: e.opts.Value}
	over := l.Context()
	go func() {
		defer close(t.done)
		defer quiet()
		t.keepPublished(over, m)
	}()
	return t, nil
}

// Fence returns the token of the term. It is larger than that of every earlier term of the
// election, in any process. A failover of the arbiter, or a loss of its data, does not change that,
// unless its clock was set back as well. A resource that keeps the highest token it has seen
// refuses a leader of an earlier term by it.
func (t *Term) Fence() coord.Fence { return t.lock.Fence() }

// Context returns a context that lasts as long as the term. Its cause is [coord.ErrUnlocked] after
// Resign, and Is [coord.ErrLost] if the term was lost. It ends by the clock of this process, at the
// latest coord.Options.SessionTTL - Margin after this process sent the last renewal that the
// arbiter acknowledged. In a cluster it may end earlier, if this process's guardians do not answer:
// 0.3 s before their last promises, of coord.Cluster.Takeover each, are over. That is the share of
// Takeover that Margin has of SessionTTL. The arbiter lets another candidate in so much later at
// the earliest: Margin, or those 0.3 s. The context has the values of the ctx that Campaign was
// called with.
func (t *Term) Context() context.Context { return t.lock.Context() }

// Lock returns the lock that the term is: for packages that take one.
func (t *Term) Lock() coord.Lock { return t.lock }

// Publish changes the value, and returns when it is stored and announced. Errors: [coord.ErrLost]
// or [coord.ErrUnlocked] if the term is over; [coord.ErrUnavailable] if the store does not answer:
// the value is written again then with the next refreshment. [coord.ErrNoResults] if there is no
// store.
func (t *Term) Publish(ctx context.Context, value string) error {
	if len(value) > maxValue {
		return fmt.Errorf("election: the value has %d bytes, must have %d at most", len(value), maxValue)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if over := t.Context(); over.Err() != nil {
		return context.Cause(over)
	}
	t.value = value
	return t.put(ctx, false)
}

// Resign ends the term. It gives the lock back, and does not wait for the network for that. Then
// Resign tells the observers that there is no leader, until ctx ends at most. The leader's work has
// to have ended before: Run sees to that.
//
// Errors: [coord.ErrUnlocked] if the term was over by an earlier call; one that Is [coord.ErrLost]
// if it was lost.
func (t *Term) Resign(ctx context.Context) error {
	err := t.lock.Unlock()
	select {
	case <-t.done:
	case <-ctx.Done():
	}
	return err
}

// keepPublished writes the value again and again, until the term is over. m is the candidacy, which
// has ended with the campaign.
func (t *Term) keepPublished(over context.Context, m *membership) {
	refresh := time.NewTimer(0)
	defer refresh.Stop()
	troubled := false // a record was written
	for {
		select {
		case <-over.Done():
			m.leave()
			if errors.Is(context.Cause(over), coord.ErrUnlocked) {
				t.vacate()
			}
			return
		case <-refresh.C:
		}
		err := t.refresh(over)
		m.leave()
		next := t.e.opts.Keep / 3
		if err != nil {
			next = min(next, time.Second)
			if !troubled && over.Err() == nil {
				t.e.opts.Logger.Warn("holdfast: a leader cannot be published, and is tried again", "election", t.e.name, "fence", t.Fence(), "error", err)
			}
		}
		troubled = err != nil
		refresh.Reset(next)
	}
}

func (t *Term) refresh(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.put(ctx, false)
}

// put writes the value. t.mu is held.
func (t *Term) put(ctx context.Context, vacant bool) error {
	if t.e.silent && t.value == "" {
		return nil
	}
	return t.e.save(ctx, t.e.key, record{ID: t.e.opts.ID, Value: []byte(t.value), Vacant: vacant}, t.Fence())
}

// vacate publishes that the term is over. The next leader's record has a higher fence, and stays.
func (t *Term) vacate() {
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.put(context.Background(), true)
}
