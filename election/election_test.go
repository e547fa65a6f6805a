package election_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/coordtest"
	"github.com/holdfast-go/holdfast/internal/crash"
	"github.com/holdfast-go/holdfast/internal/leak"
)

func TestMain(m *testing.M) {
	if env := os.Getenv(candidateEnv); env != "" {
		addr, kind, _ := strings.Cut(env, ",")
		if err := candidate(addr, kind == "cluster"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	leak.Main(m)
}

var start, bubble = coordtest.Start, coordtest.Bubble

func join(t *testing.T, c *coord.Coordinator, opts *election.Options) *election.Election {
	t.Helper()
	e, err := election.New(c, "billing", opts)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func campaign(t *testing.T, e *election.Election) *election.Term {
	t.Helper()
	term, err := e.Campaign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return term
}

func resign(t *testing.T, term *election.Term) {
	t.Helper()
	if err := term.Resign(t.Context()); err != nil {
		t.Errorf("Resign: %v", err)
	}
}

func TestCampaign_OneLeaderAtATime(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		var leaders, terms atomic.Int32
		var last atomic.Uint64
		var work sync.WaitGroup
		for range 4 {
			e := join(t, start(t, a, nil), nil)
			work.Go(func() {
				for range 10 {
					term := campaign(t, e)
					if n := leaders.Add(1); n != 1 {
						t.Errorf("%d leaders", n)
					}
					if was := last.Swap(uint64(term.Fence())); was >= uint64(term.Fence()) {
						t.Errorf("fence %d after %d", term.Fence(), was)
					}
					time.Sleep(time.Second)
					terms.Add(1)
					leaders.Add(-1)
					resign(t, term)
				}
			})
		}
		work.Wait()
		if terms.Load() != 40 {
			t.Errorf("%d terms", terms.Load())
		}
	})
}

// Candidates wait for as long as the leader lives: no alert about stuck keys fires for that.
func TestCampaign_IsNoLongWait(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		leader, candidate := start(t, a, nil), start(t, a, nil)
		term := campaign(t, join(t, leader, nil))
		next := make(chan *election.Term)
		e := join(t, candidate, nil)
		go func() { next <- campaign(t, e) }()
		time.Sleep(time.Hour)
		if s := candidate.Stats(); s.Waiting != 1 || s.LongestWait != 0 {
			t.Errorf("%d callers wait, the first for %v", s.Waiting, s.LongestWait)
		}
		resign(t, term)
		resign(t, <-next)
	})
}

// A term ends in the leader's eyes before another candidate is elected: Margin before, as clocks
// are equal.
func TestTerm_EndsBeforeTheNextOneBegins(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		cut := &crash.Arbiter{Memory: a}
		opts := coord.Options{} // its defaults: T 10 s, M 1 s
		old, next := join(t, start(t, cut, &opts), nil), join(t, start(t, a, &opts), nil)
		term := campaign(t, old)
		began := make(chan time.Time, 1)
		go func() {
			later := campaign(t, next)
			began <- time.Now()
			if later.Fence() <= term.Fence() {
				t.Errorf("fence %d after %d", later.Fence(), term.Fence())
			}
			resign(t, later)
		}()
		time.Sleep(time.Minute)
		cut.Cut()
		<-term.Context().Done()
		ended := time.Now()
		if !errors.Is(context.Cause(term.Context()), coord.ErrLost) {
			t.Errorf("cause: %v", context.Cause(term.Context()))
		}
		if apart := (<-began).Sub(ended); apart < time.Second {
			t.Errorf("the next term began %v after the end of the last one", apart)
		}
		if err := term.Resign(t.Context()); !errors.Is(err, coord.ErrLost) {
			t.Errorf("Resign: %v", err)
		}
		cut.Mend()
	})
}

func TestLeader(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		e := join(t, start(t, a, nil), &election.Options{ID: "a", Value: "http://a"})
		other := join(t, start(t, a, nil), nil)
		if _, err := other.Leader(t.Context()); !errors.Is(err, election.ErrNoLeader) {
			t.Errorf("nobody campaigned: %v", err)
		}
		term := campaign(t, e)
		synctest.Wait()
		want := election.Leader{ID: "a", Value: "http://a", Fence: term.Fence()}
		if l, err := other.Leader(t.Context()); l != want || err != nil {
			t.Errorf("got %+v, %v, want %+v", l, err, want)
		}
		time.Sleep(5 * time.Minute) // it is kept, however long the term is
		if l, err := other.Leader(t.Context()); l != want || err != nil {
			t.Errorf("later: %+v, %v, want %+v", l, err, want)
		}
		if err := term.Publish(t.Context(), "http://b"); err != nil {
			t.Fatal(err)
		}
		want.Value = "http://b"
		if l, err := other.Leader(t.Context()); l != want || err != nil {
			t.Errorf("published: %+v, %v, want %+v", l, err, want)
		}
		resign(t, term)
		if l, err := other.Leader(t.Context()); !errors.Is(err, election.ErrNoLeader) {
			t.Errorf("resigned: %+v, %v", l, err)
		}
		if err := term.Publish(t.Context(), "http://c"); !errors.Is(err, coord.ErrUnlocked) {
			t.Errorf("Publish after the term: %v", err)
		}
		if err := term.Resign(t.Context()); !errors.Is(err, coord.ErrUnlocked) {
			t.Errorf("second Resign: %v", err)
		}
	})
}

