package election_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/crash"
)

// A process that is told to stop hands over when its function has returned: no virtual time passes.
func TestRun_HandsOverAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		e, other := join(t, start(t, a, nil), nil), join(t, start(t, a, nil), nil)
		ctx, sigterm := context.WithCancel(t.Context())
		leads, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- e.Run(ctx, func(ctx context.Context, _ *election.Term) error {
				close(leads)
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		<-leads
		next := make(chan *election.Term, 1)
		go func() { next <- campaign(t, other) }()
		synctest.Wait()
		time.Sleep(time.Minute)
		told := time.Now()
		sigterm()
		term := <-next
		if d := time.Since(told); d > 0 {
			t.Errorf("the next leader came after %v", d)
		}
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		resign(t, term)
	})
}

func TestRun_CampaignsAgain(t *testing.T) {
	failed := errors.New("failed")
	t.Run("after an error", func(t *testing.T) {
		bubble(t, func(t *testing.T, a *fallback.Memory) {
			e, runs := join(t, start(t, a, nil), nil), 0
			began := time.Now()
			err := e.Run(t.Context(), func(context.Context, *election.Term) error {
				if runs++; runs < 4 {
					return failed
				}
				return nil
			})
			if err != nil || runs != 4 || time.Since(began) < 3*time.Second {
				t.Errorf("%v, %d runs in %v", err, runs, time.Since(began))
			}
		})
	})
	t.Run("after a term was lost", func(t *testing.T) {
		bubble(t, func(t *testing.T, a *fallback.Memory) {
			cut := &crash.Arbiter{Memory: a}
			var said bytes.Buffer
			e := join(t, start(t, cut, nil), &election.Options{Logger: slog.New(slog.NewTextHandler(&said, nil))})
			var fences []coord.Fence
			err := e.Run(t.Context(), func(ctx context.Context, term *election.Term) error {
				if fences = append(fences, term.Fence()); len(fences) == 3 {
					return nil
				}
				cut.Cut()
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), coord.ErrLost) {
					t.Errorf("cause: %v", context.Cause(ctx))
				}
				cut.Mend()
				if len(fences) == 1 {
					return failed
				}
				return nil
			})
			if err != nil || len(fences) != 3 || fences[2] <= fences[1] || fences[1] <= fences[0] {
				t.Errorf("%v, fences %v", err, fences)
			}
			for _, want := range []string{
				`session expired; its function: failed"`, `session expired"`,
			} {
				if !strings.Contains(said.String(), want) {
					t.Errorf("the log has no %s:\n%s", want, said.String())
				}
			}
		})
	})
}

func TestRun_Ends(t *testing.T) {
	failed := errors.New("failed")
	for name, x := range map[string]struct{ got, want error }{
		"with nothing to say": {context.Canceled, nil},
		"with an error":       {failed, failed},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				ctx, cancel := context.WithCancel(t.Context())
				err := join(t, start(t, a, nil), nil).Run(ctx, func(ctx context.Context, _ *election.Term) error {
					cancel()
					<-ctx.Done()
					return x.got
				})
				if err != x.want {
					t.Errorf("got %v", err)
				}
			})
		})
	}
	t.Run("with a deadline, of which the function is told", func(t *testing.T) {
		bubble(t, func(t *testing.T, a *fallback.Memory) {
			until := time.Now().Add(time.Minute)
			ctx, cancel := context.WithDeadline(t.Context(), until)
			defer cancel()
			told := false
			err := join(t, start(t, a, nil), nil).Run(ctx, func(ctx context.Context, _ *election.Term) error {
				if d, _ := ctx.Deadline(); !d.Equal(until) {
					t.Errorf("the deadline is %v, want %v", d, until)
				}
				<-ctx.Done()
				told = ctx.Err() == context.DeadlineExceeded
				return ctx.Err()
			})
			if err != nil || !told {
				t.Errorf("Run: %v; told %v", err, told)
			}
		})
	})
	t.Run("with the coordinator", func(t *testing.T) {
		bubble(t, func(t *testing.T, a *fallback.Memory) {
			c := start(t, a, nil)
			c.Close(t.Context())
			if err := join(t, c, nil).Run(t.Context(), nil); !errors.Is(err, coord.ErrClosed) {
				t.Errorf("got %v", err)
			}
		})
	})
	t.Run("with a panic, after the resignation", func(t *testing.T) {
		bubble(t, func(t *testing.T, a *fallback.Memory) {
			e, other := join(t, start(t, a, nil), nil), join(t, start(t, a, nil), nil)
			func() {
				defer func() {
					if recover() != "oh" {
						t.Error("the panic did not pass through")
					}
				}()
				e.Run(t.Context(), func(context.Context, *election.Term) error { panic("oh") })
			}()
			began := time.Now()
			resign(t, campaign(t, other))
			if d := time.Since(began); d > time.Second {
				t.Errorf("the next leader came after %v", d)
			}
		})
	})
}

