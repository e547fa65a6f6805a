// Package clientgo runs the LeaderCallbacks of k8s.io/client-go/tools/leaderelection on an election
// of package election: a hand-over takes milliseconds, each term has a token, and no Kubernetes is
// needed. The package does not import client-go: its [LeaderCallbacks] has the same fields, so that
// one converts to the other.
//
// Differences from LeaderElector:
//
//   - When the context of Run ends, the leadership is given up when OnStartedLeading has returned. So it has to
//     heed its context. client-go gives up, with ReleaseOnCancel, while it may still run.
//   - The context of OnStartedLeading has a cause, which Is [coord.ErrLost] if the term was lost. [Term] returns the
//     term, for its token.
//   - OnNewLeader needs an arbiter that keeps results, as Redis does and most others do not, or
//     election.Options.Store: see [Run].
//   - There is no lock, LeaseDuration, RenewDeadline nor RetryPeriod: these are the coordinator's.
package clientgo

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/election"
)

// LeaderCallbacks are called while a process campaigns and leads: see [Run]. Those of client-go
// convert to it.
type LeaderCallbacks struct {
	OnStartedLeading func(context.Context) // required
	OnStoppedLeading func()                // required
	OnNewLeader      func(identity string) // may be nil
}

// Run campaigns until ctx ends, and leads from then on until ctx ends or the term is lost. It calls
// the callbacks as LeaderElector.Run does:
//
//   - OnStartedLeading, in a goroutine, with a context that ends with ctx or the term. The leadership goes on when
//     it returns.
//   - OnStoppedLeading, always, before Run returns. If the term was lost, it does not wait for OnStartedLeading, so
//     that it can end the process.
//   - OnNewLeader, with the ID of each leader that is observed, if it is not nil. Each call has a
//     goroutine of its own, which Run does not wait for: of two that come close together either may
//     run first.
//
// A campaign that fails begins again after election.Options.Pause, as that of
// [election.Election.Run] does.
//
// Errors: nil if ctx has ended; one that Is [coord.ErrLost] if the term was lost; those of
// [election.Election.Run] that campaigning again does not mend. A callback that is missing is an
// error, and so is OnNewLeader where no leader can be observed, which Is [coord.ErrNoResults];
// nothing is called then.
func Run(ctx context.Context, e *election.Election, callbacks LeaderCallbacks) error {
	if err := check(e, callbacks); err != nil {
		return err
	}
	return run(ctx, e, callbacks)
}

// RunOrDie is Run, and panics if the election or a callback is missing, and if OnNewLeader is set
// where no leader can be observed. Errors after that are told by OnStoppedLeading alone, as
// client-go does.
func RunOrDie(ctx context.Context, e *election.Election, callbacks LeaderCallbacks) {
	if err := check(e, callbacks); err != nil {
		panic(err)
	}
	_ = run(ctx, e, callbacks)
}

func check(e *election.Election, callbacks LeaderCallbacks) error {
	if e == nil || callbacks.OnStartedLeading == nil || callbacks.OnStoppedLeading == nil {
		return errors.New("clientgo: the election, OnStartedLeading or OnStoppedLeading is nil")
	}
	if callbacks.OnNewLeader == nil {
		return nil
	}
	ended, end := context.WithCancel(context.Background())
	end()
	if _, err := e.Leader(ended); errors.Is(err, coord.ErrNoResults) { // it asks no store
		return fmt.Errorf("clientgo: OnNewLeader would not be called: %w", err)
	}
	return nil
}

func run(ctx context.Context, e *election.Election, callbacks LeaderCallbacks) error {
	defer callbacks.OnStoppedLeading()
	defer observe(ctx, e, callbacks.OnNewLeader)()
	once, stop := context.WithCancel(ctx) // a second term is none of this Run
	defer stop()
	var lost error
	err := e.Run(once, func(ctx context.Context, term *election.Term) error {
		lost = lead(ctx, term, callbacks.OnStartedLeading)
		stop()
		return nil
	})
	if lost != nil {
		return lost
	}
	return err
}

// lead calls start, and resigns when ctx has ended. It returns an error if the term was lost.
func lead(ctx context.Context, term *election.Term, start func(context.Context)) error {
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		start(context.WithValue(ctx, termKey{}, term))
	}()
	<-ctx.Done()
	select {
	case <-returned:
	case <-term.Context().Done(): // it was lost
	}
	if err := term.Resign(context.WithoutCancel(ctx)); errors.Is(err, coord.ErrLost) {
		return err
	}
	return nil
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

// Term returns the term whose context ctx is, or derives from: that of OnStartedLeading. It returns
// nil for any other.
func Term(ctx context.Context) *election.Term {
	t, _ := ctx.Value(termKey{}).(*election.Term)
	return t
}
