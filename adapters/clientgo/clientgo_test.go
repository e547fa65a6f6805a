package clientgo_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/adapters/adaptertest"
	"github.com/holdfast-go/holdfast/adapters/clientgo"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/coordtest"
	"github.com/holdfast-go/holdfast/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func join(t *testing.T, c *coord.Coordinator, name, id string) *election.Election {
	t.Helper()
	e, err := election.New(c, name, &election.Options{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestRun(t *testing.T) {
	adaptertest.Run(t, adaptertest.Fixture{
		Silent: true,
		Section: func(t *testing.T, c *coord.Coordinator, key string, section func(context.Context) error) error {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			stopped := false
			err := clientgo.Run(ctx, join(t, c, key, ""), clientgo.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) { defer stop(); _ = section(ctx) },
				OnStoppedLeading: func() { stopped = true },
			})
			if !stopped {
				t.Error("OnStoppedLeading was not called")
			}
			return err
		},
	})
}

// Features that client-go lacks: the token, observers that are told at once, errors instead of a
// panic.
func TestRun_Term(t *testing.T) {
	c := adaptertest.Start(t, fallback.NewMemory(), nil)
	ctx, stop := context.WithCancel(t.Context())
	leader, leads := make(chan string, 1), make(chan *election.Term, 1)
	done := make(chan error)
	go func() {
		done <- clientgo.Run(ctx, join(t, c, "x", "a"), clientgo.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { leads <- clientgo.Term(ctx) },
			OnStoppedLeading: func() {},
			OnNewLeader:      func(id string) { leader <- id },
		})
	}()
	term := <-leads
	if term == nil || term.Fence() == 0 || <-leader != "a" {
		t.Error("no token, or another leader")
	}
	if term.Context().Err() != nil {
		t.Error("the leadership has ended with OnStartedLeading")
	}
	stop()
	if err := <-done; err != nil || term.Context().Err() == nil {
		t.Errorf("Run: %v", err)
	}
	if clientgo.Term(ctx) != nil {
		t.Error("a term without an election")
	}
	if err := clientgo.Run(ctx, nil, clientgo.LeaderCallbacks{}); err == nil {
		t.Error("nil was accepted")
	}
}