// In the order that is preferred, whatever the order of arrival, and at once.
func TestPrefer(t *testing.T) {
	order := election.Then(election.Newest, election.InZone("near"))
	all := []election.Options{
		{ID: "old", Version: "v1.9.2", Zone: "near"},
		{ID: "rc", Version: "v1.10.0-rc.1", Zone: "near"},
		{ID: "far", Version: "v1.10.0", Zone: "far"},
		{ID: "best", Version: "v1.10.0", Zone: "near"},
	}
	want := []string{"best", "far", "rc", "old"}
	for shift := range all {
		bubble(t, func(t *testing.T, a *fallback.Memory) {
			var mu sync.Mutex
			var got []string
			var work sync.WaitGroup
			first := campaign(t, join(t, start(t, a, nil), &election.Options{Prefer: order, Version: "v1.9.2"}))
			var began time.Time
			for i := range all {
				o := all[(i+shift)%len(all)]
				o.Prefer = order
				e := join(t, start(t, a, nil), &o)
				work.Go(func() {
					term := campaign(t, e)
					mu.Lock()
					got = append(got, o.ID)
					mu.Unlock()
					time.Sleep(time.Second)
					resign(t, term)
				})
				time.Sleep(time.Second)
			}
			time.Sleep(time.Minute)
			began = time.Now()
			resign(t, first)
			work.Wait()
			if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] || time.Since(began) > 4100*time.Millisecond {
				t.Errorf("shift %d: got %v after %v, want %v", shift, got, time.Since(began), want)
			}
		})
	}
}

// A candidate that crashed is not waited for.
func TestPrefer_ACrashedCandidate(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		cut := &crash.Arbiter{Memory: a}
		prefer := func(version string) *election.Options {
			return &election.Options{Prefer: election.Newest, Version: version}
		}
		first := campaign(t, join(t, start(t, a, nil), prefer("1")))
		better := join(t, start(t, cut, nil), prefer("2"))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); better.Campaign(ctx) }()
		synctest.Wait()
		next := make(chan *election.Term, 1)
		other := join(t, start(t, a, nil), prefer("1"))
		go func() { next <- campaign(t, other) }()
		time.Sleep(time.Minute)
		cut.Cut()
		began := time.Now()
		resign(t, first)
		resign(t, <-next)
		if d := time.Since(began); d > 11*time.Second {
			t.Errorf("the next leader came after %v", d)
		}
		cancel()
		<-done
		cut.Mend()
		time.Sleep(time.Minute) // until it has a session to close again
	})
}

// A process that only observes takes no lock: it is told, and does not campaign for ever.
func TestRun_AnObserverIsNoCandidate(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		start(t, a, nil)
		e := join(t, start(t, a, &coord.Options{Observe: true}), nil)
		for what, err := range map[string]error{
			"Run":    e.Run(t.Context(), func(context.Context, *election.Term) error { return nil }),
			"Assign": e.Assign(t.Context(), 2, func(context.Context, election.Shard) error { return nil }),
		} {
			if !errors.Is(err, coord.ErrObserver) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
