// Package clientgo runs the LeaderCallbacks of k8s.io/client-go/tools/leaderelection on an election of package
// election: a hand-over takes milliseconds, each term has a token, and no Kubernetes is needed. The package does not
// import client-go: its [LeaderCallbacks] has the same fields, so that one converts to the other.
//
// What differs from LeaderElector:
//
//   - When the context of Run ends, the leadership is given up when OnStartedLeading has returned. So it has to
//     heed its context. client-go gives up, with ReleaseOnCancel, while it may still run.
//   - The context of OnStartedLeading has a cause, which Is [coord.ErrLost] if the term was lost. [Term] returns the
//     term, for its token.
//   - There is no lock, LeaseDuration, RenewDeadline nor RetryPeriod: these are the coordinator's.
package clientgo

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/internal/held"
)

// LeaderCallbacks are called while a process campaigns and leads: see [Run]. Those of client-go convert to it.
type LeaderCallbacks struct {
	OnStartedLeading func(context.Context) // required
	OnStoppedLeading func()                // required
	OnNewLeader      func(identity string) // may be nil
}

// Run campaigns until ctx ends, and leads from then on until ctx ends or the term is lost. It calls the callbacks as
// LeaderElector.Run does:
//
//   - OnStartedLeading, in a goroutine, with a context that ends with ctx or the term. The leadership goes on when
//     it returns.
//   - OnStoppedLeading, always, before Run returns. If the term was lost, it does not wait for OnStartedLeading, so
//     that it can end the process.
//   - OnNewLeader, with the ID of each leader that is observed, if it is not nil. Each call has a
//     goroutine of its own, which Run does not wait for: of two that come close together either may
//     run first.
//
// Errors: nil if ctx has ended; one that Is [coord.ErrLost] if the term was lost; those of
// [election.Election.Campaign]. A callback that is missing is an error, and nothing is called.
func Run(ctx context.Context, e *election.Election, callbacks LeaderCallbacks) error {
	if e == nil || callbacks.OnStartedLeading == nil || callbacks.OnStoppedLeading == nil {
		return errors.New("clientgo: the election, OnStartedLeading or OnStoppedLeading is nil")
	}
	defer callbacks.OnStoppedLeading()
	defer observe(ctx, e, callbacks.OnNewLeader)()
	term, err := e.Campaign(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	leading, end := held.Inside(context.WithValue(ctx, termKey{}, term), term.Context())
	defer end(nil)
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		callbacks.OnStartedLeading(leading)
	}()
	<-leading.Done()
	select {
	case <-returned:
	case <-term.Context().Done(): // it was lost
	}
	if err := term.Resign(context.WithoutCancel(ctx)); errors.Is(err, coord.ErrLost) {
		return err
	}
	return nil
}

// RunOrDie is Run, and panics if the election or a callback is missing. Errors after that are told by
// OnStoppedLeading alone, as client-go does.
func RunOrDie(ctx context.Context, e *election.Election, callbacks LeaderCallbacks) {
	if e == nil || callbacks.OnStartedLeading == nil || callbacks.OnStoppedLeading == nil {
		panic("clientgo: the election, OnStartedLeading or OnStoppedLeading is nil")
	}
	_ = Run(ctx, e, callbacks)
}

// observe calls tell for each leader until stop is called, which does not wait for tell.
func observe(ctx context.Context, e *election.Election, tell func(identity string)) (stop func()) {
	if tell == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		last := ""
		for leader := range e.Observe(ctx) {
			if leader.Fence != 0 && leader.ID != last {
				last = leader.ID
				go tell(last)
			}
		}
	})
	return func() { cancel(); work.Wait() }
}

type termKey struct{}

// Term returns the term whose context ctx is, or derives from: that of OnStartedLeading. It returns nil for any other.
func Term(ctx context.Context) *election.Term {
	t, _ := ctx.Value(termKey{}).(*election.Term)
	return t
}
