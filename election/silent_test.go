package election_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fallback"
)

// silentStore answers no call once it is silent.
type silentStore struct {
	coord.ShareStore
	silent atomic.Bool
}

func (s *silentStore) Get(ctx context.Context, key string) (coord.Shared, error) {
	if s.silent.Load() {
		<-ctx.Done()
		return coord.Shared{}, ctx.Err()
	}
	return s.ShareStore.Get(ctx, key)
}

func (s *silentStore) Put(ctx context.Context, key string, value []byte, fence uint64, keep time.Duration) error {
	if s.silent.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.ShareStore.Put(ctx, key, value, fence, keep)
}

// A campaign ends with its context although the store does not answer: of a candidate that waits,
// and of one that has the lock and asks whether there is a better one.
func TestCampaign_AStoreThatIsSilent(t *testing.T) {
	for name, led := range map[string]bool{"a leader": true, "no leader": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				one, two := start(t, a, nil), start(t, a, nil)
				results, err := two.Results()
				if err != nil {
					t.Fatal(err)
				}
				s := &silentStore{ShareStore: results}
				opts := &election.Options{Store: s, Prefer: election.Newest}
				term, e := campaign(t, join(t, one, opts)), join(t, two, opts)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				time.AfterFunc(9500*time.Millisecond, func() {
					s.silent.Store(true)
					if !led {
						resign(t, term)
					}
				})
				began := time.Now()
				next, err := e.Campaign(ctx)
				if d := time.Since(began); d != 10*time.Second {
					t.Errorf("it took %v", d)
				}
				s.silent.Store(false)
				if led != errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				if led {
					resign(t, term)
				}
				if err == nil {
					resign(t, next)
				}
				time.Sleep(10 * time.Second) // calls that are under way
			})
		})
	}
}

// With a preference, too, a store that does not answer delays no leader for long, and is told of
// once it does.
func TestCampaign_AStoreThatIsSilentFromTheStart(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		results, err := c.Results()
		if err != nil {
			t.Fatal(err)
		}
		s := &silentStore{ShareStore: results}
		s.silent.Store(true)
		var log bytes.Buffer
		e := join(t, c, &election.Options{Store: s, Prefer: election.Newest, Value: "here", Logger: slog.New(slog.NewTextHandler(&log, nil))})
		began := time.Now()
		term := campaign(t, e)
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("it took %v", d)
		}
		time.Sleep(time.Minute)
		s.silent.Store(false)
		time.Sleep(10 * time.Second)
		if l, err := e.Leader(t.Context()); err != nil || l.Value != "here" {
			t.Errorf("%+v, %v", l, err)
		}
		resign(t, term)
		for _, text := range []string{"cannot be listed", "cannot be published"} {
			if n := strings.Count(log.String(), text); n != 1 {
				t.Errorf("%q: %d times in\n%s", text, n, log.String())
			}
		}
	})
}
