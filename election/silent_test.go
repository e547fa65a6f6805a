package election_test

import (
	"context"
	"errors"
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

// A campaign ends with its context although the store does not answer: of a candidate that waits, and of one that has the lock and asks
// whether there is a better one.
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
