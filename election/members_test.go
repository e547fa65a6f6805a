package election_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fallback"
)

// slowStore takes a while for each read.
type slowStore struct{ coord.ShareStore }

func (s slowStore) Get(ctx context.Context, key string) (coord.Shared, error) {
	time.Sleep(90 * time.Millisecond)
	return s.ShareStore.Get(ctx, key)
}

// The goroutines of Assign are no part of the caller's task: neither are they in each other's way,
// nor are the shards' functions.
func TestAssign_WithALocker(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		here, there := start(t, a, nil), start(t, a, nil)
		results, err := here.Results()
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		had := make(map[int]bool) // the shards that are worked on here
		assign := func(ctx context.Context, c *coord.Coordinator, id string, fn func(context.Context, election.Shard) error) (leave func()) {
			e := join(t, c, &election.Options{ID: id, Keep: 300 * time.Millisecond, Store: slowStore{results}})
			ctx, cancel := context.WithCancel(ctx)
			done := make(chan error, 1)
			go func() { done <- e.Assign(ctx, 4, fn) }()
			return func() {
				cancel()
				if err := <-done; err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}
		}
		leaveHere := assign(coord.WithLocker(t.Context()), here, "here", func(ctx context.Context, s election.Shard) error {
			mu.Lock()
			had[s.Number] = true
			mu.Unlock()
			for ctx.Err() == nil {
				if l, err := here.Lock(ctx, "shared"); err == nil {
					time.Sleep(100 * time.Millisecond)
					_ = l.Unlock()
				} else if errors.Is(err, coord.ErrHeld) {
					t.Errorf("shard %d: %v", s.Number, err)
					<-ctx.Done()
				}
			}
			mu.Lock()
			delete(had, s.Number)
			mu.Unlock()
			return context.Cause(ctx)
		})
		time.Sleep(5 * time.Second)
		for i := range 6 { // the planner takes out those that leave, while this process adds itself
			leave := assign(t.Context(), there, "there", func(ctx context.Context, _ election.Shard) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
			time.Sleep(5 * time.Second)
			leave()
			time.Sleep(10 * time.Second)
			mu.Lock()
			n := len(had)
			mu.Unlock()
			if n != 4 {
				t.Errorf("%d shards after the other has left %d times, want 4", n, i+1)
			}
		}
		leaveHere()
	})
}