// Changes arrive without a timer of the observer: no virtual time passes.
func TestObserve_IsPushed(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		opts := &election.Options{ID: "a", Keep: time.Hour}
		e, other := join(t, start(t, a, nil), opts), join(t, start(t, a, nil), &election.Options{Keep: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		seen := make(chan election.Leader, 10)
		go func() {
			defer close(seen)
			for l := range other.Observe(ctx) {
				seen <- l
			}
		}()
		synctest.Wait()
		began := time.Now()
		next := func(want election.Leader) {
			t.Helper()
			if l := <-seen; l != want {
				t.Errorf("got %+v, want %+v", l, want)
			}
		}
		next(election.Leader{})
		term := campaign(t, e)
		next(election.Leader{ID: "a", Fence: term.Fence()})
		for _, value := range []string{"x", "y"} {
			if err := term.Publish(ctx, value); err != nil {
				t.Fatal(err)
			}
			next(election.Leader{ID: "a", Value: value, Fence: term.Fence()})
		}
		resign(t, term)
		next(election.Leader{})
		if d := time.Since(began); d > 0 {
			t.Errorf("it took %v", d)
		}
		cancel()
		if l, more := <-seen; more {
			t.Errorf("after the end: %+v", l)
		}
	})
}

// Without a successor, a leader that crashed is named for Keep at most.
func TestObserve_ACrashedLeaderLapses(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		cut := &crash.Arbiter{Memory: a}
		e, other := join(t, start(t, cut, nil), nil), join(t, start(t, a, nil), nil)
		term := campaign(t, e)
		synctest.Wait()
		time.Sleep(time.Minute)
		cut.Cut()
		began := time.Now()
		for l := range other.Observe(t.Context()) {
			if l == (election.Leader{}) {
				break
			}
		}
		if d := time.Since(began); d > 31*time.Second {
			t.Errorf("it was named for %v", d)
		}
		<-term.Context().Done()
		cut.Mend()
	})
}

func TestCampaign_EndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		for _, prefer := range []election.Order{nil, election.Newest} {
			opts := &election.Options{Prefer: prefer}
			e, other := join(t, start(t, a, nil), opts), join(t, start(t, a, nil), opts)
			term := campaign(t, e)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := other.Campaign(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, coord.ErrLocked) {
				t.Errorf("got %v", err)
			}
			cancel()
			resign(t, term)
		}
	})
}

func TestNew_RefusesWhatCannotBe(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		for _, x := range []struct {
			name string
			opts election.Options
			want string
		}{
			{"", election.Options{}, "name"},
			{"a#b", election.Options{}, "name"},
			{strings.Repeat("x", 513), election.Options{}, "name"},
			{"a", election.Options{ID: strings.Repeat("x", 257)}, "Options.ID"},
			{"a", election.Options{Value: strings.Repeat("x", 64<<10+1)}, "Options.Value"},
			{"a", election.Options{Version: strings.Repeat("x", 257)}, "Options.Version"},
			{"a", election.Options{Zone: strings.Repeat("x", 257)}, "Zone"},
			{"a", election.Options{ID: "\xff"}, "Options.ID"},
			{"a", election.Options{Version: "\xff"}, "Options.Version"},
			{"a", election.Options{Zone: "\xff"}, "Zone"},
			{"a", election.Options{Keep: -1}, "Options.Keep"},
			{"a", election.Options{Pause: -1}, "Options.Pause"},
			{"a", election.Options{Pause: 1}, "Options.Pause is 1ns"},
		} {
			if _, err := election.New(c, x.name, &x.opts); err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%.10q: got %v, want it to name %s", x.name, err, x.want)
			}
		}
		if _, err := election.New(nil, "a", nil); err == nil {
			t.Error("a nil coordinator was accepted")
		}
	})
}
