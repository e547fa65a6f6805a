package election_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/coordtest"
)

// Where the arbiter keeps no results, each call that needs them says so, and names the option.
func TestElection_AnArbiterWithoutResults(t *testing.T) {
	candidacy := &election.Options{Prefer: election.Newest}
	for name, do := range map[string]func(t *testing.T, c *coord.Coordinator) error{
		"Assign": func(t *testing.T, c *coord.Coordinator) error {
			return join(t, c, nil).Assign(t.Context(), 2, func(context.Context, election.Shard) error { return nil })
		},
		"Campaign": func(t *testing.T, c *coord.Coordinator) error {
			_, err := join(t, c, candidacy).Campaign(t.Context())
			return err
		},
		"Run": func(t *testing.T, c *coord.Coordinator) error {
			return join(t, c, candidacy).Run(t.Context(), func(context.Context, *election.Term) error { return nil })
		},
		"Leader": func(t *testing.T, c *coord.Coordinator) error {
			_, err := join(t, c, nil).Leader(t.Context())
			return err
		},
		"Publish": func(t *testing.T, c *coord.Coordinator) error {
			term := campaign(t, join(t, c, nil))
			defer resign(t, term)
			return term.Publish(t.Context(), "x")
		},
	} {
		bubble(t, func(t *testing.T, a *fallback.Memory) {
			began := time.Now()
			err := do(t, start(t, coordtest.WithoutResults(a), nil))
			if !errors.Is(err, coord.ErrNoResults) || !strings.Contains(err.Error(), "election.Options.Store") {
				t.Errorf("%s: %v", name, err)
			}
			if d := time.Since(began); d > 0 {
				t.Errorf("%s: it took %v", name, d)
			}
		})
	}
}

// Without a store a leader leads, and is not known to observers: both say so in the log, once.
func TestElection_NotPublished(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		var log bytes.Buffer
		c := start(t, coordtest.WithoutResults(a), nil)
		e := join(t, c, &election.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		term := campaign(t, e)
		synctest.Wait()
		for range e.Observe(t.Context()) {
			t.Error("a leader was observed")
		}
		time.Sleep(time.Minute)
		resign(t, term)
		for _, text := range []string{"cannot be published", "cannot be observed"} {
			if n := strings.Count(log.String(), text); n != 1 {
				t.Errorf("%q: %d times in\n%s", text, n, log.String())
			}
		}
	})
}

// With a store of its own an election does without the arbiter's.
func TestElection_AStoreOfItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		results, err := start(t, fallback.NewMemory(), nil).Results()
		if err != nil {
			t.Fatal(err)
		}
		c := start(t, coordtest.WithoutResults(a), nil)
		e := join(t, c, &election.Options{Store: results, Prefer: election.Newest, Value: "here"})
		term := campaign(t, e)
		synctest.Wait()
		if l, err := e.Leader(t.Context()); err != nil || l.Value != "here" {
			t.Errorf("%+v, %v", l, err)
		}
		resign(t, term)
		ctx, cancel := context.WithCancel(t.Context())
		err = e.Assign(ctx, 1, func(ctx context.Context, _ election.Shard) error { cancel(); <-ctx.Done(); return nil })
		if err != nil {
			t.Error(err)
		}
	})
}