// OnStartedLeading is told of the deadline of Run's context, and that it has passed.
func TestRun_Deadline(t *testing.T) {
	coordtest.Bubble(t, func(t *testing.T, a *fallback.Memory) {
		until := time.Now().Add(time.Minute)
		ctx, cancel := context.WithDeadline(t.Context(), until)
		defer cancel()
		err := clientgo.Run(ctx, join(t, coordtest.Start(t, a, nil), "x", "a"), clientgo.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				if d, _ := ctx.Deadline(); !d.Equal(until) || clientgo.Term(ctx) == nil {
					t.Errorf("the deadline is %v, want %v", d, until)
				}
				<-ctx.Done()
				if ctx.Err() != context.DeadlineExceeded {
					t.Error(ctx.Err())
				}
			},
			OnStoppedLeading: func() {},
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// OnNewLeader that does not return keeps nothing from ending, as with client-go.
func TestRun_OnNewLeaderBlocks(t *testing.T) {
	coordtest.Bubble(t, func(t *testing.T, a *fallback.Memory) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		told, release, returned := make(chan struct{}), make(chan struct{}), make(chan struct{})
		stopped := false
		e := join(t, coordtest.Start(t, a, nil), "x", "a")
		go func() {
			defer close(returned)
			err := clientgo.Run(ctx, e, clientgo.LeaderCallbacks{
				OnStartedLeading: func(context.Context) {},
				OnStoppedLeading: func() { stopped = true },
				OnNewLeader:      func(string) { close(told); <-release },
			})
			if err != nil {
				t.Error(err)
			}
		}()
		<-told
		stop()
		synctest.Wait()
		select {
		case <-returned:
		default:
			t.Error("Run waits for OnNewLeader")
		}
		close(release)
		<-returned
		if !stopped {
			t.Error("OnStoppedLeading was not called")
		}
	})
}

// full is an arbiter without room for the first request of a lock.
type full struct {
	fallback.Arbiter
	told atomic.Bool
}

func (a *full) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := a.Arbiter.Attach(ctx, s)
	return &fullSpace{n, a}, err
}

type fullSpace struct {
	fallback.Namespace
	a *full
}

func (n *fullSpace) Lock(ctx context.Context, r fallback.LockRequest) (fallback.LockAnswer, error) {
	if n.a.told.CompareAndSwap(false, true) {
		return fallback.LockAnswer{}, fallback.ErrFull
	}
	return n.Namespace.Lock(ctx, r)
}

// A campaign that fails begins again, as client-go's acquire does. An error that it cannot mend
// ends Run.
func TestRun_CampaignsAgain(t *testing.T) {
	coordtest.Bubble(t, func(t *testing.T, a *fallback.Memory) {
		x := &full{Arbiter: a}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		led := false
		c := coordtest.Start(t, x, nil)
		if err := clientgo.Run(ctx, join(t, c, "x", "a"), clientgo.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { led = true; stop() },
			OnStoppedLeading: func() {},
		}); err != nil || !led || !x.told.Load() {
			t.Errorf("%v; it led: %v; the arbiter was full: %v", err, led, x.told.Load())
		}
		c.Close(t.Context())
		stopped := false
		if err := clientgo.Run(t.Context(), join(t, c, "x", "a"), clientgo.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { t.Error("it leads") },
			OnStoppedLeading: func() { stopped = true },
		}); !errors.Is(err, coord.ErrClosed) || !stopped {
			t.Errorf("with a coordinator that is closed: %v; stopped: %v", err, stopped)
		}
	})
}

// OnNewLeader that would never be called is refused, before anything is called.
func TestRun_OnNewLeaderWithoutResults(t *testing.T) {
	coordtest.Bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := coordtest.Start(t, coordtest.WithoutResults(a), nil)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		called := false
		callbacks := clientgo.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { called = true; stop() },
			OnStoppedLeading: func() { called = true },
			OnNewLeader:      func(string) {},
		}
		e := join(t, c, "x", "a")
		if err := clientgo.Run(ctx, e, callbacks); !errors.Is(err, coord.ErrNoResults) || called {
			t.Errorf("Run: %v; something was called: %v", err, called)
		}
		func() {
			defer func() {
				if err, _ := recover().(error); !errors.Is(err, coord.ErrNoResults) || called {
					t.Errorf("RunOrDie: %v; something was called: %v", err, called)
				}
			}()
			clientgo.RunOrDie(ctx, e, callbacks)
		}()
		results, err := coordtest.Start(t, fallback.NewMemory(), nil).Results()
		if err != nil {
			t.Fatal(err)
		}
		if e, err = election.New(c, "x", &election.Options{Store: results}); err != nil {
			t.Fatal(err)
		}
		if err := clientgo.Run(ctx, e, callbacks); err != nil || !called {
			t.Errorf("with a store: %v", err)
		}
		callbacks.OnNewLeader = nil
		if err := clientgo.Run(ctx, join(t, c, "x", "a"), callbacks); err != nil {
			t.Errorf("without OnNewLeader: %v", err)
		}
	})
}

func ExampleRunOrDie() {
	locks, err := coord.New(context.Background(), fallback.NewMemory(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	e, err := election.New(locks, "controller", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background()) // in a service: signal.NotifyContext
	clientgo.RunOrDie(ctx, e, clientgo.LeaderCallbacks{
		OnStartedLeading: func(context.Context) { fmt.Println("leads"); stop() },
		OnStoppedLeading: func() { fmt.Println("has stopped") },
	})
	fmt.Println(locks.Close(context.Background()))
	// Output:
	// leads
	// has stopped
	// <nil>
}
